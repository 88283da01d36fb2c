"""``POST /v2/models/NAME[/versions/VERSION]/infer``."""

import asyncio
from typing import Final

from tribar.core.errors import Cancelled
from tribar.core.inference import InferResponse
from tribar.core.tensors import DataType
from tribar.modelserver.http.body import BodyReader
from tribar.modelserver.http.compression import choose_encoding, deflate, inflate
from tribar.modelserver.http.departure import Departure
from tribar.modelserver.http.exchange import JSON, Answer, Exchange, Header, Piece
from tribar.modelserver.http.infer_request import InferCall, InferReader
from tribar.modelserver.http.infer_response import BINARY, ResponseWriter
from tribar.modelserver.http.raw_request import json_length, raw_call
from tribar.modelserver.service import Service
from tribar.modelserver.shared_memory import SharedMemory

_OFFLOAD_BYTES: Final = 64 * 2**10
"""JSON and compressed bodies above it are read, and answers written, in a thread."""

_OFFLOAD_ELEMENTS: Final = 8192
_LENGTH: Final = b"inference-header-content-length"


class Inference:
    """Reads a request, asks the service, writes its answer."""

    def __init__(self, service: Service, bodies: BodyReader, shared_memory: SharedMemory) -> None:
        self._service = service
        self._bodies = bodies
        self._reader = InferReader(shared_memory)
        self._writer = ResponseWriter(shared_memory, service.signature)

    async def infer(self, exchange: Exchange) -> Answer:
        """The answer. Raises errors of ``core.errors``; ``Cancelled`` when the client has left."""
        headers = exchange.headers
        body = await self._bodies.read(exchange.receive, headers.get(b"content-length"))
        if b"content-encoding" in headers:
            body = await inflated(body, headers[b"content-encoding"], self._bodies.max_bytes)
        call = await self._read(exchange, body, headers.get(_LENGTH))
        departure = Departure(exchange.receive)
        try:
            response = await self._service.infer(call.request)
        except asyncio.CancelledError:
            if not departure.has_left:
                raise
            raise Cancelled("the client has left") from None
        finally:
            departure.close()
        accepted = headers.get(b"accept-encoding")
        return await self._answer(response, call, choose_encoding(accepted.decode("latin-1")) if accepted else "")

    async def _read(self, exchange: Exchange, body: bytes, header_length: bytes | None) -> InferCall:
        model, version = exchange.model, exchange.version
        n_json_bytes = json_length(header_length, len(body))
        if not n_json_bytes:
            return raw_call(self._service.signature(model, version), version, body)
        if n_json_bytes > _OFFLOAD_BYTES:
            return await asyncio.to_thread(self._reader.read, model, version, body, n_json_bytes)
        return self._reader.read(model, version, body, n_json_bytes)

    async def _answer(self, response: InferResponse, call: InferCall, encoding: str) -> Answer:
        if _is_large(response):
            return await asyncio.to_thread(self._written, response, call, encoding)
        return self._written(response, call, encoding)

    def _written(self, response: InferResponse, call: InferCall, encoding: str) -> Answer:
        pieces, n_json_bytes = self._writer.write(response, call)
        headers: list[Header] = [JSON]
        if n_json_bytes is not None:
            headers = [BINARY, (_LENGTH, b"%d" % n_json_bytes)]
        if encoding:
            compressed: list[Piece] = [deflate(pieces, encoding)]
            return Answer(pieces=compressed, headers=[*headers, (b"content-encoding", encoding.encode())])
        return Answer(pieces=pieces, headers=headers)


async def inflated(body: bytes, encoding: bytes, max_bytes: int) -> bytes:
    """The body before compression, in a thread where it is not small. Raises as ``inflate``."""
    name = encoding.decode("latin-1")
    if len(body) > _OFFLOAD_BYTES // 64:  # what a thousandfold growth makes of it takes time
        return await asyncio.to_thread(inflate, body, name, max_bytes)
    return inflate(body, name, max_bytes)


def _is_large(response: InferResponse) -> bool:
    """Whether writing it may take longer than the loop should be held."""
    n_elements = 0
    for tensor in response.outputs:
        n_elements += tensor.data.size
        if tensor.datatype is DataType.BYTES and n_elements and len(tensor.data.flat[0]) > _OFFLOAD_BYTES:
            return True
    return n_elements > _OFFLOAD_ELEMENTS
