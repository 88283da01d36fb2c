"""What a call's header fields say. Source: gRPC over HTTP/2, "Requests"; RFC 9113, section 8."""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tribar.modelserver.grpc.http2.field_block import MAX_LIST_BYTES, Field, list_size
from tribar.modelserver.grpc.message_coding import ENCODINGS
from tribar.modelserver.grpc.status import Metadata, StatusCode, http_refusal, refusal

_CONTENT_TYPE: Final = re.compile(rb"application/grpc([+;].*)?", re.DOTALL)
_TIMEOUT: Final = re.compile(rb"(\d{1,8})([HMSmun])")
_UNIT_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_NAME: Final = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE: Final = re.compile(rb"[\x00\r\n]")
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_NEEDED: Final = frozenset((b":method", b":scheme", b":path"))
_OF_HTTP_1: Final = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_OF_GRPC: Final = frozenset((b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"))
_ACCEPTED: Final = (("grpc-accept-encoding", ",".join(ENCODINGS)),)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Which method is called, within which time from now, how its messages are compressed, and the rest.

    ``refused``: the answer's only fields, where the call is not to be answered at all.
    """

    path: bytes = b""
    timeout_s: float | None = None
    encoding: str = "identity"
    metadata: Metadata = ()
    refused: bytes | None = None


def read_head(fields: Sequence[Field]) -> RequestHead | None:
    """None for fields that are no request of HTTP/2."""
    pseudo: dict[bytes, bytes] = {}
    others: list[Field] = []
    for name, value in fields:
        if not _NAME.fullmatch(name) or _BAD_VALUE.search(value):
            return None
        if name[0] == ord(":"):
            if name not in _PSEUDO or name in pseudo or others:
                return None
            pseudo[name] = value
        elif name in _OF_HTTP_1 or (name == b"te" and value != b"trailers"):
            return None
        else:
            others.append((name, value))
    if not pseudo.keys() >= _NEEDED or not pseudo[b":path"]:
        return None
    if list_size(fields) > MAX_LIST_BYTES:
        text = f"received metadata of more than {MAX_LIST_BYTES} bytes"
        return RequestHead(refused=refusal(StatusCode.RESOURCE_EXHAUSTED, text))
    return _call(pseudo, others)


def _call(pseudo: dict[bytes, bytes], others: Sequence[Field]) -> RequestHead:
    known = dict(others)
    if pseudo[b":method"] != b"POST":
        return RequestHead(refused=http_refusal(405, (b"allow", b"POST")))
    if not _CONTENT_TYPE.fullmatch(known.get(b"content-type", b"")):
        return RequestHead(refused=http_refusal(415, (b"accept", b"application/grpc")))
    encoding = known.get(b"grpc-encoding", b"identity").decode("latin-1")
    if encoding not in ENCODINGS:
        text = f"messages cannot be compressed with {encoding[:100]!r}"
        return RequestHead(refused=refusal(StatusCode.UNIMPLEMENTED, text, metadata=_ACCEPTED))
    timeout_s = None
    if b"grpc-timeout" in known:
        found = _TIMEOUT.fullmatch(known[b"grpc-timeout"])
        if found is None:
            return RequestHead(refused=refusal(StatusCode.INTERNAL, "malformed grpc-timeout"))
        timeout_s = int(found[1]) * _UNIT_S[found[2]]
    try:
        metadata = tuple(_metadata(others))
    except binascii.Error:
        return RequestHead(refused=refusal(StatusCode.INTERNAL, "metadata ending with -bin have to be base64"))
    return RequestHead(pseudo[b":path"], timeout_s, encoding, metadata)


def _metadata(fields: Sequence[Field]) -> Iterator[tuple[str, str | bytes]]:
    for name, value in fields:
        if name in _OF_GRPC:
            continue
        if name.endswith(b"-bin"):
            for part in value.split(b","):
                text = part.strip().rstrip(b"=")
                yield name.decode(), b64decode(text + b"=" * (-len(text) % 4), validate=True)
        else:
            yield name.decode(), value.decode("utf-8", "replace")
