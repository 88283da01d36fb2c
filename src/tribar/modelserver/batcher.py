"""Which requests share a batch, and when: the policy of Triton's dynamic batcher.

Pure: no asyncio, clock, I/O or threads. Time is an argument, in nanoseconds of any clock that never steps back, so the
server and a simulator run the same code.

A batch is formed when an instance is free to run it. The queue is read in order (most urgent level first, first come
first served inside a level, requests of a level whose time ran out under DELAY after the others of that level), and a
batch is always a prefix of it: reading ends where the next request has another ``key`` or would pass
``max_batch_size``. Of that prefix:

- the largest part whose size is a preferred one is run at once; where the prefix passes the largest preferred size
  without hitting one, the part that stays below it;
- else the prefix waits until its oldest request is ``max_queue_delay_ns`` old, unless it cannot grow;
- once that age is reached, preferred sizes count no more: the whole prefix runs.

Source: Triton's model configuration documentation ("Dynamic Batcher", ``ModelQueuePolicy``) and the behaviour of 2.51.
"""

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tribar.core.errors import InvalidRequest, Overloaded

ItemT = TypeVar("ItemT")

_SPARE_DEADLINES = 64
"""Deadlines of requests that left the queue early are swept once they outnumber the others by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """One level of the queue. 0 is no timeout, and no bound.

    A request's own timeout counts where ``allows_timeout_override`` and only if it is shorter than the default (so
    never where there is no default). A request whose time ran out is refused, or under ``delays_expired`` goes behind
    the others of its level.
    """

    default_timeout_ns: int = 0
    allows_timeout_override: bool = False
    delays_expired: bool = False
    max_queue_size: int = 0

    def timeout_ns(self, own_ns: int) -> int:
        """How long a request that asks for ``own_ns`` may wait; 0 is for ever."""
        if self.allows_timeout_override and 0 < own_ns < self.default_timeout_ns:
            return own_ns
        return self.default_timeout_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingPolicy:
    """Without preferred sizes the only one is ``max_batch_size``. ``n_levels`` 0: requests have no priority.

    Where not ``shares_batches``, every request is a batch of its own (a model without ``dynamic_batching``).
    ``queue_policies`` are those of single levels, ``queue_policy`` is everybody else's.
    """

    max_batch_size: int = 1
    shares_batches: bool = True
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_ns: int = 0
    n_levels: int = 0
    default_level: int = 0
    queue_policy: QueuePolicy = field(default_factory=QueuePolicy)
    queue_policies: Mapping[int, QueuePolicy] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Queued(Generic[ItemT]):
    """A request in the queue. Its batch size is ``size``; only requests with equal ``key`` share a batch."""

    item: ItemT
    size: int
    key: Hashable
    level: int
    enqueued_ns: int
    deadline_ns: int = 0
    is_delayed: bool = False
    is_waiting: bool = True


@dataclass(slots=True)
class _Prefix:
    """What was read of the queue when no batch was due: all of it, ``size`` in sum, and due at ``due_ns``."""

    size: int
    key: Hashable
    level: int
    due_ns: int


class _Level(Generic[ItemT]):
    """The requests of one priority: those in time, then those whose time ran out."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.in_time: OrderedDict[Queued[ItemT], None] = OrderedDict()
        self.delayed: OrderedDict[Queued[ItemT], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.in_time) + len(self.delayed)

    def __iter__(self) -> Iterator[Queued[ItemT]]:
        yield from self.in_time
        yield from self.delayed

    def remove(self, queued: Queued[ItemT]) -> None:
        del (self.delayed if queued.is_delayed else self.in_time)[queued]


