"""One HTTP/1.1 connection under limits: what uvicorn leaves to a proxy in front, and we have none.

A request's head has a size and a time to arrive, an answer a time to be taken, an idle connection a time to be idle.
Requests are taken one at a time: uvicorn parses a pipelined request while the one before it still runs, and then
tells only the last of them that the client has left (RFC 9112, section 9.3.2, lets a server close instead).
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tribar.app.joined_head import JoinedHead
from tribar.app.request_head import fault_of
from tribar.app.until_close import UntilClose
from tribar.core.errors import InvalidRequest, Overloaded, TribarError
from tribar.gateway.problem import error_json

_log = logging.getLogger(__name__)

_HOP_BY_HOP = frozenset({b"connection", b"http2-settings", b"upgrade"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """``head_s`` and ``max_head_bytes`` bound the request line and headers, ``stall_s`` how long an answer may wait
    without any of it being taken, ``linger_s`` what is left of a body once its request has been answered, ``idle_s``
    the wait between two requests; ``max_connections`` all of them together. The application has limits of its own:
    these are for what never reaches it.
    """

    max_connections: int = 4096
    max_head_bytes: int = 256 * 2**10
    head_s: float = 15.0
    stall_s: float = 30.0
    linger_s: float = 10.0
    idle_s: float = 75.0


class _Phase(Enum):
    """What the client owes next: a request's head, the rest of its body, or nothing."""

    HEAD = auto()
    BODY = auto()
    NOTHING = auto()


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol with ``ConnectionLimits``. Somebody has to call ``sweep`` about every second."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **options: Any) -> None:  # noqa: ANN401  uvicorn's
        super().__init__(*arguments, **options)
        self._limits = limits
        self._phase = _Phase.HEAD
        self._since_s = time.monotonic()
        self._n_head_bytes = 0
        self._is_deaf = False
        self._unsent = (0, self._since_s)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """See ``asyncio.Protocol``."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._refuse(503, Overloaded(f"{self._limits.max_connections} connections are open", retry_after_s=1))

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if self._is_deaf:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, InvalidRequest("this is no HTTP/1.1 request that can be understood"))
        if self._phase is _Phase.HEAD and not self._is_deaf:
            self._n_head_bytes += len(data)
            if self._n_head_bytes > self._limits.max_head_bytes:
                message = f"the request line and headers exceed {self._limits.max_head_bytes} bytes"
                self._refuse(431, InvalidRequest(message))

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Read the request as plain HTTP/1.1 (RFC 9110, section 7.8: an upgrade is an offer), from a head without it.

        Java's HTTP client and ``curl --http2`` offer HTTP/2 with every request. ``rest`` is what follows the head.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(400, InvalidRequest("this server is no proxy: CONNECT is not supported"))
            return
        closes = any(b"close" in value.lower() for name, value in self.headers if name == b"connection")
        kept = [(name, value) for name, value in self.headers if name not in _HOP_BY_HOP]
        kept += [(b"connection", b"close")] if closes else []
        line = b"%b %b HTTP/%b\r\n" % (method, self.url, self.parser.get_http_version().encode())
        head = line + b"".join(b"%b: %b\r\n" % pair for pair in kept) + b"\r\n"
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def on_message_begin(self) -> None:
        """A request line begins."""
        super().on_message_begin()
        if self._phase is _Phase.NOTHING:
            self._n_head_bytes = 0
            self._enter(_Phase.HEAD)

    def on_headers_complete(self) -> None:
        """The request can be run, unless it offers an upgrade or came while another one runs."""
        if self.parser.should_upgrade():
            return
        if not self._is_answered():
            self.cycle.keep_alive = False
            self._is_deaf = True
            return
        fault = fault_of(self.parser.get_http_version(), self.headers)
        if fault is not None:
            self._refuse(*fault)
            return
        self._enter(_Phase.BODY)
        self._unsent = (0, self._since_s)
        self.expect_100_continue &= self.parser.get_http_version() != "1.0"  # RFC 9110, section 10.1.1
        super().on_headers_complete()
        self._answer = JoinedHead(self.transport)
        self.cycle.transport = cast("asyncio.Transport", self._answer)  # the answer begins in a later turn of the loop

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401  an ASGI application
        """The request runs."""
        is_old = cycle.scope["http_version"] == "1.0"
        super()._start_asgi_task(cycle, UntilClose(app, cycle) if is_old else app)  # type: ignore[arg-type]

    def on_body(self, body: bytes) -> None:
        """Some of the body of the request that runs."""
        if not self._is_deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request that runs has arrived in full."""
        if self._is_deaf or self.parser.should_upgrade():
            return
        self._enter(_Phase.NOTHING)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer has been handed over to be written."""
        self._answer.end()
        self._since_s = time.monotonic()
        # Nothing else of uvicorn's: no request waits behind this one, and idle connections are left to ``sweep``, which
        # spares each request a timer.
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what it cannot parse, in the shape of ours."""
        self._refuse(400, InvalidRequest(msg))

    def sweep(self, now_s: float) -> None:
        """Hang up if the client has kept this connection waiting for too long. ``now_s`` is monotonic."""
        if not (self._is_answered() or self.transport.is_closing()):
            return  # it is the application's, which has its own deadlines; most of thousands are
        if self._is_stalled(now_s):
            self.transport.abort()
        elif not self.transport.is_closing():
            self._end_overdue(now_s - self._since_s)

    def _is_stalled(self, now_s: float) -> bool:
        """Whether the end of an answer waits and nothing of it was taken for ``stall_s``."""
        n_bytes = self.transport.get_write_buffer_size()
        if n_bytes != self._unsent[0] or not n_bytes:
            self._unsent = (n_bytes, now_s)
        return now_s - self._unsent[1] >= self._limits.stall_s

    def _end_overdue(self, waited_s: float) -> None:
        match self._phase:
            case _Phase.HEAD if waited_s >= self._limits.head_s:
                if self._n_head_bytes:
                    message = f"the request's headers did not arrive within {self._limits.head_s:g} s"
                    self._refuse(408, InvalidRequest(message))
                else:
                    self.transport.close()
            case _Phase.BODY if waited_s >= self._limits.linger_s:
                self.transport.abort()
            case _Phase.NOTHING if waited_s >= self._limits.idle_s:
                self.transport.close()

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self._since_s = time.monotonic()

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, status: int, error: TribarError) -> None:
        """Answer what never became a request, and hang up."""
        _log.info("refused a connection with %d: %s", status, error.message)
        self._is_deaf = True
        if self._is_answered() or not self.cycle.response_started:
            if self.cycle is not None:
                self.cycle.disconnected = True  # whoever runs its request has nothing to answer any more
                self.cycle.message_event.set()
            body = error_json(error)
            head = STATUS_LINE[status] + b"content-type: application/json\r\nconnection: close\r\n"
            if error.retry_after_s is not None:
                head += b"retry-after: %d\r\n" % error.retry_after_s
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()
