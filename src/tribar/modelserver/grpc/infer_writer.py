"""Inference responses as bytes. A tensor is copied once, into the message."""

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tritonclient.grpc.service_pb2 import ModelInferResponse, ModelStreamInferResponse

from tribar.core.errors import TribarError
from tribar.core.inference import InferResponse
from tribar.core.tensors import DataType, Tensor, tensor_to_bytes
from tribar.modelserver.classification import classify_output
from tribar.modelserver.grpc.parameters import to_message, to_messages
from tribar.modelserver.grpc.wire import Buffer, joined, key, length_delimited, serialised, varint
from tribar.modelserver.infer_call import InferCall
from tribar.modelserver.signature import Signature
from tribar.modelserver.slowness import is_slow

FINAL_RESPONSE: Final = "triton_final_response"

_ID: Final = ModelInferResponse.ID_FIELD_NUMBER
_RAW_OUTPUT_CONTENTS: Final = ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER
_INFER_RESPONSE: Final = ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER


class InferWriter:
    """Writes responses. ``signature_of`` gives labels and whether a model has batches, for classification."""

    def __init__(self, signature_of: Callable[[str, str], Signature]) -> None:
        self._signature_of = signature_of

    async def parts(self, response: InferResponse, call: InferCall) -> list[Buffer]:
        """The serialised ``ModelInferResponse`` in pieces.

        Raises ``InvalidRequest`` for outputs that cannot be given in the form that is wanted.
        """
        parts: list[Buffer] = [_model(response.model_name, response.model_version)]
        if response.id:
            parts += length_delimited(_ID, response.id.encode())
        if response.parameters:
            parts.append(serialised(ModelInferResponse(parameters=to_messages(response.parameters))))
        for made in response.outputs:
            wanted = call.wanted.get(made.name) if call.wanted is not None else None
            n_classes = wanted.n_classes if wanted is not None else 0
            if (n_classes or made.datatype is DataType.BYTES) and is_slow((made,)):
                tensor, content = await asyncio.to_thread(self._content, made, n_classes, response)
            else:
                tensor, content = self._content(made, n_classes, response)
            if wanted is not None and wanted.span is not None:
                await wanted.span.write(tensor.name, content)
                content = b""
            parts.append(_output(tensor.name, tensor.datatype, tensor.data.shape))
            parts += length_delimited(_RAW_OUTPUT_CONTENTS, content)
        return parts

    def _content(self, made: Tensor, n_classes: int, response: InferResponse) -> tuple[Tensor, Buffer]:
        tensor = self._classes(made, n_classes, response) if n_classes else made
        return tensor, tensor_to_bytes(tensor)

    def _classes(self, tensor: Tensor, n_classes: int, response: InferResponse) -> Tensor:
        signature = self._signature_of(response.model_name, response.model_version)
        return classify_output(tensor, n_classes, signature)


async def in_stream(parts: list[Buffer], *, is_final: bool) -> bytes:
    """A response as a message of a stream."""
    parts.append(_final(is_final=is_final))
    return await joined([key(_INFER_RESPONSE), varint(sum(map(len, parts))), *parts])


def error_in_stream(error: TribarError, id: str, model: str = "", *, is_final: bool | None = None) -> bytes:  # noqa: A002 -- the protocol's word
    """An error as a message of a stream; with ``is_final`` as an answer of ``model``, else as a refusal."""
    message = ModelStreamInferResponse(error_message=error.message or "the request failed")
    message.infer_response.id = id
    if is_final is not None:
        message.infer_response.model_name = model
        message.infer_response.parameters[FINAL_RESPONSE].bool_param = is_final
    return serialised(message)


def empty_final(response: InferResponse) -> bytes:
    """The message that only ends a request of a decoupled model."""
    message = ModelStreamInferResponse()
    message.infer_response.model_name = response.model_name
    message.infer_response.id = response.id
    message.infer_response.parameters[FINAL_RESPONSE].bool_param = True
    return serialised(message)


@lru_cache(1024)
def _model(name: str, version: str) -> bytes:
    return serialised(ModelInferResponse(model_name=name, model_version=version))


@lru_cache(4096)
def _output(name: str, datatype: DataType, shape: tuple[int, ...]) -> bytes:
    output = ModelInferResponse.InferOutputTensor(name=name, datatype=datatype, shape=shape)
    return serialised(ModelInferResponse(outputs=[output]))


@lru_cache(2)
def _final(*, is_final: bool) -> bytes:
    return serialised(ModelInferResponse(parameters={FINAL_RESPONSE: to_message(is_final)}))
