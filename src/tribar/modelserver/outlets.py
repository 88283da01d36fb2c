"""Where a scheduler's answers go for the callers of the service: into a future, or into a bounded stream."""

import asyncio
from collections import deque
from collections.abc import Callable

from tribar.core.errors import Overloaded, TribarError
from tribar.core.inference import InferResponse
from tribar.core.tensors import DataType, Tensor

MAX_WAITING_RESPONSES = 16_384
MAX_WAITING_BYTES = 256 << 20
"""How far a reader may fall behind a model that does not wait for it (see ``watch``)."""


def _nothing() -> None:
    """Nobody watches."""


class FutureOutlet:
    """The one answer of a model that is not decoupled."""

    __slots__ = ("_future", "_restored")

    def __init__(
        self,
        future: "asyncio.Future[InferResponse]",
        restored: Callable[[InferResponse], InferResponse] | None,
    ) -> None:
        """``restored`` reshapes outputs, None where there is nothing to do."""
        self._future = future
        self._restored = restored

    def watch(self, taken: Callable[[], None]) -> None:
        """As ``Outlet``: the one response is the last."""

    def respond(self, response: InferResponse) -> None:
        """As ``Outlet``."""
        if not self._future.done():
            self._future.set_result(response if self._restored is None else self._restored(response))

    def fail(self, error: TribarError, *, is_final: bool) -> None:
        """As ``Outlet``."""
        if not self._future.done():
            self._future.set_exception(error)


class StreamOutlet:
    """The answers to a request of any model, read one by one."""

    def __init__(
        self,
        restored: Callable[[InferResponse], InferResponse] | None,
        *,
        make_failed: Callable[[TribarError], InferResponse],
        max_responses: int = MAX_WAITING_RESPONSES,
        max_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        """``make_failed`` dresses an error that is not the last answer as a response."""
        self._restored = restored
        self._make_failed = make_failed
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[InferResponse | TribarError, int]] = deque()
        self._n_bytes = 0
        self._arrived = asyncio.Event()
        self._is_ended = self._is_released = False
        self._taken: Callable[[], None] = _nothing

    def watch(self, taken: Callable[[], None]) -> None:
        """As ``Outlet``."""
        self._taken = taken

    def respond(self, response: InferResponse) -> None:
        """As ``Outlet``."""
        if self._restored is not None:
            response = self._restored(response)
        self._put(response, is_final=response.is_final)

    def fail(self, error: TribarError, *, is_final: bool) -> None:
        """As ``Outlet``."""
        if is_final:
            self._release()
        self._put(error if is_final else self._make_failed(error), is_final=is_final)

    async def next(self) -> InferResponse:
        """The next response. Raises the error that ended the request, ``Overloaded`` where the reader fell behind."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        answer, n_bytes = self._waiting.popleft()
        self._n_bytes -= n_bytes
        if isinstance(answer, TribarError):
            raise answer
        if not self._is_released:
            self._taken()
        return answer

    def _put(self, answer: InferResponse | TribarError, *, is_final: bool) -> None:
        if self._is_ended:
            self._taken()
            return
        n_bytes = sum(map(_n_bytes, answer.outputs)) if isinstance(answer, InferResponse) else 0
        is_over = len(self._waiting) >= self._max_responses or self._n_bytes + n_bytes > self._max_bytes
        if self._waiting and is_over:
            self._release()
            self._taken()
            self._waiting.clear()
            answer, n_bytes, is_final = Overloaded("the reader fell too far behind the model's responses"), 0, True
            self._n_bytes = 0
        self._is_ended = is_final
        self._waiting.append((answer, n_bytes))
        self._n_bytes += n_bytes
        self._arrived.set()

    def _release(self) -> None:
        """What waits may still be read or not, but who sends more need not wait for that."""
        if not self._is_released:
            self._is_released = True
            for _ in self._waiting:
                self._taken()


def _n_bytes(tensor: Tensor) -> int:
    if tensor.datatype is DataType.BYTES:
        return sum(map(len, tensor.data.flat))
    return tensor.data.nbytes