class Batcher(Generic[ItemT]):
    """The queue of one model version. Not safe for threads."""

    def __init__(self, policy: BatchingPolicy) -> None:
        self._policy = policy
        self._preferred = frozenset(policy.preferred_batch_sizes or (policy.max_batch_size,))
        self._max_preferred = max(self._preferred)
        self._levels: dict[int, _Level[ItemT]] = {
            level: _Level(policy.queue_policies.get(level, policy.queue_policy))
            for level in (range(1, policy.n_levels + 1) if policy.n_levels else (0,))
        }
        self._deadlines: list[tuple[int, int, Queued[ItemT]]] = []
        self._n_deadlines_made = 0
        self._n_deadlines_live = 0
        self._n_waiting = 0
        self._prefix: _Prefix | None = None

    def __len__(self) -> int:
        return self._n_waiting

    def enqueue(
        self, item: ItemT, *, now_ns: int, size: int = 1, key: Hashable = None, priority: int = 0, timeout_ns: int = 0
    ) -> Queued[ItemT]:
        """Append a request to its level; ``priority`` 0 is the default one.

        Raises ``Overloaded`` where the level is full, and ``InvalidRequest`` for a priority that does not exist or a
        request that no batch can hold.
        """
        level_id = self._level_of(priority)
        level = self._levels[level_id]
        if size > self._policy.max_batch_size:
            raise InvalidRequest(f"batch size {size} is over the model's max_batch_size {self._policy.max_batch_size}")
        if 0 < level.policy.max_queue_size <= len(level):
            raise Overloaded("Exceeds maximum queue size")
        queued = Queued(item, size, key, level_id, now_ns)
        timeout_ns = level.policy.timeout_ns(timeout_ns)
        if timeout_ns:
            self._watch(queued, now_ns + timeout_ns)
        level.in_time[queued] = None
        self._n_waiting += 1
        self._extend_prefix(queued, level)
        return queued

    def cancel(self, queued: Queued[ItemT]) -> bool:
        """Take it out of the queue; False where it has left already."""
        if not queued.is_waiting:
            return False
        self._leave(queued)
        self._prefix = None
        return True

    def expire(self, now_ns: int) -> list[Queued[ItemT]]:
        """Those refused because their time has run out, the earliest first; DELAYed ones go behind their level.

        Call it before ``take`` with the same time.
        """
        refused: list[Queued[ItemT]] = []
        while self._deadlines and (self._deadlines[0][0] <= now_ns or not _is_live(self._deadlines[0][2])):
            _, _, queued = heapq.heappop(self._deadlines)
            if not _is_live(queued):
                continue
            self._prefix = None
            level = self._levels[queued.level]
            if level.policy.delays_expired:
                level.remove(queued)
                queued.is_delayed = True
                level.delayed[queued] = None
                self._n_deadlines_live -= 1
            else:
                self._leave(queued)
                refused.append(queued)
        return refused

    def take(self, now_ns: int) -> list[Queued[ItemT]]:
        """The batch that a free instance should run now; empty when it should wait."""
        if not self.may_be_due(now_ns):
            return []
        batch = self._form(now_ns)
        for queued in batch:
            self._leave(queued)
        return batch

    def next_ns(self, *, can_run: bool) -> int | None:
        """When to look again if nothing happens before; None: never. ``can_run``: an instance is free.

        Ask after ``expire``, and after ``take`` where an instance is free.
        """
        while self._deadlines and not _is_live(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        deadline_ns = self._deadlines[0][0] if self._deadlines else None
        if not can_run or self._prefix is None:
            return deadline_ns
        return self._prefix.due_ns if deadline_ns is None else min(deadline_ns, self._prefix.due_ns)

    def may_be_due(self, now_ns: int) -> bool:
        """False where ``take`` would surely give nothing; cheap."""
        return self._n_waiting > 0 and (self._prefix is None or now_ns >= self._prefix.due_ns)

    def check(self) -> None:
        """Assert that counts, places and marks agree."""
        waiting = [queued for level in self._levels.values() for queued in level]
        assert len(waiting) == self._n_waiting
        assert all(queued.is_waiting for queued in waiting)
        for number, level in self._levels.items():
            assert all(queued.level == number for queued in level)
            assert all(queued.is_delayed for queued in level.delayed)
            assert not any(queued.is_delayed for queued in level.in_time)
            assert not 0 < level.policy.max_queue_size < len(level)
            times = [queued.enqueued_ns for queued in level.in_time]
            assert times == sorted(times)
        watched = [queued for _, _, queued in self._deadlines if _is_live(queued)]
        assert sorted(map(id, watched)) == sorted(id(queued) for queued in waiting if _is_live(queued))
        assert len(watched) == self._n_deadlines_live
        assert len(self._deadlines) <= 2 * self._n_deadlines_live + _SPARE_DEADLINES
        if self._prefix is not None:
            assert self._prefix.size == sum(queued.size for queued in waiting)
            assert {queued.key for queued in waiting} == {self._prefix.key}

    def _level_of(self, priority: int) -> int:
        n_levels = self._policy.n_levels
        if priority < 0 or 0 < n_levels < priority:
            raise InvalidRequest(f"priority {priority} is not one of 0 (default) to {n_levels}", param="priority")
        return (priority or self._policy.default_level) if n_levels else 0

    def _watch(self, queued: Queued[ItemT], deadline_ns: int) -> None:
        queued.deadline_ns = deadline_ns
        self._n_deadlines_made += 1
        self._n_deadlines_live += 1
        heapq.heappush(self._deadlines, (deadline_ns, self._n_deadlines_made, queued))

    def _leave(self, queued: Queued[ItemT]) -> None:
        if _is_live(queued):
            self._n_deadlines_live -= 1
        self._levels[queued.level].remove(queued)
        queued.is_waiting = False
        self._n_waiting -= 1
        if len(self._deadlines) > 2 * self._n_deadlines_live + _SPARE_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if _is_live(entry[2])]
            heapq.heapify(self._deadlines)

    def _in_order(self) -> Iterator[Queued[ItemT]]:
        for level in self._levels.values():
            yield from level

    def _form(self, now_ns: int) -> list[Queued[ItemT]]:
        chosen: list[Queued[ItemT]] = []
        size = n_best = 0
        can_grow = True
        for queued in self._in_order():
            total = size + queued.size
            if chosen:
                if total > self._max_preferred and n_best == 0:
                    n_best = len(chosen)
                if total > self._policy.max_batch_size or not self._may_share(queued.key, chosen[0].key):
                    can_grow = False
                    break
            chosen.append(queued)
            size = total
            if size in self._preferred:
                n_best = len(chosen)
        if self._policy.max_queue_delay_ns == 0:
            return chosen[:n_best] if n_best else chosen
        due_ns = min(queued.enqueued_ns for queued in chosen) + self._policy.max_queue_delay_ns
        is_late = now_ns >= due_ns
        if n_best and not is_late:
            chosen = chosen[:n_best]
        elif can_grow and size < self._max_preferred and not is_late:
            self._prefix = _Prefix(size, chosen[0].key, chosen[-1].level, due_ns)
            return []
        self._prefix = None
        return chosen

    def _may_share(self, key: Hashable, other: Hashable) -> bool:
        return self._policy.shares_batches and key == other

    def _extend_prefix(self, queued: Queued[ItemT], level: _Level[ItemT]) -> None:
        """Where the new request comes last and still makes no batch, the prefix need not be read again."""
        prefix = self._prefix
        if prefix is None:
            return
        size = prefix.size + queued.size
        is_last = queued.level >= prefix.level and not level.delayed
        is_short = size < self._max_preferred and size not in self._preferred
        if is_last and is_short and self._may_share(queued.key, prefix.key):
            prefix.size, prefix.level = size, queued.level
        else:
            self._prefix = None


def _is_live(queued: Queued[ItemT]) -> bool:
    return queued.is_waiting and queued.deadline_ns > 0 and not queued.is_delayed
