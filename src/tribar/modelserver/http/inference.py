"""``POST /v2/models/NAME[/versions/VERSION]/infer``."""

import asyncio
from typing import Final

from tribar.core.inference import InferResponse
from tribar.modelserver.http.body import BodyReader
from tribar.modelserver.http.compression import choose_encoding, deflate
from tribar.modelserver.http.departure import Departure
from tribar.modelserver.http.exchange import JSON, Answer, Exchange, Header, Piece
from tribar.modelserver.http.infer_request import read_call
from tribar.modelserver.http.infer_response import BINARY, ResponseWriter
from tribar.modelserver.http.raw_request import json_length, raw_call
from tribar.modelserver.http.regions import Delivery
from tribar.modelserver.infer_call import InferCall
from tribar.modelserver.overdue import Overdue
from tribar.modelserver.service import Service
from tribar.modelserver.shared_memory import SharedMemory
from tribar.modelserver.slowness import SLOW_BYTES, SLOW_COPY_BYTES, is_slow

_LENGTH: Final = b"inference-header-content-length"


class Inference:
    """Reads a request, asks the service, writes its answer."""

    def __init__(self, service: Service, bodies: BodyReader, patience: Overdue, shared_memory: SharedMemory) -> None:
        self._service = service
        self._bodies = bodies
        self._patience = patience
        self._shared_memory = shared_memory
        self._writer = ResponseWriter(service.signature)

    async def infer(self, exchange: Exchange) -> Answer:
        """The answer. Raises errors of ``core.errors``; ``client_left``."""
        headers = exchange.headers
        body = await self._bodies.read(exchange)
        call = await self._read(exchange, body, headers.get(_LENGTH))
        if call.regions or call.wanted is not None:
            await call.bring(self._shared_memory, self._service.check_request)
        departure = Departure(exchange.receive, self._patience)
        try:
            response = await self._service.infer(call.request)
        except asyncio.CancelledError:
            departure.explain()
            raise
        finally:
            departure.close()
        accepted = headers.get(b"accept-encoding")
        return await self._answer(response, call, choose_encoding(accepted.decode("latin-1")) if accepted else "")

    async def _read(self, exchange: Exchange, body: bytes, header_length: bytes | None) -> InferCall:
        model, version = exchange.model, exchange.version
        n_json_bytes = json_length(header_length, len(body))
        if not n_json_bytes:
            signature = self._service.signature(model, version)
            if len(body) > SLOW_COPY_BYTES:
                return await asyncio.to_thread(raw_call, signature, version, body)
            return raw_call(signature, version, body)
        if len(body) > SLOW_BYTES and (n_json_bytes > SLOW_BYTES or _may_have_texts(body, n_json_bytes)):
            return await asyncio.to_thread(read_call, model, version, body, n_json_bytes)
        return read_call(model, version, body, n_json_bytes)

    async def _answer(self, response: InferResponse, call: InferCall, encoding: str) -> Answer:
        deliveries: list[Delivery] = []
        if is_slow(response.outputs):
            answer = await asyncio.to_thread(self._written, response, call, deliveries, encoding)
        else:
            answer = self._written(response, call, deliveries, encoding)
        for delivery in deliveries:
            await delivery.deliver()
        return answer

    def _written(self, response: InferResponse, call: InferCall, deliveries: list[Delivery], encoding: str) -> Answer:
        pieces, n_json_bytes = self._writer.write(response, call, deliveries)
        headers: list[Header] = [JSON]
        if n_json_bytes is not None:
            headers = [BINARY, (_LENGTH, b"%d" % n_json_bytes)]
        if encoding:
            compressed: list[Piece] = [deflate(pieces, encoding)]
            return Answer(pieces=compressed, headers=[*headers, (b"content-encoding", encoding.encode())])
        return Answer(pieces=pieces, headers=headers)


def _may_have_texts(body: bytes, n_json_bytes: int) -> bool:
    """Whether what follows the JSON may be BYTES, read element by element; other datatypes are taken as they are."""
    return any(body.find(sign, 0, n_json_bytes) >= 0 for sign in (b"BYTES", b"\\u"))
