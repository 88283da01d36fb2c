"""How a call ends, as header fields. Source: gRPC over HTTP/2, "Responses"; grpc/doc/statuscodes.md."""

from base64 import b64encode
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tribar.core.errors import TribarError
from tribar.modelserver.backends.base import UNSPECIFIED
from tribar.modelserver.grpc.http2.field_block import literal


class StatusCode(IntEnum):
    """The codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


Metadata = tuple[tuple[str, str | bytes], ...]
"""Names and values; those whose name ends with ``-bin`` are bytes."""

_MAX_DETAILS_BYTES: Final = 6144
"""Clients take 8 KiB of headers and trailers together, and fail with another error where there is more."""
_UNRESERVED: Final = frozenset(range(0x20, 0x7F)) - {ord("%")}
_ENCODED: Final = tuple(bytes((byte,)) if byte in _UNRESERVED else b"%%%02X" % byte for byte in range(256))


@dataclass(frozen=True, slots=True)
class Status:
    """``details`` are for people, ``metadata`` goes along."""

    code: StatusCode
    details: str = ""
    metadata: Metadata = ()

    def fields(self) -> bytes:
        """The trailers."""
        made = literal(b"grpc-status", b"%d" % self.code)
        if self.details:
            made += literal(b"grpc-message", _percent_encoded(_cut(self.details)))
        for name, value in self.metadata:
            made += literal(name.encode(), value.encode() if isinstance(value, str) else b64encode(value))
        return made


HEAD: Final = b"\x88" + literal(b"content-type", b"application/grpc")
""":status 200, and what an answer is."""
OK_FIELDS: Final = Status(StatusCode.OK).fields()
INTERNAL: Final = Status(StatusCode.INTERNAL, "internal error: see the server's log")
"""What callers learn of a fault of ours."""


def status_of(error: TribarError) -> Status:
    """How an error ends a call."""
    code = StatusCode.UNKNOWN if error.code == UNSPECIFIED else StatusCode[error.grpc_code]
    metadata: Metadata = ()
    if error.retry_after_s is not None:
        metadata = (("grpc-retry-pushback-ms", str(round(error.retry_after_s * 1000))),)
    return Status(code, error.message, metadata)


def refusal(code: StatusCode, details: str, *, metadata: Metadata = ()) -> bytes:
    """The only fields of an answer without content."""
    return HEAD + Status(code, details, metadata).fields()


def http_refusal(status: int, *fields: tuple[bytes, bytes]) -> bytes:
    """The only fields of an answer to what is no call of gRPC."""
    return literal(b":status", b"%d" % status) + b"".join(literal(name, value) for name, value in fields)


def _percent_encoded(text: bytes) -> bytes:
    return b"".join([_ENCODED[byte] for byte in text])


def _cut(message: str) -> bytes:
    """As much of the message as fits. Each byte that is not ASCII takes three on the way."""
    limit = _MAX_DETAILS_BYTES if message.isascii() else _MAX_DETAILS_BYTES // 3
    encoded = message.encode("utf-8", "backslashreplace")
    return encoded[:limit].decode("utf-8", "ignore").encode()
