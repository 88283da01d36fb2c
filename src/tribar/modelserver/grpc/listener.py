"""Where clients of gRPC connect, and which method each of their calls is for."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tribar.core.errors import Conflict
from tribar.modelserver.grpc.admission import Admission
from tribar.modelserver.grpc.call import Answer, RefusedCall, StreamAnswer, StreamCall, UnaryCall
from tribar.modelserver.grpc.http2.connection import Connection, Shared
from tribar.modelserver.grpc.http2.keep_alive import KeepAliveOptions
from tribar.modelserver.grpc.http2.stream import Receiver, Stream
from tribar.modelserver.grpc.options import GrpcOptions
from tribar.modelserver.grpc.request_head import RequestHead, read_head
from tribar.modelserver.grpc.room import Room
from tribar.modelserver.grpc.status import StatusCode, refusal
from tribar.modelserver.overdue import Overdue

_BACKLOG: Final = 2048
_FAREWELL_S: Final = 1.0
"""What clients have to take their last answers, and cancelled work to end."""
_REFUSED: Final = RefusedCall()
_NO_PLACE: Final = refusal(StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")
_NO_METHOD: Final = refusal(StatusCode.UNIMPLEMENTED, "Method not found!")
_MESSAGES_OF_ROOM: Final = 16


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """From one message to one."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """Between streams of messages."""

    answer: StreamAnswer


Method = UnaryMethod | StreamMethod


class Listener:
    """Answers calls of ``methods``, by their paths, on the event loop that starts it."""

    def __init__(self, methods: Mapping[str, Method], options: GrpcOptions) -> None:
        self._methods = {path.encode(): method for path, method in methods.items()}
        room = Room(options.max_all_messages_bytes or _MESSAGES_OF_ROOM * options.max_message_bytes)
        self._admission = Admission(options, room)
        self._shared: Shared[RequestHead] = Shared(
            read=read_head,
            open=self._open,
            room=room,
            keep_alive=KeepAliveOptions(
                time_s=options.keepalive_time_ms / 1000,
                timeout_s=options.keepalive_timeout_ms / 1000,
                permits_without_calls=options.keepalive_permit_without_calls,
                max_pings_without_data=options.http2_max_pings_without_data,
                min_interval_s=options.http2_min_recv_ping_interval_without_data_ms / 1000,
                max_strikes=options.http2_max_ping_strikes,
            ),
            handshakes=Overdue(options.handshake_s),
            stalls=Overdue(options.stall_s),
            takings=Overdue(options.message_timeout_s),
            farewells=Overdue(_FAREWELL_S),
            max_connections=options.max_connections,
        )
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> int:
        """Listen at host:port, and tell the port. Raises ``Conflict`` where that cannot be had."""
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            server = await self._listen(host, int(port))
            chosen: int = server.sockets[0].getsockname()[1]
            if any(socket.getsockname()[1] != chosen for socket in server.sockets):  # a name of several addresses
                server.close()
                server = await self._listen(host, chosen)
        except OSError as error:
            text = f"cannot listen for gRPC on {address}: another program does, or this machine has no such address"
            raise Conflict(text) from error
        self._server = server
        return chosen

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Connection(self._shared), host, port, backlog=_BACKLOG)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give those inside ``grace_s``, then cancel them. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        shared = self._shared
        shared.is_stopping = True
        for connection in [*shared.connections]:
            connection.drain()
        if grace_s > 0:
            await self._wait_deserted(grace_s)
        for connection in [*shared.connections]:
            connection.stop()
        await self._wait_deserted(_FAREWELL_S)
        for connection in [*shared.connections]:
            connection.abort()

    async def _wait_deserted(self, timeout_s: float) -> None:
        """Wait until there is neither a connection nor a call, but not longer than that."""
        shared, admission = self._shared, self._admission
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while shared.connections:
                    shared.has_none.clear()
                    await shared.has_none.wait()
                while admission.n_calls:
                    admission.has_left.clear()
                    await admission.has_left.wait()

    def _open(self, stream: Stream, head: RequestHead) -> Receiver:
        method = self._methods.get(head.path)
        if head.refused is not None:
            refused = head.refused
        elif method is None:
            refused = _NO_METHOD
        elif not self._admission.enter():
            refused = _NO_PLACE
        elif isinstance(method, UnaryMethod):
            return UnaryCall(stream, head, self._admission, method.answer)
        else:
            return StreamCall(stream, head, self._admission, method.answer)
        stream.send(None, (), refused)
        return _REFUSED
