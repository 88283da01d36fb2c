"""Inference requests from their bytes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from tritonclient.grpc.service_pb2 import InferTensorContents, ModelInferRequest

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.binary_inputs import DATATYPES, impossible_shape, read_binary
from tribar.modelserver.grpc.contents import tensor_of
from tribar.modelserver.grpc.parameters import request_fields, tensor_parameter
from tribar.modelserver.grpc.wire import Buffer, split_field, unreadable
from tribar.modelserver.infer_call import InferCall, Place, RegionInput, WantedOutput
from tribar.modelserver.shared_memory import SharedMemory
from tribar.modelserver.slowness import SLOW_ELEMENTS

_RAW_INPUT_CONTENTS: Final = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_SPLIT_BYTES: Final = 1 << 16
"""From here on a request's tensors are cut out of its bytes, where protobuf would copy them twice."""
_MAX_ENTRIES: Final = 1024


@dataclass(frozen=True, slots=True)
class Parsed:
    """A message, its inputs in binary form, and whether a thread has to read the elements: there may be many."""

    message: ModelInferRequest
    raw_contents: Sequence[Buffer]
    is_large: bool


class InferReader:
    """Reads requests. ``shared_memory`` has the inputs that lie there, fetched for requests that pass ``check``."""

    def __init__(self, shared_memory: SharedMemory, check: Callable[[InferRequest], None]) -> None:
        self._shared_memory = shared_memory
        self._check = check

    async def parse(self, content: Buffer) -> Parsed:
        """The message. Raises ``InvalidRequest`` where it is none."""
        if len(content) < _SPLIT_BYTES:
            return _parsed(content)
        return await asyncio.to_thread(_split, content)

    async def read(self, parsed: Parsed, deadline_s: float | None) -> InferCall:
        """What a message asks for. Raises ``InvalidRequest`` naming the field, and as ``InferCall.bring``."""
        message = parsed.message
        _check_numbers(message)
        fields: dict[str, Any] = {}
        wants_empty_final = False
        if message.parameters:
            fields, wants_empty_final = request_fields(message.parameters)
        wanted: dict[str, WantedOutput] | None = None
        if message.outputs:
            wanted = _wanted_outputs(message, fields)
        regions: list[RegionInput] = []
        inputs = await _inputs(parsed, regions)
        request = InferRequest(
            model_name=message.model_name,
            model_version=message.model_version,
            id=message.id,
            inputs=inputs,
            deadline_s=deadline_s,
            **fields,
        )
        call = InferCall(request, inputs, wanted, regions=regions, wants_empty_final=wants_empty_final)
        if regions or wanted:
            await call.bring(self._shared_memory, self._check)
        return call


async def _inputs(parsed: Parsed, regions: list[RegionInput]) -> list[Tensor]:
    """In the place of one that goes to ``regions`` is something else."""
    message, raw_contents = parsed.message, parsed.raw_contents
    inputs: list[Tensor] = []
    model, request_id = message.model_name, message.id
    n_raw, n_used = len(raw_contents), 0
    for index, item in enumerate(message.inputs):
        name = item.name
        datatype = DATATYPES.get(item.datatype)
        if datatype is None:
            text = f"input '{name}' for model '{model}' has no datatype: '{item.datatype[:20]}' is not one of "
            raise InvalidRequest(text + ", ".join(DATATYPES), param=name)
        shape = tuple(item.shape)
        place = _place(item, name) if item.parameters else None
        if place is not None:
            if item.HasField("contents"):
                text = f"unexpected 'content' provided when using shared memory for input tensor '{name}'"
                raise InvalidRequest(f"{text} for model '{model}'", param=name)
            regions.append(RegionInput(index, name, datatype, shape, place))
            inputs.append(Tensor(name, datatype, np.empty(0, datatype.dtype)))
        elif n_raw:
            if item.HasField("contents"):
                text = f"contents field must not be specified when using raw_input_contents for '{name}'"
                raise InvalidRequest(f"{text} for model '{model}'", param=name)
            if n_used == n_raw:
                raise _no_data(model, name)
            inputs.append(await read_binary(model, request_id, name, datatype, shape, raw_contents[n_used]))
            n_used += 1
        elif item.HasField("contents"):
            inputs.append(await _typed(parsed, name, datatype, shape, item.contents))
        else:
            raise _no_data(model, name)
    return inputs


async def _typed(
    parsed: Parsed, name: str, datatype: DataType, shape: tuple[int, ...], contents: InferTensorContents
) -> Tensor:
    model = parsed.message.model_name
    if any(size < 0 for size in shape):
        raise impossible_shape(model, name, shape)
    if parsed.is_large:
        return await asyncio.to_thread(tensor_of, model, name, datatype, shape, contents)
    return tensor_of(model, name, datatype, shape, contents)


def _wanted_outputs(message: ModelInferRequest, fields: dict[str, Any]) -> dict[str, WantedOutput] | None:
    wanted: dict[str, WantedOutput] = {}
    names: dict[str, None] = {}
    for item in message.outputs:
        names[item.name] = None
        if item.parameters:
            wanted[item.name] = _wanted_output(item)
    fields["outputs"] = tuple(names)
    return wanted or None


def _wanted_output(item: Any) -> WantedOutput:  # noqa: ANN401 -- InferRequestedOutputTensor
    name, parameters = item.name, item.parameters
    n_classes = tensor_parameter(parameters, name, "classification", "int64_param")
    if n_classes is not None and n_classes <= 0:
        text = f"invalid value for 'classification' parameter of output '{name}', expected > 0"
        raise InvalidRequest(text, param="classification")
    place = _place(item, name)
    if place is not None and n_classes:
        text = f"output '{name}' can't set both 'shared_memory_region' and 'classification'"
        raise InvalidRequest(text, param="classification")
    return WantedOutput(n_classes or 0, place)


def _place(item: Any, name: str) -> Place | None:  # noqa: ANN401 -- InferInputTensor, InferRequestedOutputTensor
    region = tensor_parameter(item.parameters, name, "shared_memory_region", "string_param")
    offset = tensor_parameter(item.parameters, name, "shared_memory_offset", "int64_param")
    byte_size = tensor_parameter(item.parameters, name, "shared_memory_byte_size", "int64_param")
    if region is None:
        return None
    if byte_size is None:
        text = "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter"
        raise InvalidRequest(f"{text} for tensor '{name}'", param="shared_memory_byte_size")
    return Place(region, offset or 0, byte_size)


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


def _no_data(model: str, name: str) -> InvalidRequest:
    text = f"unable to find data for input tensor '{name}' for model '{model}' in request."
    return InvalidRequest(text, param=name)
