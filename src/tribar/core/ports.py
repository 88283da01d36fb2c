"""The ports through which rooms meet. Implementations are bound in ``app``; nobody imports a sibling room."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol

from tribar.core.limits import Demand, Meter, Settlement, Verdict
from tribar.core.requests import Delta, GenerateRequest, ModelCard, Prepared
from tribar.core.usage import UsageCounts, UsageKey


class Clock(Protocol):
    """Monotonic seconds. Pure modules take ``now_s`` as an argument instead."""

    def __call__(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...


class TextGenerator(Protocol):
    """Generates text: the engine client, an upstream, a router, a cache in front of one."""

    def card(self) -> ModelCard:
        """Capabilities and limits. Raises ``Unavailable`` while they are not known yet."""
        ...

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """Count (and, where the tokenizer is here, make) the prompt's ids.

        Raises ``InvalidRequest`` for prompts that cannot be rendered or can never fit.
        Work above a millisecond leaves the event loop.
        """
        ...

    def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """Run it. The last ``Delta`` carries ``finish``; failures raise a ``TribarError``.

        Closing the generator early aborts the request and frees what it held.
        """
        ...


class ModelCatalog(Protocol):
    """The one list of served models, of which ``/v1/models`` and router aliases are views."""

    def list(self) -> Sequence[ModelCard]:
        """Cards of the models that can be asked now."""
        ...

    def get(self, name: str) -> TextGenerator:
        """The generator behind ``name``. Raises ``NotFound`` naming what exists."""
        ...

    def is_ready(self) -> bool:
        """Whether every model that was asked for can serve."""
        ...


class Buckets(Protocol):
    """Counts what subjects use, against limits. Every call is atomic. Raises ``Unavailable`` while the store is away.

    ``ticket`` is the holder of permits: unique for each request.
    """

    async def reserve(self, ticket: str, demands: Sequence[Demand]) -> Verdict:
        """Take all demands (each of another meter), or none of them and say when they could be met."""
        ...

    async def settle(self, ticket: str, settlements: Sequence[Settlement]) -> None:
        """Correct what was reserved by what was used, and give permits back."""
        ...

    async def renew(self, ticket: str, meters: Sequence[Meter]) -> None:
        """Hold the ticket's permits of ``meters`` for another period: they lapse with whoever died holding them."""
        ...


class UsageLedger(Protocol):
    """What tenants have used, kept. Raises ``Unavailable`` while the store is away."""

    async def add(self, batch_id: str, counts: Mapping[UsageKey, UsageCounts]) -> None:
        """Add all of ``counts`` or nothing. A batch whose id was added before changes nothing."""
        ...

    async def totals(self, tenant: str, first: date, last: date) -> Mapping[UsageKey, UsageCounts]:
        """What ``tenant`` used from ``first`` to ``last``, both included, by day and model, in this order."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process as data: ``target`` is run as ``python -m target`` with ``arguments``.

    It is ready when it accepts connections on ``socket_path`` and answers a Hello. ``memory_bytes`` is what it may
    come to hold.
    """

    name: str
    target: str
    arguments: tuple[str, ...]
    socket_path: Path
    cores: int = 1
    memory_bytes: int = 0


class Supervisor(Protocol):
    """Starts processes, restarts them with back-off and says when one ended."""

    async def spawn(self, spec: ProcessSpec) -> None:
        """Start and keep alive. Returns when the process exists, not when it is ready."""
        ...

    async def stop(self, name: str, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after ``grace_s``; it is not restarted."""
        ...

    def on_exit(self, name: str, callback: Callable[[int], Awaitable[None]]) -> None:
        """Call ``callback(exit_code)`` each time the process ends, asked for or not."""
        ...
