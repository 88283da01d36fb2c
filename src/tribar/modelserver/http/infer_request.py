"""An inference request as JSON, with the inputs that follow it in binary form (binary tensor data extension)."""

from typing import Any, Final

import numpy as np

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferRequest, ParameterValue
from tribar.core.tensors import Tensor
from tribar.modelserver.binary_inputs import DATATYPES, tensor_of_binary
from tribar.modelserver.http.elements import tensor_of
from tribar.modelserver.http.fields import (
    Json,
    Object,
    as_bool,
    as_list,
    as_object,
    as_parameter,
    as_text,
    as_unsigned,
    member,
    parse_json,
    refuse_unknown,
)
from tribar.modelserver.http.wanted_outputs import read_place, read_wanted_outputs
from tribar.modelserver.infer_call import InferCall, RegionInput

_FIELDS: Final = frozenset({"id", "parameters", "inputs", "outputs", "model_name"})
"""KServe's own client adds the model's name, which the path has already."""
_INPUT_FIELDS: Final = frozenset({"name", "shape", "datatype", "parameters", "data"})
_SOURCES: Final = ("data", "binary_data_size", "shared_memory_region")


def read_call(model: str, version: str, body: bytes, json_length: int) -> InferCall:
    """The request in ``body``, whose first ``json_length`` bytes are JSON.

    Raises ``unreadable_json`` and ``InvalidRequest`` naming the field.
    """
    view = memoryview(body)
    root = parse_json(view[:json_length])
    if type(root) is not dict:
        root = {}
    refuse_unknown(root, _FIELDS, "the request")
    if root.get("model_name", model) != model:
        raise InvalidRequest(f"model_name is not that of the path, '{model}': leave it out", param="model_name")
    request_id = as_text(root["id"], "id") if "id" in root else ""
    tail = _Tail(model, request_id, view[json_length:])
    inputs: list[Tensor] = []
    regions: list[RegionInput] = []
    for item in as_list(member(root, "inputs"), "inputs"):
        inputs.append(_read_input(item if type(item) is dict else {}, len(inputs), tail, regions))
    tail.check_end()
    fields: dict[str, Any] = {}
    if "parameters" in root:
        fields = _read_parameters(as_object(root["parameters"], "parameters"))
    is_binary = fields.pop("binary_data_output", False)
    wanted = read_wanted_outputs(root, is_binary=is_binary)
    if wanted is not None:
        fields["outputs"] = tuple(wanted)
    request = InferRequest(model_name=model, model_version=version, id=request_id, inputs=inputs, **fields)
    return InferCall(request, inputs, wanted, is_binary, regions)


def _read_input(item: Object, index: int, tail: "_Tail", regions: list[RegionInput]) -> Tensor:
    refuse_unknown(item, _INPUT_FIELDS, "an input")
    parameters = as_object(item["parameters"], "parameters") if "parameters" in item else {}
    source = _source(item, parameters)
    name = as_text(member(item, "name"), "name")
    datatype = DATATYPES.get(as_text(member(item, "datatype"), "datatype"))
    if datatype is None:
        raise InvalidRequest(f"invalid datatype for input {name}: not one of {', '.join(DATATYPES)}", param=name)
    shape = tuple([as_unsigned(size, "shape") for size in as_list(member(item, "shape"), "shape")])
    match source:
        case "data":
            return tensor_of(name, datatype, shape, as_list(item["data"], "data"))
        case "binary_data_size":
            content = tail.take(name, as_unsigned(parameters[source], source))
            return tensor_of_binary(tail.model, tail.request_id, name, datatype, shape, content)
        case _:
            regions.append(RegionInput(index, name, datatype, shape, read_place(parameters)))
            return Tensor(name, datatype, np.empty(0, datatype.dtype))


class _Tail:
    """What follows the JSON: the binary inputs, in order."""

    __slots__ = ("_at", "_content", "model", "request_id")

    def __init__(self, model: str, request_id: str, content: memoryview) -> None:
        self.model = model
        self.request_id = request_id
        self._content = content
        self._at = 0

    def take(self, name: str, n_bytes: int) -> memoryview:
        """The next input. Raises ``InvalidRequest`` where less is left."""
        start, self._at = self._at, self._at + n_bytes
        if self._at > len(self._content):
            text = (
                f"unexpected size for input '{name}', expecting {self._at - len(self._content)} additional bytes "
                f"for model '{self.model}'"
            )
            raise InvalidRequest(text, param=name)
        return self._content[start : self._at]

    def check_end(self) -> None:
        """Raises ``InvalidRequest`` where something is left."""
        if self._at < len(self._content):
            text = (
                f"unexpected additional input data for model '{self.model}': the inputs take {self._at} bytes after "
                f"the JSON, {len(self._content)} are there"
            )
            raise InvalidRequest(text)


def _source(item: Object, parameters: Object) -> str:
    """Where the input's elements are. Raises ``InvalidRequest`` unless it is one place."""
    if not parameters and "data" in item:
        return "data"
    found = [source for source in _SOURCES if source in (item if source == "data" else parameters)]
    if len(found) != 1:
        text = (
            "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
            "'shared_memory_region' in 'parameters'. But "
        )
        text += f"set {' '.join(repr(source) for source in found)}" if found else "no field is set"
        raise InvalidRequest(text, param="inputs")
    return found[0]


def _read_parameters(given: Object) -> dict[str, Any]:
    """The fields of ``InferRequest`` that the parameters set, and ``binary_data_output``."""
    fields: dict[str, Any] = {}
    others: dict[str, ParameterValue] = {}
    for name, value in given.items():
        match name:
            case "priority":
                fields["priority"] = as_unsigned(value, name)
            case "timeout":
                fields["timeout_us"] = as_unsigned(value, name)
            case "sequence_id":
                fields[name] = _sequence_id(value)
            case "sequence_start" | "sequence_end" | "binary_data_output":
                fields[name] = as_bool(value, name)
            case _:
                others[name] = as_parameter(value, name)
    if others:
        fields["parameters"] = others
    return fields


def _sequence_id(value: Json) -> int | str:
    return value if type(value) is str else as_unsigned(value, "sequence_id")
