"""The contract between the model server and what orders a model's requests."""

from collections.abc import Callable
from typing import Final, Protocol

from tribar.core.errors import TribarError
from tribar.core.inference import InferRequest, InferResponse

PATIENCE_S: Final = 300.0
"""A batch that gives no answer for so long is not waited for when its model is unloaded."""


class Outlet(Protocol):
    """Where the answers to one request go. All calls on the event loop; exactly one of them is the final one."""

    def watch(self, taken: Callable[[], None]) -> None:
        """Have ``taken`` called as ``backends.base.Reply`` says."""
        ...

    def respond(self, response: InferResponse) -> None:
        """A response; final where it says so."""
        ...

    def fail(self, error: TribarError, *, is_final: bool) -> None:
        """An error in place of a response."""
        ...


class ModelScheduler(Protocol):
    """Takes checked requests of one model version and answers each through its outlet.

    Pass the same request object nowhere else meanwhile. A scheduler calls no outlet from within ``submit``'s caller
    before ``submit`` has returned, but for a response cache's hit it may.
    """

    def submit(self, request: InferRequest, outlet: Outlet) -> Callable[[], None]:
        """Queue it; returns how to cancel it (idempotent, harmless after the end; the outlet then gets ``Cancelled``).

        Raises ``Overloaded`` where the queue is full, ``InvalidRequest`` for a priority that does not exist and
        ``Unavailable`` once closing; then the outlet is never called.
        """
        ...

    @property
    def n_inside(self) -> int:
        """Requests that have no final answer yet."""
        ...

    async def close(self, patience_s: float = PATIENCE_S) -> None:
        """Refuse new requests, finish those inside, then free the instances. Idempotent.

        Where no answer has come for ``patience_s``, those inside fail with ``Unavailable`` and instances are ended.
        """
        ...
