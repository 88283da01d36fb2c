"""A call: what its method learns of it, and how it ends. Source: gRPC over HTTP/2."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from tribar.core.errors import Cancelled, TribarError
from tribar.modelserver.grpc.admission import Admission
from tribar.modelserver.grpc.http2.stream import Buffer, Stream
from tribar.modelserver.grpc.inbox import PREFIX, PREFIX_BYTES, Inbox, Message
from tribar.modelserver.grpc.message_coding import decompressed, too_large
from tribar.modelserver.grpc.request_head import RequestHead
from tribar.modelserver.grpc.status import HEAD, INTERNAL, OK_FIELDS, Metadata, Status, StatusCode, status_of

_log = logging.getLogger(__name__)

_CANCELLED: Final = Status(StatusCode.CANCELLED, "the call was cancelled")
_LATE: Final = Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
_SLOW: Final = Status(StatusCode.DEADLINE_EXCEEDED, "the request did not arrive in time")
_STOPPED: Final = Status(StatusCode.UNAVAILABLE, "the server stops")
_MISSING: Final = Status(StatusCode.UNIMPLEMENTED, "the call takes one message, and none came")
_SEVERAL: Final = Status(StatusCode.UNIMPLEMENTED, "the call takes one message, and several came")
_CUT_OFF: Final = Status(StatusCode.INTERNAL, "the request ends in the middle of a message")
_FULL: Final = Status(
    StatusCode.UNAVAILABLE,
    "too many large requests are inside at the same time",
    (("grpc-retry-pushback-ms", "1000"),),
)


class Call(ABC):
    """What is the same for all kinds of calls. It hears what its stream receives.

    ``deadline_s``: when the client stops to wait, by the monotonic clock; None never. Then it has its answer, as it has
    when its request is too large or too slow, and the work is cancelled; so it is when the client goes away. A call has
    its place until its work has ended.
    """

    __slots__ = (
        "_admission",
        "_has_left",
        "_has_started",
        "_head",
        "_inbox",
        "_is_over",
        "_is_watched",
        "_n_held_bytes",
        "_stream",
        "_task",
        "_timer",
        "deadline_s",
    )

    def __init__(self, stream: Stream, head: RequestHead, admission: Admission) -> None:
        self.deadline_s: float | None = None
        self._stream = stream
        self._head = head
        self._admission = admission
        self._inbox = Inbox()
        self._n_held_bytes = 0
        self._is_over = self._has_left = self._has_started = self._is_watched = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if head.timeout_s is not None:
            self.deadline_s = monotonic() + head.timeout_s
            self._timer = asyncio.get_running_loop().call_later(head.timeout_s, self.end, _LATE)

    @property
    def metadata(self) -> Metadata:
        """What came with the call, in the order of its coming."""
        return self._head.metadata

    def end(self, status: Status) -> None:
        """Answer, whatever is done for the call, and cancel that."""
        if not self._is_over:
            self._finish(status)
            self._cancel()

    def on_gone(self) -> None:
        """See ``Receiver``."""
        if not self._is_over:
            self._close()
            self._cancel()

    def on_stop(self) -> None:
        """See ``Receiver``."""
        self.end(_STOPPED)

    def on_overdue(self) -> None:
        """See ``Waiting``: the request is."""
        self.end(_SLOW)

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        self._has_started = True
        try:
            await self._work()
        except asyncio.CancelledError:
            self._fail(_CANCELLED)
        except TribarError as error:
            self._fail(status_of(error))
        except Exception:
            _log.exception("a gRPC call failed")
            self._fail(INTERNAL)
        finally:
            self._leave()

    @abstractmethod
    async def _work(self) -> None:
        """Ask the method, and answer."""

    def _fail(self, status: Status) -> None:
        """The work has ended like that."""
        if not self._is_over:
            self._finish(status)

    def _finish(self, status: Status) -> None:
        """Without another message."""
        self._close()
        self._stream.send(None, (), HEAD + status.fields())

    def _close(self) -> None:
        """Nothing of the request is of interest any more."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            if self._has_started:
                return  # it leaves as soon as it knows
        self._leave()

    def _leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._admission.room.release(self._n_held_bytes)
            self._admission.leave()

    def _hold(self, n_bytes: int) -> bool:
        """Whether there is room for that; else the call has ended."""
        if self._admission.room.take(n_bytes):
            self._n_held_bytes += n_bytes
            return True
        self.end(_FULL)
        return False

    def release(self, n_bytes: int) -> None:
        """That much of the request is needed no more."""
        n_bytes = min(n_bytes, self._n_held_bytes)
        self._n_held_bytes -= n_bytes
        self._admission.room.release(n_bytes)

    def _watch(self) -> None:
        """More of a message has to come soon."""
        admission = self._admission
        admission.pauses.discard(self)
        admission.pauses.add(self)
        if not self._is_watched:
            self._is_watched = True
            admission.arrivals.add(self)

    def _unwatch(self) -> None:
        """All has come that has to."""
        if self._is_watched:
            self._is_watched = False
            self._admission.pauses.discard(self)
            self._admission.arrivals.discard(self)

    def _is_too_large(self) -> bool:
        """Whether the next message is; then the call has ended."""
        n_bytes, max_bytes = self._inbox.next_bytes, self._admission.max_message_bytes
        if n_bytes <= max_bytes:
            return False
        self.end(too_large(n_bytes, max_bytes))
        return True

    async def _content(self, message: Message) -> Buffer | None:
        """The message, or None where it cannot be had, and the call has ended."""
        if not message.is_compressed:
            return message.content
        n_packed = len(message.content)
        content = await decompressed(message.content, self._head.encoding, self._admission.max_message_bytes)
        if isinstance(content, Status):
            self._fail(content)
            return None
        self.release(n_packed)
        return content if self._hold(len(content)) else None


