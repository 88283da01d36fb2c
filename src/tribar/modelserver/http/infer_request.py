"""An inference request as JSON, with the inputs that follow it in binary form (binary tensor data extension)."""

from dataclasses import dataclass
from typing import Any, Final

from tribar.core.errors import InvalidRequest
from tribar.core.inference import InferRequest, ParameterValue
from tribar.core.tensors import DataType, Tensor, tensor_from_bytes
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
)
from tribar.modelserver.http.wanted_outputs import WantedOutput, read_wanted_outputs
from tribar.modelserver.shared_memory import SharedMemory

_DATATYPES: Final = {str(datatype): datatype for datatype in DataType}
_SOURCES: Final = ("data", "binary_data_size", "shared_memory_region")


@dataclass(slots=True)
class InferCall:
    """A request and the form of its answer: ``wanted`` of each output, or of all of them ``is_binary``."""

    request: InferRequest
    wanted: dict[str, WantedOutput] | None
    is_binary: bool


class InferReader:
    """Reads requests. ``shared_memory`` has the inputs that lie there."""

    def __init__(self, shared_memory: SharedMemory) -> None:
        self._shared_memory = shared_memory

    def read(self, model: str, version: str, body: bytes, json_length: int) -> InferCall:
        """The request in ``body``, whose first ``json_length`` bytes are JSON.

        Raises ``UnreadableJson`` and ``InvalidRequest`` naming the field, ``NotFound`` for an unknown region.
        """
        has_tail = json_length < len(body)
        root = parse_json(memoryview(body)[:json_length] if has_tail else body)
        if type(root) is not dict:
            root = {}
        tail = _Tail(model, memoryview(body)[json_length:])
        items = as_list(member(root, "inputs"), "inputs")
        inputs = [self._input(item if type(item) is dict else {}, tail) for item in items]
        tail.check_end()
        fields: dict[str, Any] = {}
        if "parameters" in root:
            fields = _read_parameters(as_object(root["parameters"], "parameters"))
        is_binary = fields.pop("binary_data_output", False)
        wanted = read_wanted_outputs(root, is_binary=is_binary)
        if "id" in root:
            fields["id"] = as_text(root["id"], "id")
        if wanted is not None:
            fields["outputs"] = tuple(wanted)
        request = InferRequest(model_name=model, model_version=version, inputs=inputs, **fields)
        return InferCall(request, wanted, is_binary)

    def _input(self, item: Object, tail: "_Tail") -> Tensor:
        parameters = as_object(item["parameters"], "parameters") if "parameters" in item else {}
        source = _source(item, parameters)
        name = as_text(member(item, "name"), "name")
        datatype = _DATATYPES.get(as_text(member(item, "datatype"), "datatype"))
        if datatype is None:
            raise InvalidRequest(f"invalid datatype for input {name}: not one of {', '.join(_DATATYPES)}", param=name)
        shape = tuple([as_unsigned(size, "shape") for size in as_list(member(item, "shape"), "shape")])
        if source == "data":
            return tensor_of(name, datatype, shape, as_list(item["data"], "data"))
        if source == "binary_data_size":
            content = tail.take(name, as_unsigned(parameters[source], source))
        else:
            content = self._content_in_region(parameters)
        try:
            return tensor_from_bytes(name, datatype, shape, content)
        except (ValueError, OverflowError):
            raise InvalidRequest(f"input '{name}' cannot have the shape {list(shape)}", param=name) from None

    def _content_in_region(self, parameters: Object) -> memoryview:
        region = as_text(parameters["shared_memory_region"], "shared_memory_region")
        offset = as_unsigned(parameters.get("shared_memory_offset", 0), "shared_memory_offset")
        byte_size = as_unsigned(parameters.get("shared_memory_byte_size", 0), "shared_memory_byte_size")
        return self._shared_memory.view(region, offset, byte_size)


class _Tail:
    """What follows the JSON: the binary inputs, in order."""

    __slots__ = ("_at", "_content", "_model")

    def __init__(self, model: str, content: memoryview) -> None:
        self._model = model
        self._content = content
        self._at = 0

    def take(self, name: str, n_bytes: int) -> memoryview:
        """The next input. Raises ``InvalidRequest`` where less is left."""
        start, self._at = self._at, self._at + n_bytes
        if self._at > len(self._content):
            text = (
                f"unexpected size for input '{name}', expecting {self._at - len(self._content)} additional bytes "
                f"for model '{self._model}'"
            )
            raise InvalidRequest(text, param=name)
        return self._content[start : self._at]

    def check_end(self) -> None:
        """Raises ``InvalidRequest`` where something is left."""
        if self._at < len(self._content):
            text = (
                f"unexpected additional input data for model '{self._model}': the inputs take {self._at} bytes after "
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
