"""The system shared memory extension; CUDA's answers as on a machine without it."""

import base64
import binascii
from collections.abc import Set
from typing import Any

from tribar.core.errors import InvalidRequest, NotFound
from tribar.modelserver.http.body import BodyReader
from tribar.modelserver.http.exchange import Answer, Exchange, empty_answer, json_answer
from tribar.modelserver.http.fields import Object, as_object, as_text, as_unsigned, parse_object, refuse_unknown
from tribar.modelserver.shared_memory import SharedMemory, refuse_cuda_region


class SharedMemoryEndpoints:
    """Below ``/v2/systemsharedmemory`` and ``/v2/cudasharedmemory``; the region in the path is ``exchange.region``."""

    def __init__(self, bodies: BodyReader, shared_memory: SharedMemory) -> None:
        self._bodies = bodies
        self._shared_memory = shared_memory

    async def status(self, exchange: Exchange) -> Answer:
        """One region, or all."""
        found = self._shared_memory.status(exchange.region)
        return json_answer(
            [{name: getattr(one, name) for name in ("name", "key", "offset", "byte_size")} for one in found]
        )

    async def register(self, exchange: Exchange) -> Answer:
        """Make a segment known."""
        if not exchange.region:
            raise InvalidRequest("'region name' is necessary to register system shared memory region", param="name")
        given = await self._content(exchange, {"key", "byte_size"}, {"offset"})
        self._shared_memory.register(
            exchange.region,
            as_text(given["key"], "key"),
            byte_size=as_unsigned(given["byte_size"], "byte_size"),
            offset=as_unsigned(given.get("offset", 0), "offset"),
        )
        return empty_answer()

    async def unregister(self, exchange: Exchange) -> Answer:
        """Forget one, or all."""
        self._shared_memory.unregister(exchange.region)
        return empty_answer()

    async def cuda_status(self, exchange: Exchange) -> Answer:
        """There is none. Raises ``NotFound`` for a name."""
        if exchange.region:
            raise NotFound(f"Unable to find cuda shared memory region: '{exchange.region}'", param="name")
        return json_answer([])

    async def cuda_register(self, exchange: Exchange) -> Answer:
        """Refused."""
        given = await self._content(exchange, {"raw_handle", "device_id", "byte_size"})
        handle = as_text(as_object(given["raw_handle"], "raw_handle").get("b64"), "b64")
        refuse_cuda_region(_decoded(handle))

    async def cuda_unregister(self, exchange: Exchange) -> Answer:
        """Nothing is registered, and forgetting what is not there is no error."""
        return empty_answer()

    async def _content(self, exchange: Exchange, required: Set[str], optional: Set[str] = frozenset()) -> Object:
        body = await self._bodies.read(exchange)
        given: dict[str, Any] = parse_object(body)
        refuse_unknown(given, required | optional, "the request")
        for name in sorted(required):
            if name not in given:
                raise InvalidRequest(f"Shared memory register request has no '{name}' field", param=name)
        return given


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
