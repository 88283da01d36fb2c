"""Requests and answers of a language model as messages of KServe v2 over gRPC."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tritonclient.grpc import service_pb2

from tribar.core.errors import Unavailable
from tribar.gateway.upstream.kserve.fields import DeclaredInput, InputTensor

TEXT = "text_output"
FINISH_REASON = "finish_reason"
N_PROMPT = "num_input_tokens"
N_OUTPUT = "num_output_tokens"

_FORMATS = {"BOOL": "?", "INT32": "<i", "INT64": "<q", "UINT32": "<I", "UINT64": "<Q", "FP32": "<f", "FP64": "<d"}


def infer_request(model: str, request_id: str, tensors: Sequence[InputTensor]) -> service_pb2.ModelInferRequest:
    """The request, asking for an empty last response where the model has already said everything."""
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    for tensor in tensors:
        described = message.inputs.add(name=tensor.name, datatype=tensor.datatype)
        described.shape.extend(tensor.shape)
        message.raw_input_contents.append(_packed(tensor))
    return message


def declared_inputs(metadata: service_pb2.ModelMetadataResponse) -> dict[str, DeclaredInput]:
    """The inputs of a model by name."""
    return {one.name: DeclaredInput(one.datatype, len(one.shape)) for one in metadata.inputs}


@dataclass(frozen=True, slots=True)
class Piece:
    """What one response adds. ``finish_reason`` is empty where it says none; counts are of this response."""

    text: str
    finish_reason: str
    n_prompt: int
    n_output: int
    is_final: bool


def read_piece(response: service_pb2.ModelInferResponse) -> Piece:
    """A response. Raises ``Unavailable`` for one that cannot be read."""
    outputs = dict(_outputs(response))
    finish_reason = _text(outputs.get(FINISH_REASON))
    return Piece(
        _text(outputs.get(TEXT)),
        "" if finish_reason == "None" else finish_reason,
        _number(outputs.get(N_PROMPT)),
        _number(outputs.get(N_OUTPUT)),
        response.parameters["triton_final_response"].bool_param,
    )


def _outputs(response: service_pb2.ModelInferResponse) -> Iterator[tuple[str, Sequence[bytes | int]]]:
    raw: Sequence[bytes] = response.raw_output_contents
    for i, output in enumerate(response.outputs):
        if i < len(raw):
            yield output.name, _unpacked(output.datatype, raw[i])
        else:
            contents = output.contents
            yield output.name, list(contents.bytes_contents) or list(contents.uint_contents)


def _packed(tensor: InputTensor) -> bytes:
    if tensor.datatype == "BYTES":
        encoded = [value.encode() for value in tensor.values]
        return b"".join(struct.pack("<I", len(data)) + data for data in encoded)
    layout = _FORMATS.get(tensor.datatype)
    if layout is None:
        raise Unavailable(f"its input {tensor.name!r} has the type {tensor.datatype}, which is not known here")
    return b"".join(struct.pack(layout, value) for value in tensor.values)


def _unpacked(datatype: str, raw: bytes) -> list[bytes | int]:
    if datatype != "BYTES":
        layout = _FORMATS.get(datatype, "")
        return [value for (value,) in struct.iter_unpack(layout, raw)] if layout else []
    texts: list[bytes | int] = []
    while raw:
        (n_bytes,) = struct.unpack_from("<I", raw) if len(raw) >= 4 else (len(raw),)
        if len(raw) < 4 + n_bytes:
            raise Unavailable("it sent a tensor of texts that ends too early")
        texts.append(raw[4 : 4 + n_bytes])
        raw = raw[4 + n_bytes :]
    return texts


def _text(values: Sequence[bytes | int] | None) -> str:
    return b"".join(value for value in values or () if isinstance(value, bytes)).decode(errors="replace")


def _number(values: Sequence[bytes | int] | None) -> int:
    return sum(int(value) for value in values or () if not isinstance(value, bytes))
