"""Inference requests as bytes on a socket, and where their answers end: HTTP/1.1 and gRPC over HTTP/2.

Just enough of both protocols for one request at a time on a kept connection, so that a load generator costs a fraction
of what a server does. Sources: RFC 9112, RFC 9113, RFC 7541 (no Huffman codes), gRPC over HTTP/2.
"""

import json
import struct
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from tritonclient.grpc import service_pb2

FORMS = ("JSON", "binary", "gRPC")

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"

_FRAME = struct.Struct(">BHBBI")  # length (24 bits in two parts), type, flags, stream
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_LARGEST_WINDOW = 2**31 - 1
_FIRST_WINDOW = 65535
_FIRST_DYNAMIC = 62
_POST, _SCHEME_HTTP = b"\x83", b"\x86"
_PATH, _AUTHORITY, _CONTENT_TYPE = 4, 1, 31
_GRPC_METHOD = "/inference.GRPCInferenceService/ModelInfer"


class Wire(Protocol):
    """One connection's state."""

    def first(self) -> bytes:
        """What is said before the first request."""
        ...

    def request(self) -> bytes:
        """The next request."""
        ...

    def feed(self, data: bytes) -> tuple[bool, bytes]:
        """Whether the answer is complete with ``data``, and what has to be said now. Raises ``RuntimeError``."""
        ...


class HttpWire:
    """A POST with a body that is always the same."""

    def __init__(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._request = "\r\n".join(lines).encode() + _HEAD_END + body
        self._held = b""

    def first(self) -> bytes:
        """See ``Wire``."""
        return b""

    def request(self) -> bytes:
        """See ``Wire``."""
        return self._request

    def feed(self, data: bytes) -> tuple[bool, bytes]:
        """See ``Wire``."""
        self._held += data
        head, separator, body = self._held.partition(_HEAD_END)
        if not separator:
            return False, b""
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server answered {self._held[:400]!r}")
        at = head.lower().index(_LENGTH) + len(_LENGTH)
        if len(body) < int(head[at:].partition(b"\r\n")[0]):
            return False, b""
        self._held = b""
        return True, b""


class GrpcWire:
    """A unary call with a message that is always the same, its header fields indexed after the first."""

    def __init__(self, message: bytes, authority: str) -> None:
        self._data = b"\0" + struct.pack(">I", len(message)) + message
        fields = [(_PATH, _GRPC_METHOD), (_AUTHORITY, authority), (_CONTENT_TYPE, "application/grpc")]
        literal = b"".join(bytes((0x40 | name, len(value))) + value.encode() for name, value in fields)
        literal += b"\x40\x02te\x08trailers"
        n_literals = len(fields) + 1
        self._fields = _POST + _SCHEME_HTTP + literal
        self._indexed = _POST + _SCHEME_HTTP + bytes(0x80 | _FIRST_DYNAMIC + i for i in reversed(range(n_literals)))
        self._stream = -1
        self._held = b""

    def first(self) -> bytes:
        """See ``Wire``."""
        window = struct.pack(">I", _LARGEST_WINDOW - _FIRST_WINDOW)
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b"") + _frame(_WINDOW_UPDATE, 0, 0, window)

    def request(self) -> bytes:
        """See ``Wire``."""
        self._stream += 2
        fields, self._fields = self._fields, self._indexed
        head = _frame(_HEADERS, _END_HEADERS, self._stream, fields)
        return head + _frame(_DATA, _END_STREAM, self._stream, self._data)

    def feed(self, data: bytes) -> tuple[bool, bytes]:
        """See ``Wire``."""
        self._held += data
        is_complete, reply, at = False, b"", 0
        while len(self._held) >= at + _FRAME.size:
            high, low, kind, flags, stream = _FRAME.unpack_from(self._held, at)
            end = at + _FRAME.size + (high << 16 | low)
            if len(self._held) < end:
                break
            payload, at = self._held[at + _FRAME.size : end], end
            if kind in {_SETTINGS, _PING} and not flags & _ACK:
                reply += _frame(kind, _ACK, 0, payload if kind == _PING else b"")
            elif kind in {_RST_STREAM, _GOAWAY}:
                raise RuntimeError(f"the server gave up: {payload!r}")
            elif kind in {_DATA, _HEADERS} and stream == self._stream and flags & _END_STREAM:
                is_complete = True
        self._held = self._held[at:]
        return is_complete, reply


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def identity_wire(form: str, port: int, model: str, n_elements: int) -> Wire:
    """Asks ``model`` for its output ``y``, as FP32, of ``n_elements`` random values as its input ``x``."""
    values = np.random.default_rng(0).random((1, n_elements), np.float32)
    tensor = {"name": "x", "shape": [1, n_elements], "datatype": "FP32"}
    path = f"/v2/models/{model}/infer"
    if form == "JSON":
        body = json.dumps({"inputs": [tensor | {"data": values.ravel().tolist()}]}).encode()
        return HttpWire(path, body, {"Content-Type": "application/json"})
    content = values.tobytes()
    if form == "binary":
        inputs = [tensor | {"parameters": {"binary_data_size": len(content)}}]
        outputs = [{"name": "y", "parameters": {"binary_data": True}}]
        head = json.dumps({"inputs": inputs, "outputs": outputs}, separators=(",", ":")).encode()
        return HttpWire(path, head + content, {"Inference-Header-Content-Length": str(len(head))})
    request = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[content])
    request.inputs.add(name="x", datatype="FP32", shape=(1, n_elements))
    return GrpcWire(request.SerializeToString(), f"127.0.0.1:{port}")
