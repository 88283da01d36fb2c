"""A thread for the runner's long calls, so that the engine's own thread can answer its clients meanwhile."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class StepThread:
    """Runs one call at a time. ``wake`` makes the ``serve`` of ``run`` return; it is called from the other thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._executor = ThreadPoolExecutor(1, "tribar-step")

    def run(self, call: Callable[[], T], serve: Callable[[], object]) -> T:
        """What ``call`` returns, or raises; until it has ended call ``serve`` again and again.

        ``serve`` waits for work of its own, or to be woken.
        """
        done = self._executor.submit(call)
        done.add_done_callback(lambda _: self._wake())
        try:
            while not done.done():
                serve()
        except BaseException:
            done.exception()  # nobody may think that the runner is free while it still computes
            raise
        return done.result()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._executor.shutdown()
