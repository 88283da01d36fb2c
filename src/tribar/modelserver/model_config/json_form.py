"""A ``ModelConfig`` as JSON: what a load request overrides, and what ``/v2/models/NAME/config`` answers."""

import json
import re
from typing import Any, Final

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import Message
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import InvalidRequest
from tribar.modelserver.model_config.suggestion import did_you_mean
from tribar.modelserver.model_config.text import MAX_CONFIG_BYTES
from tribar.modelserver.model_config.vocabulary import Descriptor, enum_names, field_names

Json = Any
"""What ``json`` reads and writes, or a value of a message that becomes it."""

_WHERE: Final = re.compile(r' at "?ModelConfig\.?([^"\s]*?)"?\.*$', re.MULTILINE)
_UNKNOWN_FIELD: Final = re.compile(r'Message type "([^"]*)" has no field named "([^"]*)"')
_UNKNOWN_VALUE: Final = re.compile(r"Invalid enum value (.*) for enum type (\S+)")
_IN_FIELD: Final = re.compile(r"Failed to parse (\S+) field: ")

_EXPLANATIONS: Final = (
    (re.compile(r"repeated field (\S+) must be in \[\]"), r"'\1' takes a list; put its elements in [ ]"),
    (re.compile(r"null is not allowed"), "null is no element of a list; remove it"),
    (re.compile(r"Couldn't parse integer: (.*)"), r"expected an integer but found \1"),
    (re.compile(r"invalid literal for int\(\) with base 10: (.*)"), r"expected an integer but found \1"),
    (re.compile(r"Bool value (\S+) is not acceptable"), r"expected an integer but found \1; write digits, as in 8"),
    (re.compile(r"Value out of range: (.*)"), r"\1 does not fit the field's integer type"),
    (re.compile(r"expected string or bytes-like object"), "expected a string; put it in quotes"),
    (
        re.compile(r'should not have multiple "scheduling_choice"'),
        "more than one scheduler is set; keep one of dynamic_batching, sequence_batching and ensemble_scheduling",
    ),
    (re.compile(r'should not have multiple "(\S+)"'), r"more than one \1 is set; keep one"),
)
"""What protobuf's complaints mean."""

_STILL_TEXT: Final = frozenset(
    {
        "inference.ModelInstanceGroup.SecondaryDevice.device_id",
        "inference.ModelSequenceBatching.InitialState.dims",
        "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
    }
)
"""Integers of 64 bits that stay strings in Triton's answer, as in protobuf's JSON; all others are numbers there."""


def config_from_json(text: bytes | str) -> ModelConfig:
    """The configuration in a load request's ``config``; names of enumerations in any case, as Triton takes them.

    Raises ``InvalidRequest`` that says where, what is wrong, and how to mend it.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise _bad("", f"{len(text)} bytes are too many for a model configuration (at most {MAX_CONFIG_BYTES})")
    try:
        document = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise _bad("", f"no JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _bad("", f"no JSON that can be read: {error}") from None
    if not isinstance(document, dict):
        raise _bad("", 'expected an object, as in {"max_batch_size": 8}')
    try:
        return json_format.ParseDict(_with_enum_names(document, ModelConfig.DESCRIPTOR), ModelConfig())
    except (json_format.ParseError, RecursionError) as error:
        raise _explained(str(error)) from None


def config_to_json(config: ModelConfig) -> dict[str, Any]:
    """In the layout of Triton's answer: every plain field, set or not; of messages and choices those that are set."""
    return _message_to_json(config)


def _message_to_json(message: Message) -> dict[str, Any]:
    return {
        field.name: _field_to_json(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field_to_json(field: Descriptor, value: Json) -> Json:
    if _is_map(field):
        entry = field.message_type.fields_by_name["value"]
        return {str(key): _value_to_json(entry, value[key]) for key in value}
    if field.is_repeated:
        return [_value_to_json(field, element) for element in value]
    return _value_to_json(field, value)


def _value_to_json(field: Descriptor, value: Json) -> Json:
    if field.message_type is not None:
        return _message_to_json(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return float(str(np.float32(value)))  # the shortest decimal, 0.3 rather than 0.30000001192092896
    return str(value) if field.full_name in _STILL_TEXT else value


def _is_map(field: Descriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Python keeps the last of equal keys; here they are an error."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _bad("", f"'{twice}' is set twice in one object; remove one of the two")
    return found


def _with_enum_names(value: Json, message: Descriptor) -> Json:
    """The same document with the names of enumerations in capitals."""
    if not isinstance(value, dict):
        return value
    fields = {**message.fields_by_camelcase_name, **message.fields_by_name}
    return {key: _with_enum_name(element, fields[key]) if key in fields else element for key, element in value.items()}


def _with_enum_name(value: Json, field: Descriptor) -> Json:
    if isinstance(value, list):
        return [_with_enum_name(element, field) for element in value]
    if field.enum_type is not None:
        return value.upper() if isinstance(value, str) else value
    if field.message_type is None:
        return value
    if _is_map(field) and isinstance(value, dict):
        entry = field.message_type.fields_by_name["value"]
        return {key: _with_enum_name(element, entry) for key, element in value.items()}
    return _with_enum_names(value, field.message_type)


def _bad(where: str, reason: str) -> InvalidRequest:
    place = f"config, at {where}: " if where else "config: "
    return InvalidRequest(place + reason, param=f"config.{where}" if where else "config")


def _explained(complaint: str) -> InvalidRequest:
    found = _WHERE.search(complaint)
    fields = _IN_FIELD.findall(complaint)
    where = (found[1] if found else "") or ".".join(fields)
    if unknown := _UNKNOWN_FIELD.search(complaint):
        message, name = unknown.groups()
        kind = message.rpartition(".")[2]
        return _bad(where, f"unknown field '{name}' in {kind}; {did_you_mean(name, field_names(message))}")
    if unknown := _UNKNOWN_VALUE.search(complaint):
        value, enum = unknown.groups()
        return _bad(where, f"'{value}' is no value of {enum}; {did_you_mean(value, enum_names(enum))}")
    reason = _WHERE.sub("", _IN_FIELD.sub("", complaint)).rstrip(".")
    for pattern, explanation in _EXPLANATIONS:
        if known := pattern.search(reason):
            return _bad(where, known.expand(explanation))
    return _bad(where, reason)
