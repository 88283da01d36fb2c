"""Inference requests from their bytes."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from tritonclient.grpc.service_pb2 import ModelInferRequest

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor, tensor_from_bytes
from tribar.modelserver.grpc.contents import tensor_of
from tribar.modelserver.grpc.parameters import request_fields, tensor_parameter
from tribar.modelserver.grpc.wire import Buffer, split_field, unreadable
from tribar.modelserver.shared_memory import SharedMemory, Span
from tribar.modelserver.slowness import SLOW_BYTES, SLOW_ELEMENTS

_DATATYPES: Final = {str(datatype): datatype for datatype in DataType}
_RAW_INPUT_CONTENTS: Final = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_SPLIT_BYTES: Final = 1 << 16
"""From here on a request's tensors are cut out of its bytes, where protobuf would copy them twice."""
_MAX_ENTRIES: Final = 1024


@dataclass(slots=True)
class WantedOutput:
    """The form of an output: its ``n_classes`` highest elements unless 0, and in ``span`` unless None."""

    n_classes: int = 0
    span: Span | None = None


@dataclass(slots=True)
class InferCall:
    """A request and the form of its answer. ``wanted`` has the outputs that are not wanted as they are."""

    request: InferRequest
    wanted: dict[str, WantedOutput] | None
    wants_empty_final: bool


@dataclass(frozen=True, slots=True)
class Parsed:
    """A message, its inputs in binary form, and whether a thread has to read the elements: there may be many."""

    message: ModelInferRequest
    raw_contents: Sequence[Buffer]
    is_large: bool


class InferReader:
    """Reads requests. ``shared_memory`` has the inputs that lie there."""

    def __init__(self, shared_memory: SharedMemory) -> None:
        self._shared_memory = shared_memory

    async def parse(self, content: Buffer) -> Parsed:
        """The message. Raises ``InvalidRequest`` where it is none."""
        if len(content) < _SPLIT_BYTES:
            return _parsed(content)
        return await asyncio.to_thread(_split, content)

    async def read(self, parsed: Parsed, deadline_s: float | None) -> InferCall:
        """What a message asks for. Raises ``InvalidRequest`` naming the field, ``NotFound`` for an unknown region."""
        message = parsed.message
        _check_numbers(message)
        fields: dict[str, Any] = {}
        wants_empty_final = False
        if message.parameters:
            fields, wants_empty_final = request_fields(message.parameters)
        wanted: dict[str, WantedOutput] | None = None
        if message.outputs:
            wanted = self._wanted_outputs(message, fields)
        request = InferRequest(
            model_name=message.model_name,
            model_version=message.model_version,
            id=message.id,
            inputs=await self._inputs(parsed),
            deadline_s=deadline_s,
            **fields,
        )
        return InferCall(request, wanted, wants_empty_final)

    async def _inputs(self, parsed: Parsed) -> list[Tensor]:
        message, raw_contents = parsed.message, parsed.raw_contents
        inputs: list[Tensor] = []
        model = message.model_name
        n_raw, n_used = len(raw_contents), 0
        spans = [self._span(item, item.name) if item.parameters else None for item in message.inputs]
        self._shared_memory.check_together(filter(None, spans))
        for item, span in zip(message.inputs, spans, strict=True):
            name = item.name
            datatype = _DATATYPES.get(item.datatype)
            if datatype is None:
                text = f"input '{name}' for model '{model}' has no datatype: '{item.datatype[:20]}' is not one of "
                raise InvalidRequest(text + ", ".join(_DATATYPES), param=name)
            shape = tuple(item.shape)
            if span is not None:
                if item.HasField("contents"):
                    text = f"unexpected 'content' provided when using shared memory for input tensor '{name}'"
                    raise InvalidRequest(f"{text} for model '{model}'", param=name)
                content = await span.read()
                inputs.append(await _read_binary(message, name, datatype, shape, content))
            elif n_raw:
                if item.HasField("contents"):
                    text = f"contents field must not be specified when using raw_input_contents for '{name}'"
                    raise InvalidRequest(f"{text} for model '{model}'", param=name)
                if n_used == n_raw:
                    raise _no_data(model, name)
                inputs.append(await _read_binary(message, name, datatype, shape, raw_contents[n_used]))
                n_used += 1
            elif item.HasField("contents"):
                _checked(model, name, shape)
                if parsed.is_large:
                    made = await asyncio.to_thread(tensor_of, model, name, datatype, shape, item.contents)
                else:
                    made = tensor_of(model, name, datatype, shape, item.contents)
                inputs.append(made)
            else:
                raise _no_data(model, name)
        return inputs

    def _wanted_outputs(self, message: ModelInferRequest, fields: dict[str, Any]) -> dict[str, WantedOutput] | None:
        wanted: dict[str, WantedOutput] = {}
        names: dict[str, None] = {}
        for item in message.outputs:
            names[item.name] = None
            if item.parameters:
                wanted[item.name] = self._wanted_output(item)
        fields["outputs"] = tuple(names)
        return wanted or None

    def _wanted_output(self, item: Any) -> WantedOutput:  # noqa: ANN401 -- InferRequestedOutputTensor
        name, parameters = item.name, item.parameters
        n_classes = tensor_parameter(parameters, name, "classification", "int64_param")
        if n_classes is not None and n_classes <= 0:
            text = f"invalid value for 'classification' parameter of output '{name}', expected > 0"
            raise InvalidRequest(text, param="classification")
        span = self._span(item, name)
        if span is not None and n_classes:
            text = f"output '{name}' can't set both 'shared_memory_region' and 'classification'"
            raise InvalidRequest(text, param="classification")
        return WantedOutput(n_classes or 0, span)

    def _span(self, item: Any, name: str) -> Span | None:  # noqa: ANN401 -- InferInputTensor, InferRequestedOutputTensor
        region = tensor_parameter(item.parameters, name, "shared_memory_region", "string_param")
        offset = tensor_parameter(item.parameters, name, "shared_memory_offset", "int64_param")
        byte_size = tensor_parameter(item.parameters, name, "shared_memory_byte_size", "int64_param")
        if region is None:
            return None
        if byte_size is None:
            text = "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter"
            raise InvalidRequest(f"{text} for tensor '{name}'", param="shared_memory_byte_size")
        return self._shared_memory.span(region, byte_size=byte_size, offset=offset or 0)


