"""An inference's answer as JSON, followed by the outputs that are wanted in binary form."""

import json
from collections.abc import Callable
from typing import Any, Final

import orjson

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferResponse
from tribar.core.tensors import DataType, Tensor, tensor_to_bytes
from tribar.modelserver.classification import classify
from tribar.modelserver.http.exchange import Header, Piece
from tribar.modelserver.http.infer_request import InferCall
from tribar.modelserver.http.wanted_outputs import WantedOutput
from tribar.modelserver.shared_memory import SharedMemory
from tribar.modelserver.signature import Signature

BINARY: Final[Header] = (b"content-type", b"application/octet-stream")
_NOT_IN_JSON: Final = frozenset({DataType.FP16, DataType.BF16})


class ResponseWriter:
    """Writes answers. ``signature_of`` gives labels and whether a model has batches, for classification."""

    def __init__(self, shared_memory: SharedMemory, signature_of: Callable[[str, str], Signature]) -> None:
        self._shared_memory = shared_memory
        self._signature_of = signature_of

    def write(self, response: InferResponse, call: InferCall) -> tuple[list[Piece], int | None]:
        """The body, and how much of it is JSON where binary outputs follow.

        Raises ``InvalidRequest`` for outputs that cannot be given in the form that is wanted.
        """
        tail: list[Piece] = []
        outputs: list[dict[str, Any]] = []
        for output in response.outputs:
            form = call.wanted.get(output.name) if call.wanted is not None else None
            tensor = self._classes(output, form.n_classes, response) if form is not None and form.n_classes else output
            described = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.data.shape}
            outputs.append(described)
            if form is not None and form.region:
                described["parameters"] = self._put(tensor, form)
            elif form.is_binary if form is not None else call.is_binary:
                content = tensor_to_bytes(tensor)
                described["parameters"] = {"binary_data_size": len(content)}
                tail.append(content)
            else:
                described["data"] = json_elements(tensor)
        head = response_head(response) | {"outputs": outputs}
        text = to_json(head)
        n_tail_bytes = sum(map(len, tail))
        return [text, *tail], len(text) if n_tail_bytes else None

    def _classes(self, tensor: Tensor, n_classes: int, response: InferResponse) -> Tensor:
        signature = self._signature_of(response.model_name, response.model_version)
        spec = signature.outputs.get(tensor.name)
        labels = spec.labels if spec is not None else ()
        return classify(tensor, n_classes, labels, is_batched=signature.max_batch_size > 0)

    def _put(self, tensor: Tensor, form: WantedOutput) -> dict[str, Any]:
        """Write the output where the client has asked for it."""
        content = tensor_to_bytes(tensor)
        if len(content) > form.region_byte_size:
            text = (
                f"shared memory size specified with the request for output '{tensor.name}' "
                f"({form.region_byte_size} bytes) should be at least {len(content)} bytes to hold the results"
            )
            raise InvalidRequest(text, param=tensor.name)
        self._shared_memory.view(form.region, form.region_offset, form.region_byte_size)[: len(content)] = content
        parameters = {"shared_memory_region": form.region, "shared_memory_byte_size": len(content)}
        return parameters | ({"shared_memory_offset": form.region_offset} if form.region_offset else {})


def response_head(response: InferResponse) -> dict[str, Any]:
    """The fields before the outputs."""
    head: dict[str, Any] = {"id": response.id} if response.id else {}
    head["model_name"] = response.model_name
    head["model_version"] = response.model_version
    if response.parameters:
        head["parameters"] = dict(response.parameters)
    return head


def json_elements(tensor: Tensor) -> list[Any]:
    """The elements in row-major order. Raises ``InvalidRequest`` for those that JSON cannot carry."""
    if tensor.datatype in _NOT_IN_JSON:
        text = f"sending {tensor.datatype} data via JSON is not supported. Please use the binary data format for output"
        raise InvalidRequest(f"{text} '{tensor.name}'", param=tensor.name)
    elements: list[Any] = tensor.data.ravel().tolist()
    if tensor.datatype is not DataType.BYTES:
        return elements
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError:
        text = (
            f"output '{tensor.name}' has bytes that are no UTF-8 text, which JSON cannot carry: ask for it in the "
            'binary data format, with its parameter "binary_data": true'
        )
        raise InvalidRequest(text, param=tensor.name) from None


def to_json(value: dict[str, Any]) -> bytes:
    """JSON; numbers that are not finite as NaN, Infinity and -Infinity, as Triton and Python's json have them."""
    text = orjson.dumps(value)
    if b"null" in text:  # what orjson makes of them; our values have no null of their own
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return text
