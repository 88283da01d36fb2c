"""A language model behind KServe v2 over gRPC, Triton's in the first place, as a ``TextGenerator``.

Each generation is one ``ModelStreamInfer``: a decoupled model answers it with a response per piece of text.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tribar.core.errors import Internal, TribarError, Unavailable
from tribar.core.ports import Clock
from tribar.core.requests import Delta, Finish, FinishReason, GenerateRequest, ModelCard, Prepared, Timing, Usage
from tribar.gateway.upstream.kserve.errors import status_error
from tribar.gateway.upstream.kserve.fields import PROMPT, TensorWriter
from tribar.gateway.upstream.kserve.messages import Piece, declared_inputs, infer_request, read_piece
from tribar.gateway.upstream.openai.errors import named
from tribar.gateway.upstream.openai.upstream import UNKNOWN_MODEL_LEN, UNKNOWN_VOCAB_SIZE
from tribar.gateway.upstream.patience import Patience
from tribar.gateway.upstream.prompt_size import estimated_tokens

MAX_MESSAGE_BYTES = 64 << 20

_FINISHES = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


@dataclass(frozen=True, slots=True, kw_only=True)
class KServeUpstreamConfig:
    """``url`` is host:port, with ``grpcs://`` in front for TLS. Calls go round over ``n_channels`` connections."""

    name: str
    url: str
    model: str
    api_key: str = field(default="", repr=False)
    max_model_len: int | None = None
    n_channels: int = 2
    connect_timeout_s: float = 5.0
    first_token_timeout_s: float = 120.0
    idle_timeout_s: float = 60.0


