"""The log's way out: a bounded queue of lines, and a thread that writes them.

Whoever reads standard error may stall (a full pipe, a terminal that is paused). The event loop must not wait for it:
lines that find the queue full are dropped, and counted in the log itself once there is room again.
"""

import logging
import os
import select
import threading
from collections import deque
from typing import IO

MAX_WAITING_CHARS = 4 * 2**20

LINGER_S = 0.02
"""So long the thread lets lines come together: a write, and a change of threads, for many of them."""

FLUSH_S = 2.0
"""How long the end of the process waits for a reader that has stalled."""

_log = logging.getLogger(__name__)


class LineHandler(logging.Handler):
    """Writes records to the descriptor of ``stream`` in a thread; no call but ``flush`` and ``close`` waits for it.

    What cannot be written (the other end is closed) is dropped like what has no room.
    """

    def __init__(self, stream: IO[str], *, max_waiting_chars: int = MAX_WAITING_CHARS) -> None:
        super().__init__()
        self._stream = stream
        self._max_waiting_chars = max_waiting_chars
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._n_waiting_chars = 0
        self._n_dropped = 0
        self._is_writing = False
        self._is_broken = False
        self._is_hurried = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def n_dropped(self) -> int:
        """Lines that the log has not told of yet."""
        return self._n_dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record's line, or count it where there is no room."""
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            was_busy = self._has_work()
            if self._n_waiting_chars + len(line) > self._max_waiting_chars or self._is_closed:
                self._n_dropped += 1
            else:
                self._lines.append(line)
                self._n_waiting_chars += len(line)
            if not was_busy and not self._is_closed:
                self._wake()

    def flush(self) -> None:
        """Wait until everything is written, but no longer than ``FLUSH_S``."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._has_work() and not self._is_writing, FLUSH_S)
            self._is_hurried = False

    def close(self) -> None:
        """Flush, and end the thread. Idempotent."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        super().close()

    def _has_work(self) -> bool:
        """Lines to write, or drops to tell of: without a further line, but not over and over to nobody."""
        return bool(self._lines) or (self._n_dropped > 0 and not self._is_broken)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_for_ever, name="tribar-log", daemon=True)
            self._thread.start()
        else:
            self._changed.notify_all()

    def _write_for_ever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._has_work() or self._is_closed)
                self._changed.wait_for(lambda: self._is_hurried or self._is_closed, LINGER_S)
                if not self._has_work():
                    return
                lines, self._lines = self._lines, deque()
                n_dropped, self._n_dropped = self._n_dropped, 0
                self._is_writing = True
            text = "".join(lines) + (self._tell(n_dropped) if n_dropped else "")
            is_written = self._write(text.encode(errors="backslashreplace"))
            with self._changed:
                self._n_waiting_chars = sum(map(len, self._lines))
                self._n_dropped += 0 if is_written else len(lines) + n_dropped
                self._is_broken = not is_written
                self._is_writing = False
                self._changed.notify_all()

    def _tell(self, n_dropped: int) -> str:
        text = "%d log lines were dropped: whoever reads the log is too slow"
        record = _log.makeRecord(_log.name, logging.WARNING, __file__, 0, text, (n_dropped,), None)
        return self.format(record) + "\n"

    def _write(self, data: bytes) -> bool:
        """Not through the stream: its buffer's lock, held by a thread that waits, would break the interpreter's end."""
        try:
            descriptor = self._stream.fileno()
            while data:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:
                    select.select([], [descriptor], [])
        except (OSError, ValueError):
            return False
        return True
