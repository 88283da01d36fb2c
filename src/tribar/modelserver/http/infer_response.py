"""An inference's answer as JSON, followed by the outputs that are wanted in binary form."""

import json
from collections.abc import Callable
from typing import Any, Final

import orjson

from tribar.core.errors import InvalidRequest, TooLarge
from tribar.core.inference import InferResponse
from tribar.core.tensors import DataType, Tensor, tensor_to_bytes
from tribar.modelserver.classification import classify_output
from tribar.modelserver.http.exchange import Header, Piece
from tribar.modelserver.http.regions import Delivery
from tribar.modelserver.infer_call import InferCall, Place
from tribar.modelserver.signature import Signature

BINARY: Final[Header] = (b"content-type", b"application/octet-stream")
MAX_JSON_ELEMENTS: Final = 2**24
"""Of an output: each is an object of Python and then a text, some sixty bytes in all."""
_NOT_IN_JSON: Final = frozenset({DataType.FP16, DataType.BF16})


class ResponseWriter:
    """Writes answers. ``signature_of`` gives labels and whether a model has batches, for classification."""

    def __init__(self, signature_of: Callable[[str, str], Signature]) -> None:
        self._signature_of = signature_of

    def write(
        self, response: InferResponse, call: InferCall, deliveries: list[Delivery]
    ) -> tuple[list[Piece], int | None]:
        """The body, and how much of it is JSON where binary outputs follow. Outputs for regions go to ``deliveries``.

        Raises ``InvalidRequest`` for outputs that cannot be given in the form that is wanted.
        """
        tail: list[Piece] = []
        outputs: list[dict[str, Any]] = []
        for output in response.outputs:
            form = call.wanted.get(output.name) if call.wanted is not None else None
            tensor = self._classes(output, form.n_classes, response) if form is not None and form.n_classes else output
            described: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.data.shape}
            outputs.append(described)
            if form is not None and form.place is not None and form.span is not None:
                content = tensor_to_bytes(tensor)
                deliveries.append(Delivery(form.span, tensor.name, content))
                described["parameters"] = _place_json(form.place, len(content))
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
        return classify_output(tensor, n_classes, signature)


def response_head(response: InferResponse) -> dict[str, Any]:
    """The fields before the outputs."""
    head: dict[str, Any] = {"id": response.id} if response.id else {}
    head["model_name"] = response.model_name
    head["model_version"] = response.model_version
    if response.parameters:
        head["parameters"] = dict(response.parameters)
    return head


def json_elements(tensor: Tensor) -> list[Any]:
    """The elements in row-major order.

    Raises ``InvalidRequest`` for those that JSON cannot carry, ``TooLarge`` for more than ``MAX_JSON_ELEMENTS``.
    """
    if tensor.data.size > MAX_JSON_ELEMENTS:
        text = (
            f"output '{tensor.name}' has {tensor.data.size} elements, and JSON carries at most {MAX_JSON_ELEMENTS} of "
            'an output: ask for it in the binary data format, with its parameter "binary_data": true'
        )
        raise TooLarge(text, param=tensor.name)
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


def _place_json(place: Place, n_bytes: int) -> dict[str, Any]:
    parameters = {"shared_memory_region": place.region, "shared_memory_byte_size": n_bytes}
    return parameters | ({"shared_memory_offset": place.offset} if place.offset else {})
