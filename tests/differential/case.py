"""A case: calls as data, which any server of the protocol can be asked, and what of the answers is compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class View(Enum):
    """What of an answer's content is compared."""

    VALUES = "values"
    SHAPE = "shape"
    """Only keys and kinds of values: for counters, times and what depends on the machine."""


@dataclass(frozen=True)
class Http:
    """One HTTP request. ``path`` and ``headers`` go out as they are; Host and Content-Length are added where absent."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    view: View = View.VALUES
    entries: tuple[str, ...] = ()
    """Of an answer that is a list, only the entries with these names."""


@dataclass(frozen=True)
class Grpc:
    """One RPC of GRPCInferenceService. ``messages`` are in protobuf's JSON form; only a stream has not exactly one."""

    rpc: str
    messages: tuple[Mapping[str, Any], ...] = ({},)
    view: View = View.VALUES
    entries: tuple[str, ...] = ()
    timeout_s: float = 20.0


Call = Http | Grpc


@dataclass(frozen=True)
class Case:
    """Calls that are made one after the other; they leave the server as they found it."""

    name: str
    calls: tuple[Call, ...]


def case(name: str, *calls: Call) -> Case:
    """A case of these calls."""
    return Case(name, calls)
