"""A request as the endpoints see it, and the answer that they give."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.types import Receive, Scope, Send

Header = tuple[bytes, bytes]
Piece = bytes | memoryview

JSON: Final[Header] = (b"content-type", b"application/json")
_MAX_PIECE_BYTES: Final = 256 * 2**10
"""The server's buffer takes this much at a time, and waits for the client in between."""


class Exchange:
    """One request, with what its path names ("" where it names none), and where its answer goes.

    ``is_started`` once an endpoint has begun to answer by itself. ``n_held_bytes`` of its body count for all bodies.
    """

    __slots__ = ("_headers", "is_started", "model", "n_held_bytes", "receive", "region", "scope", "send", "version")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.model = ""
        self.version = ""
        self.region = ""
        self.is_started = False
        self.n_held_bytes = 0
        self._headers: dict[bytes, bytes] | None = None

    @property
    def headers(self) -> dict[bytes, bytes]:
        """By name in lower case; the last of equal ones."""
        if self._headers is None:
            self._headers = dict(self.scope["headers"])
        return self._headers


@dataclass(slots=True)
class Answer:
    """A whole answer. ``pieces`` are its body, in order."""

    status: int = 200
    pieces: Sequence[Piece] = (b"",)
    headers: Sequence[Header] = (JSON,)

    async def write(self, send: Send) -> None:
        """Send it: a small body at once, a large one piece by piece as the client takes it."""
        pieces = self.pieces
        n_bytes = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        headers = [*self.headers, (b"content-length", b"%d" % n_bytes)]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if n_bytes <= _MAX_PIECE_BYTES:
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            await send({"type": "http.response.body", "body": body})
            return
        for piece in pieces:
            view = memoryview(piece)
            for start in range(0, len(view), _MAX_PIECE_BYTES):
                part = view[start : start + _MAX_PIECE_BYTES]
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


Endpoint = Callable[[Exchange], Awaitable[Answer | None]]
"""Answers a request: with what it returns, or by itself where that is None."""


def json_answer(value: Any) -> Answer:  # noqa: ANN401  anything that orjson takes
    """200 with this JSON."""
    return Answer(pieces=(orjson.dumps(value),))


def empty_answer() -> Answer:
    """200 without a body."""
    return Answer()


def probe_answer(name: str, *, is_well: bool) -> Answer:
    """The answer of the server's health checks. Triton's clients look at its status, KServe's at the body."""
    return Answer(200 if is_well else 400, (orjson.dumps({name: is_well}),))