class UnaryCall(Call):
    """One message, which has come as a whole before ``answer`` is asked, and one back."""

    __slots__ = ("_answer", "_message")

    def __init__(self, stream: Stream, head: RequestHead, admission: Admission, answer: "Answer") -> None:
        super().__init__(stream, head, admission)
        self._answer = answer
        self._message: Message | None = None
        self._watch()

    def on_data(self, data: bytes) -> None:
        """See ``Receiver``."""
        if self._is_over or not data or not self._hold(len(data)):
            return
        inbox = self._inbox
        inbox.append(data)
        if self._is_too_large():
            return
        if not inbox.has_message:
            self._watch()
            self._stream.give_back()
        elif len(inbox) > PREFIX_BYTES + inbox.next_bytes:
            self.end(_SEVERAL)

    def on_end(self) -> None:
        """See ``Receiver``."""
        if self._is_over:
            return
        self._unwatch()
        if self._inbox.has_message:
            self._message = self._inbox.take()
            self._start()
        else:
            self.end(_CUT_OFF if len(self._inbox) else _MISSING)

    async def _work(self) -> None:
        assert self._message is not None
        message, self._message = self._message, None
        content = await self._content(message)
        if content is None:
            return
        del message
        answer = await self._answer(content, self)
        if not self._is_over:
            self._close()
            self._stream.send(HEAD, (PREFIX.pack(0, len(answer)), answer), OK_FIELDS)


class StreamCall(Call):
    """Any number of messages both ways, at any time. Iterate over it for those of the client.

    Each is held against the room for messages until it is released.
    """

    __slots__ = ("_answer", "_has_all", "_has_head", "_more")

    def __init__(self, stream: Stream, head: RequestHead, admission: Admission, answer: "StreamAnswer") -> None:
        super().__init__(stream, head, admission)
        self._answer = answer
        self._has_all = False
        self._has_head = False
        self._more: asyncio.Future[None] | None = None
        self._start()

    def __aiter__(self) -> AsyncIterator[Buffer]:
        return self

    async def __anext__(self) -> Buffer:
        while not self._inbox.has_message:
            if self._has_all or self._is_over:
                if len(self._inbox) and not self._is_over:
                    self.end(_CUT_OFF)
                raise StopAsyncIteration
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        message = self._inbox.take()
        self.release(PREFIX_BYTES)
        if self._is_too_large():
            raise StopAsyncIteration
        self._want()
        content = await self._content(message)
        if content is None:
            raise StopAsyncIteration
        return content

    @contextmanager
    def waiting(self, n_bytes: int) -> Iterator[None]:
        """A message of that size is there and cannot be written yet: it leaves less room for requests."""
        room = self._admission.room
        room.add(n_bytes)
        try:
            yield
        finally:
            room.release(n_bytes)

    async def write(self, message: bytes) -> None:
        """Send a message, and wait until the client takes it. One at a time. Raises ``Cancelled`` where it has left."""
        stream = self._stream
        head = None if self._has_head else HEAD
        self._has_head = True
        stream.send(head, (PREFIX.pack(0, len(message)), message))
        if stream.has_pending:
            await stream.drained()
        if not stream.is_open:
            raise Cancelled("the client of a stream has gone")

    def on_data(self, data: bytes) -> None:
        """See ``Receiver``."""
        if self._is_over or not self._hold(len(data)):
            return
        self._inbox.append(data)
        if not self._is_too_large():
            self._want()
            self._wake()

    def on_end(self) -> None:
        """See ``Receiver``."""
        self._has_all = True
        self._unwatch()
        self._wake()

    def _want(self) -> None:
        """Let more come where there is no whole message: what is there is to be worked off first."""
        if self._inbox.has_message or self._has_all:
            self._unwatch()
            return
        self._stream.give_back()
        if len(self._inbox):
            self._watch()
        else:
            self._unwatch()

    def _wake(self) -> None:
        more, self._more = self._more, None
        if more is not None and not more.done():
            more.set_result(None)

    async def _work(self) -> None:
        await self._answer(self)
        if not self._is_over:
            self._close()
            self._stream.send(None if self._has_head else HEAD, (), OK_FIELDS)

    def _finish(self, status: Status) -> None:
        self._close()
        self._stream.send(None, (), status.fields() if self._has_head else HEAD + status.fields())


class RefusedCall:
    """A call that was answered before anything of it was read, and that hears of nothing."""

    __slots__ = ()

    def on_data(self, data: bytes) -> None:
        """See ``Receiver``."""

    def on_end(self) -> None:
        """See ``Receiver``."""

    def on_gone(self) -> None:
        """See ``Receiver``."""

    def on_stop(self) -> None:
        """See ``Receiver``."""


Answer = Callable[[Buffer, UnaryCall], Awaitable[bytes]]
StreamAnswer = Callable[[StreamCall], Awaitable[None]]