def _parsed(content: Buffer) -> Parsed:
    try:
        message = ModelInferRequest.FromString(content)
    except DecodeError:
        raise unreadable() from None
    return Parsed(message, message.raw_input_contents, is_large=len(content) > SLOW_ELEMENTS)


def _split(content: Buffer) -> Parsed:
    rest, raw_contents = split_field(content, _RAW_INPUT_CONTENTS)
    return Parsed(_parsed(rest).message, raw_contents, is_large=True)


def _check_numbers(message: ModelInferRequest) -> None:
    """Raises ``InvalidRequest`` for more of anything than any model has: each takes its time on the event loop."""
    for field in ("inputs", "outputs", "parameters"):
        if len(getattr(message, field)) > _MAX_ENTRIES:
            raise InvalidRequest(f"the request has more than {_MAX_ENTRIES} {field}", param=field)


async def _read_binary(
    message: ModelInferRequest, name: str, datatype: DataType, shape: tuple[int, ...], content: bytes | memoryview
) -> Tensor:
    if datatype is DataType.BYTES and len(content) > SLOW_BYTES:
        return await asyncio.to_thread(_binary, message, name, datatype, shape, content)
    return _binary(message, name, datatype, shape, content)


def _binary(
    message: ModelInferRequest, name: str, datatype: DataType, shape: tuple[int, ...], content: bytes | memoryview
) -> Tensor:
    element_size = datatype.element_size
    if element_size is not None and len(content) != (expected := math.prod(shape) * element_size):
        _checked(message.model_name, name, shape)
        text = (
            f"[request id: {message.id or '<id_unknown>'}] input byte size mismatch for input '{name}' for model "
            f"'{message.model_name}'. Expected {expected}, got {len(content)}"
        )
        raise InvalidRequest(text, param=name)
    try:
        return tensor_from_bytes(name, datatype, shape, content)
    except (ValueError, OverflowError):
        raise _impossible(message.model_name, name, shape) from None


def _checked(model: str, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape. Raises ``InvalidRequest`` where a size is negative."""
    if any(size < 0 for size in shape):
        raise _impossible(model, name, shape)
    return shape


def _impossible(model: str, name: str, shape: tuple[int, ...]) -> InvalidRequest:
    sizes = ",".join(map(str, shape[:100]))
    text = f"All input dimensions should be specified for input '{name}' for model '{model}', got [{sizes}]"
    return InvalidRequest(text, param=name)


def _no_data(model: str, name: str) -> InvalidRequest:
    text = f"unable to find data for input tensor '{name}' for model '{model}' in request."
    return InvalidRequest(text, param=name)
