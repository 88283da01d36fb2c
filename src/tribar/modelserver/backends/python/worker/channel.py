"""The worker's end of the socket, blocking and shared by whatever threads the model has.

There is no reader thread, since a hand-over to another thread would cost more than many a model. Whoever waits for a
message reads for everybody: the first waiter takes the turn, hands what it read to the others, and passes the turn on
when it has its own.
"""

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from tribar.modelserver.backends.python.arena import Arena
from tribar.modelserver.backends.python.messages import (
    Answer,
    BlockRef,
    Complete,
    Execute,
    Finalize,
    Freed,
    Open,
    Stalled,
    Taken,
    ToFrontEnd,
    ToWorker,
    worker_frames,
)
from tribar.modelserver.backends.python.parcel import INLINE_BYTES, Parcel
from tribar.modelserver.backends.python.worker.api.errors import TritonModelException
from tribar.modelserver.backends.python.worker.unread import Unread

_RECEIVE_BYTES = 256 * 1024

Work = Open | Complete | Execute | Finalize

T = TypeVar("T")


class Channel:
    """Sends and receives. Every method may be called in any thread.

    It is the worker's alone: in a process that the model forks it is closed, and whatever uses it there raises
    ``TritonModelException``. Two processes on one socket would take each other's messages.
    """

    def __init__(self, connection: socket.socket, arena: Arena) -> None:
        self._socket = connection
        self._frames = worker_frames()
        self._arena = arena
        self._write_lock = threading.Lock()  # guards the arena, too
        self._deferred: deque[ToFrontEnd] = deque()
        self._turn = threading.Condition()
        self._is_reading = False
        self._work: deque[Work] = deque()
        self._answers: dict[int, deque[Answer]] = {}
        self._unread: dict[int, Unread] = {}
        self.is_ours = True
        os.register_at_fork(after_in_child=self._leave)

    def send(self, message: ToFrontEnd) -> None:
        """Send a message without tensors."""
        self._check_ours()
        with self._write_lock:
            self._socket.sendall(self._frames.frame(message))
        self._send_deferred()

    def send_parcel(self, parcel: Parcel, message: Callable[[BlockRef | None], ToFrontEnd]) -> None:
        """Send a message with the tensors of ``parcel``. Raises what taking memory and encoding do, sending nothing."""
        self._check_ours()
        with self._write_lock:
            if parcel.n_bytes > INLINE_BYTES and not self._arena.has_free(parcel.n_bytes):
                self._poll()
            block = parcel.seal(self._arena)
            try:
                frame = self._frames.frame(message(block))
            except Exception:
                if block is not None:
                    self._arena.give_back([block[0]])
                raise
            self._socket.sendall(frame)
        self._send_deferred()

    def send_soon(self, message: ToFrontEnd) -> None:
        """Send at once, or when the thread that is sending has finished: for ``__del__``, which must not wait."""
        if self.is_ours:
            self._deferred.append(message)
            self._send_deferred()

    def next_work(self) -> Work:
        """Wait for the front end to want something. Ends the process when the front end is gone."""
        return self._take(self._work)

    def open_call(self, call: int) -> None:
        """Keep the answers to ``call``."""
        self._answers[call] = deque()

    def next_answer(self, call: int) -> Answer:
        """Wait for an answer."""
        return self._take(self._answers[call])

    def close_call(self, call: int) -> None:
        """Answers that still come are dropped."""
        self._answers.pop(call, None)

    def wait_for_room(self, uid: int, unread: Unread, n_bytes: int) -> None:
        """Wait until the reader of a request has taken enough of ``unread`` for a response of ``n_bytes``.

        One thread at a time for each request.
        """
        if unread.has_room(n_bytes):
            return
        self._unread[uid] = unread
        try:
            while not unread.has_room(n_bytes):
                has_less = partial(unread.is_below, unread.n_responses)
                self.send(Stalled(uid))
                self._read_until(has_less)
        finally:
            del self._unread[uid]

    def _leave(self) -> None:
        """This is a forked process: the socket is not held open here, and its locks may be anybody's."""
        self.is_ours = False
        self._socket.close()

    def _check_ours(self) -> None:
        if not self.is_ours:
            raise TritonModelException("a process that the model forked cannot reach the server: let the model do it")

    def _take(self, box: deque[T]) -> T:
        while True:
            with self._turn:
                while not box and self._is_reading:
                    self._turn.wait()
                if box:
                    return box.popleft()
                self._is_reading = True
            self._read()

    def _read_until(self, is_there: Callable[[], bool]) -> None:
        while True:
            with self._turn:
                while not is_there() and self._is_reading:
                    self._turn.wait()
                if is_there():
                    return
                self._is_reading = True
            self._read()

    def _read(self) -> None:
        """The caller has the turn, and gives it away."""
        messages, freed = self._receive()
        if freed:
            with self._write_lock:
                self._arena.give_back(freed)
        self._pass_turn(messages)

    def _poll(self) -> None:
        """Learn which blocks are free again, without waiting. The caller holds the write lock."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            if self._is_reading:
                return
            self._is_reading = True
        finally:
            self._turn.release()
        messages: list[ToWorker] = []
        while select.select([self._socket], [], [], 0)[0]:
            received, freed = self._receive()
            messages += received
            self._arena.give_back(freed)
        self._pass_turn(messages)

    def _receive(self) -> tuple[list[ToWorker], list[int]]:
        """What has come, and the blocks that the front end has done with."""
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            os._exit(0)  # the front end is gone, and nobody is left to finalize for
        messages = list(self._frames.feed(data))
        freed: list[int] = []
        for message in messages:
            if isinstance(message, Freed):
                freed += message.blocks
            elif isinstance(message, Execute | Answer):
                freed += message.freed
        return messages, freed

    def _pass_turn(self, messages: Iterable[ToWorker]) -> None:
        with self._turn:
            for message in messages:
                if isinstance(message, Answer):
                    if message.call in self._answers:
                        self._answers[message.call].append(message)
                elif isinstance(message, Taken):
                    if message.uid in self._unread:
                        self._unread[message.uid].taken(message.n_responses, message.n_bytes)
                elif not isinstance(message, Freed):
                    self._work.append(message)
            self._is_reading = False
            self._turn.notify_all()

    def _send_deferred(self) -> None:
        while self._deferred and self._write_lock.acquire(blocking=False):
            try:
                while self._deferred:
                    self._socket.sendall(self._frames.frame(self._deferred.popleft()))
            finally:
                self._write_lock.release()
