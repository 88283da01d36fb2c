"""From the bytes of a request to a struct, with every bound of a body applied."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from starlette.types import Receive, Scope

from tribar.gateway.body import BodyRoom, read_json_body
from tribar.gateway.config import GatewayConfig
from tribar.gateway.json_body import decode

B = TypeVar("B", bound=msgspec.Struct)
T = TypeVar("T")


class BodyReader(Generic[B]):
    """Reads JSON bodies of one struct. Large ones are decoded and used in a thread."""

    def __init__(self, kind: type[B], config: GatewayConfig, room: BodyRoom) -> None:
        self._config = config
        self._room = room
        self._decoder = msgspec.json.Decoder(kind)

    async def read(self, scope: Scope, receive: Receive, use: Callable[[B], T]) -> T:
        """What ``use`` makes of the body. Raises what ``read_json_body``, ``decode`` and ``use`` raise."""
        config = self._config
        with self._room.place() as take:
            raw = await read_json_body(scope, receive, config, take)
            if len(raw) > config.offload_bytes:
                return await asyncio.to_thread(lambda: use(decode(raw, self._decoder, config.max_json_depth)))
            return use(decode(raw, self._decoder, config.max_json_depth))
