"""Request bodies: their size, together and each, and the time of their arrival are bounded while they are read."""

import asyncio

from starlette.types import Message, Receive

from tribar.core.errors import Cancelled, DeadlineExceeded, Overloaded, TooLarge


class BodyReader:
    """Reads bodies of up to ``max_bytes`` each; those in several pieces may hold ``max_all_bytes`` together."""

    def __init__(self, max_bytes: int, *, max_all_bytes: int, timeout_s: float) -> None:
        self.max_bytes = max_bytes
        self._max_all_bytes = max_all_bytes
        self._timeout_s = timeout_s
        self._n_bytes = 0

    async def read(self, receive: Receive, announced: bytes | None) -> bytes:
        """The whole body. ``announced`` is the Content-Length.

        Raises ``TooLarge`` as soon as the limit is crossed (announced or not), ``Overloaded`` where others fill the
        room, ``DeadlineExceeded`` where it does not arrive in time, ``Cancelled`` when the client leaves.
        """
        if announced is not None and announced.isdigit() and int(announced) > self.max_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._timeout_s):
                message = await receive()
                if message["type"] == "http.request" and not message.get("more_body", False):
                    body: bytes = message.get("body", b"")
                    if len(body) > self.max_bytes:
                        raise self._too_large()
                    return body
                return await self._join(message, receive)
        except TimeoutError:
            raise DeadlineExceeded(f"the request body did not arrive within {self._timeout_s:g} s") from None

    async def _join(self, message: Message, receive: Receive) -> bytes:
        body = bytearray()
        n_held = 0
        try:
            while True:
                if message["type"] == "http.disconnect":
                    raise Cancelled("the client went away before its request was complete")
                piece = message.get("body", b"")
                if len(body) + len(piece) > self.max_bytes:
                    raise self._too_large()
                if self._n_bytes + len(piece) > self._max_all_bytes:
                    raise Overloaded("too many large requests are arriving at the same time", retry_after_s=1.0)
                self._n_bytes += len(piece)
                n_held += len(piece)
                body += piece
                if not message.get("more_body", False):
                    return bytes(body)
                message = await receive()
        finally:
            self._n_bytes -= n_held

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the request body is larger than {self.max_bytes} bytes")