class KServeUpstream:
    """Implements ``Upstream``. Models there have no chat template: only plain texts can be asked.

    What a request may ask is what the model declares as inputs; ``probe`` reads that.
    """

    def __init__(self, config: KServeUpstreamConfig, clock: Clock = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._lines: deque[tuple[grpc.aio.Channel, Any]] = deque()
        self._card: ModelCard | None = None
        self._writer: TensorWriter | None = None
        self._metadata = [("triton_grpc_error", "true")]  # errors end a stream with their status
        if config.api_key:
            self._metadata.append(("authorization", f"Bearer {config.api_key}"))

    async def open(self) -> None:
        """Make the channels; they connect by themselves, and again where a line broke."""
        channels = [self._channel() for _ in range(self._config.n_channels)]
        self._lines.extend((one, service_pb2_grpc.GRPCInferenceServiceStub(one)) for one in channels)

    async def close(self) -> None:
        """Close the channels. Idempotent."""
        for channel, _ in self._lines:
            await channel.close()

    async def probe(self) -> ModelCard:
        """Ask whether the model is ready and what it takes. Raises ``Unavailable`` where it is not."""
        config = self._config
        asked = {"metadata": self._metadata, "timeout": config.connect_timeout_s}
        try:
            stub = self._stub()
            ready = await stub.ModelReady(service_pb2.ModelReadyRequest(name=config.model), **asked)
            if not ready.ready:
                raise Unavailable(f"its model {config.model!r} is not ready")
            metadata = await stub.ModelMetadata(service_pb2.ModelMetadataRequest(name=config.model), **asked)
            declared = declared_inputs(metadata)
            if PROMPT not in declared:
                raise Unavailable(f"its model {config.model!r} has no input {PROMPT}", code="upstream_not_found")
        except grpc.RpcError as error:
            raise named(_unavailable(status_error(error)), config.name) from error
        except TribarError as error:
            raise named(error, config.name) from error
        self._writer = TensorWriter(config.name, declared, config.max_model_len or 0)
        self._card = self._card or ModelCard(
            name=config.model,
            architecture="kserve",
            max_model_len=config.max_model_len or UNKNOWN_MODEL_LEN,
            vocab_size=UNKNOWN_VOCAB_SIZE,
            created_s=int(time.time()),
        )
        return self._card

    def card(self) -> ModelCard:
        """See ``TextGenerator``. Raises ``Unavailable`` before the first ``probe`` that went well."""
        if self._card is None:
            raise Unavailable(f"the upstream {self._config.name!r} has not answered yet", retry_after_s=1.0)
        return self._card

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator``. Raises ``Unsupported`` naming a field that the model has no input for."""
        self._required_writer.write(request)
        n_tokens = estimated_tokens(request.prompt)
        return Prepared(
            request, n_tokens if request.truncate_prompt is None else min(n_tokens, request.truncate_prompt)
        )

    async def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator``. Closing it cancels the call, which Triton passes on to the model."""
        request = prepared.request
        patience = Patience(request.deadline_s, self._clock)
        message = infer_request(self._config.model, request.trace_id, self._required_writer.write(request))
        call = self._stub().ModelStreamInfer(metadata=self._metadata)
        answer = _Answer(prepared)
        try:
            await patience.wait(call.write(message), self._config.connect_timeout_s)
            del message
            await call.done_writing()
            while not answer.is_over:
                limit_s = self._config.idle_timeout_s if answer.has_begun else self._config.first_token_timeout_s
                received = await patience.wait(call.read(), limit_s)
                if received is grpc.aio.EOF:
                    raise Unavailable("it ended the stream before the end of the answer")
                if received.error_message:
                    raise Unavailable(f"it failed: {received.error_message[:500]}")
                text = answer.push(read_piece(received.infer_response))
                if text:
                    yield Delta(text)
            yield Delta(finish=answer.finish())
        except grpc.RpcError as error:
            raise named(status_error(error), self._config.name) from error
        except TribarError as error:
            raise named(error, self._config.name) from error
        except asyncio.CancelledError as error:  # also what grpc raises where the channel is closed under a call
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise named(Unavailable("its connection was closed"), self._config.name) from error
        finally:
            call.cancel()

    def _stub(self) -> Any:  # noqa: ANN401  the generated class has no types
        """That of the next line. One that could not be made waits before it is tried again, and would only fail."""
        for _ in range(len(self._lines)):
            self._lines.rotate(-1)
            if self._lines[0][0].get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                break
        return self._lines[0][1]

    @property
    def _required_writer(self) -> TensorWriter:
        self.card()
        if self._writer is None:
            raise Internal("an upstream with a card has read what its model takes")
        return self._writer

    def _channel(self) -> grpc.aio.Channel:
        scheme, _, rest = self._config.url.rpartition("://")
        options = [
            ("grpc.use_local_subchannel_pool", 1),  # channels to one address would share a connection otherwise
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.enable_http_proxy", 0),
        ]
        if scheme == "grpcs":
            return grpc.aio.secure_channel(rest, grpc.ssl_channel_credentials(), options=options)
        return grpc.aio.insecure_channel(rest, options=options)


class _Answer:
    """Pieces as they come, and what is known of the whole at the end."""

    def __init__(self, prepared: Prepared) -> None:
        self.is_over = self.has_begun = False
        self._prepared = prepared
        self._finish_reason = ""
        self._n_prompt = self._n_output = self._n_pieces = 0

    def push(self, piece: Piece) -> str:
        """The text of ``piece``."""
        self.is_over = piece.is_final
        self.has_begun = self.has_begun or bool(piece.text)
        self._finish_reason = piece.finish_reason or self._finish_reason
        self._n_prompt = piece.n_prompt or self._n_prompt
        self._n_output += piece.n_output
        self._n_pieces += bool(piece.text)
        return piece.text

    def finish(self) -> Finish:
        """The end. A model that does not say why it ended has stopped, unless it said as much as it might."""
        n_output = self._n_output or self._n_pieces
        max_tokens = self._prepared.request.max_tokens
        is_cut = max_tokens is not None and n_output >= max_tokens
        guessed = FinishReason.LENGTH if is_cut else FinishReason.STOP
        if self._finish_reason and self._finish_reason not in _FINISHES:
            raise Unavailable(f"the answer was ended with the reason {self._finish_reason[:50]!r}")
        reason = _FINISHES.get(self._finish_reason, guessed)
        return Finish(reason, Usage(self._n_prompt or self._prepared.n_tokens, n_output), Timing())


def _unavailable(error: TribarError) -> TribarError:
    """A check that fails for whichever reason says that the upstream does not serve."""
    return error if isinstance(error, Unavailable) else Unavailable(error.message)
