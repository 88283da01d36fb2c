"""The ports through which rooms meet. Implementations are bound in ``app``; nobody imports a sibling room."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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


class KeyValueStore(Protocol):
    """Bytes by key, each for a limited time. Full, it forgets what was not used for longest; it may forget anything.

    All methods raise ``Unavailable`` where a server that holds the values does not answer.
    """

    async def get(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """The values, in the order of ``keys``; None where there is none (any more)."""
        ...

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Keep ``value`` for ``ttl_s``, in place of an older one."""
        ...

    async def put_if_absent(self, key: str, value: bytes, ttl_s: float) -> bytes:
        """Keep ``value`` unless there is one already. Returns the one that is there now, whose time starts anew."""
        ...

    async def delete(self, keys: Sequence[str]) -> int:
        """Forget them. Returns how many there were."""
        ...

    def keys(self, prefix: str) -> AsyncIterator[str]:
        """The keys that begin with ``prefix``, in no order; those that come and go meanwhile may be missing."""
        ...


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A vector that was found; ``similarity`` is the cosine, -1 to 1."""

    key: str
    similarity: float


class VectorIndex(Protocol):
    """The nearest of many unit vectors, partition by partition. Full, it forgets; it may forget anything.

    Vectors are float32 of shape (dimension,), of unit length; the dimension is the partition's own, as its first
    vector has it. Work above a millisecond leaves the event loop. All methods raise ``Unavailable`` where a server does
    not answer.
    """

    async def insert(self, partition: str, key: str, vector: NDArray[np.float32]) -> None:
        """Add it, in place of an older vector of ``key``, whatever partition that was in."""
        ...

    async def search(self, partition: str, vector: NDArray[np.float32], k: int) -> Sequence[Neighbour]:
        """At most ``k``, nearest first. An index may miss some that are not near (cosine below a half)."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove them; those that are not there are passed over."""
        ...


@dataclass(frozen=True, slots=True)
class EmbedderCard:
    """What an embedder is. Vectors of different cards must never meet in one index.

    ``fingerprint`` is a hash over the weights (of a remote model: over its address and name); ``max_tokens`` bounds one
    text, special tokens included.
    """

    name: str
    fingerprint: str
    dimension: int
    max_tokens: int

    @property
    def id(self) -> str:
        """One word for name, weights and dimension, to be stored beside every vector."""
        return f"{self.name}@{self.fingerprint}/{self.dimension}"


class Embedder(Protocol):
    """Texts to vectors. A context manager's worth of resources: whoever made it awaits ``close``."""

    def card(self) -> EmbedderCard:
        """Known from the start and never changing."""
        ...

    async def embed(self, texts: Sequence[str], *, truncate: bool = False) -> NDArray[np.float32]:
        """Float32 (len(texts), dimension), each row of unit length; row i depends on text i alone.

        A text over ``max_tokens`` raises ``TooLarge`` naming its index, or loses its end where ``truncate`` is true. An
        empty text raises ``InvalidRequest``. ``Overloaded`` when too many calls wait. Work leaves the event loop.
        """
        ...

    async def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens of all texts together, for billing; an estimate where the tokenizer is elsewhere."""
        ...

    async def close(self) -> None:
        """Free threads and connections. Later calls of ``embed`` raise ``Unavailable``."""
        ...


class AnswerJudge(Protocol):
    """Says whether a cached answer would have served as well as the fresh one: the semantic cache's shadow check."""

    async def is_same(self, question: str, cached: str, fresh: str) -> bool:
        """Whether both answers tell the asker the same. Raises what its embedder or model raises."""


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
