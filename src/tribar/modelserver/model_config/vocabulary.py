"""The words of a model configuration: its fields, and the values of its enumerations."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from tritonclient.grpc.model_config_pb2 import ModelConfig

Descriptor = Any
"""Protobuf's description of a message, or of a field. It has no types that a checker could use."""


def field_names(message: str) -> Sequence[str]:
    """Of a message by its full name, in the order of the specification."""
    return [field.name for field in _pool().FindMessageTypeByName(message).fields]


def enum_names(enum: str) -> Sequence[str]:
    """The values of an enumeration by its full name, without the one for "not set"."""
    return [value.name for value in _pool().FindEnumTypeByName(enum).values if not value.name.endswith("INVALID")]


def places_of(name: str) -> Sequence[str]:
    """Where in a configuration a field of this name may stand, at most three of them: ``input``, ``output``."""
    return [path for path, names in _places() if name in names][:3]


def _pool() -> DescriptorPool:
    return ModelConfig.DESCRIPTOR.file.pool


@cache
def _places() -> Sequence[tuple[str, frozenset[str]]]:
    return list(_walk(ModelConfig.DESCRIPTOR, ""))


def _walk(message: Descriptor, prefix: str) -> Iterator[tuple[str, frozenset[str]]]:
    for field in message.fields:
        if (inner := field.message_type) is not None:
            path = f"{prefix}{field.name}"
            yield path, frozenset(inner.fields_by_name)
            yield from _walk(inner, f"{path}.")
