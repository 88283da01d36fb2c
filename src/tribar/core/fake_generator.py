"""A scripted ``TextGenerator``: the fake that stands beside the port.

Its vocabulary is the 256 bytes, so token ids, token bytes and text convert into each other without a tokenizer.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from tribar.core.errors import InvalidRequest
from tribar.core.requests import (
    ChatPrompt,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    IdsPrompt,
    ModelCard,
    Prepared,
    TextPrompt,
    Timing,
    Usage,
)
from tribar.core.sampling.params import TokenLogprobs

BYTE_TOKENS: tuple[bytes, ...] = tuple(bytes([i]) for i in range(256))
"""The fake's id-to-bytes table."""

FAKE_CARD = ModelCard(
    name="fake", architecture="fake", max_model_len=65536, vocab_size=len(BYTE_TOKENS), has_chat_template=True
)

Step = Delta | Exception | asyncio.Event
"""A Delta is yielded, an exception raised, an event waited for."""

Script = Callable[[Prepared], Iterable[Step]]
"""What one request does, made anew for each request; lazy iterables are drawn step by step."""


def speak(*pieces: str, reason: FinishReason = FinishReason.STOP, n_cached: int = 0) -> Script:
    """A script that says ``pieces``, one Delta each, and finishes. Log-probabilities come when asked for."""

    def script(prepared: Prepared) -> Iterable[Step]:
        n_output = 0
        for piece in pieces:
            ids = tuple(piece.encode())
            n_output += len(ids)
            yield Delta(text=piece, token_ids=ids, logprobs=_logprobs(prepared.request.wants.logprobs, ids))
        usage = Usage(prompt_tokens=prepared.n_tokens, completion_tokens=n_output, cached_tokens=n_cached)
        yield Delta(finish=Finish(reason=reason, usage=usage, timing=Timing()))

    return script


def _logprobs(n_top: int | None, ids: tuple[int, ...]) -> tuple[TokenLogprobs, ...]:
    if n_top is None:
        return ()
    return tuple(
        TokenLogprobs(i, -0.5, tuple((i + k) % 256 for k in range(n_top)), tuple(-0.5 - k for k in range(n_top)))
        for i in ids
    )


class FakeGenerator:
    """Plays ``script`` for every request and counts what became of each.

    ``requests`` holds the prepared requests in order; ``n_running``, ``n_finished``, ``n_failed`` and ``n_aborted``
    count generations (an abort is a generator closed or cancelled before its end). ``until`` waits for a state.
    """

    def __init__(self, script: Script, card: ModelCard = FAKE_CARD) -> None:
        self.script = script
        self.requests: list[GenerateRequest] = []
        self.n_running = self.n_finished = self.n_failed = self.n_aborted = 0
        self._card = card
        self._changed = asyncio.Event()

    def card(self) -> ModelCard:
        """The card given at construction."""
        return self._card

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """One token per byte of text. Raises ``InvalidRequest`` for an empty prompt and for one that cannot fit."""
        ids = _prompt_ids(request)[-(request.truncate_prompt or 0) :]
        limit = self._card.max_model_len
        if not ids:
            raise InvalidRequest("the prompt is empty", param="prompt")
        if len(ids) + max(1, request.max_tokens or 0) > limit:
            raise InvalidRequest(
                f"the prompt's {len(ids)} tokens and max_tokens {request.max_tokens} exceed the context of {limit}",
                param="prompt",
                code="context_length_exceeded",
            )
        self.requests.append(request)
        return Prepared(request, len(ids), ids)

    async def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """Play the script. Closing early counts as an abort."""
        self.n_running += 1
        outcome = "n_aborted"
        self._notify()
        try:
            for step in self.script(prepared):
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, Delta):
                    yield step
                else:
                    raise step
            outcome = "n_finished"
        except Exception:
            outcome = "n_failed"
            raise
        finally:
            self.n_running -= 1
            setattr(self, outcome, getattr(self, outcome) + 1)
            self._notify()

    async def until(self, condition: Callable[["FakeGenerator"], bool]) -> None:
        """Return once ``condition(self)`` holds; it is looked at after every start and end of a generation."""
        while not condition(self):
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _prompt_ids(request: GenerateRequest) -> tuple[int, ...]:
    match request.prompt:
        case IdsPrompt(ids):
            return ids
        case TextPrompt(text):
            return tuple(text.encode())
        case ChatPrompt(messages):
            return tuple("".join(f"{m['role']}: {m.get('content') or ''}\n" for m in messages).encode())
