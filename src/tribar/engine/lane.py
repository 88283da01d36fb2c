"""Waiting sequences of one priority: a lane for each tenant, and the walk through all lanes in fair order."""

from bisect import bisect_left, insort
from collections.abc import Generator, Iterator
from heapq import heapify, heappop, heappush, heapreplace

from tribar.engine.sequence import Sequence
from tribar.engine.tenants import Tenants


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order


class Lane:
    """Sequences sorted by ``order``. ``n_tokens`` counts their prompts."""

    __slots__ = ("n_tokens", "sequences", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.sequences: list[Sequence] = []
        self.n_tokens = 0

    def __len__(self) -> int:
        return len(self.sequences)

    def add(self, sequence: Sequence) -> None:
        """Insert at its place."""
        insort(self.sequences, sequence, key=_order)
        self.n_tokens += sequence.n_prompt

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence``, which must be here, out."""
        i = bisect_left(self.sequences, sequence.order, key=_order)
        assert self.sequences[i] is sequence
        del self.sequences[i]
        self.n_tokens -= sequence.n_prompt


Entry = tuple[int, tuple[int, int], int, Lane]
"""The counter of a lane's tenant, the order of the lane's next sequence, its index, the lane."""


class PriorityClass:
    """Everyone who waits at one priority.

    First come those that were preempted (they have been paid for and hold nothing), in order; then always the first
    of the tenant that was served least, ties to the earlier arrival.

    ``_heap`` has one entry for each lane. Counters and the order of a lane's first only grow, so an entry that is out
    of date is a lower bound, and it is enough to correct the least one.
    """

    def __init__(self, tenants: Tenants) -> None:
        self.resumed = Lane("")
        self.lanes: dict[str, Lane] = {}
        self._tenants = tenants
        self._heap: list[Entry] = []

    def __len__(self) -> int:
        return len(self.resumed) + sum(map(len, self.lanes.values()))

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.resumed.sequences
        for lane in self.lanes.values():
            yield from lane.sequences

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits here."""
        return not self.resumed and not self.lanes

    def loads(self) -> Iterator[tuple[int, int]]:
        """Requests and prompt tokens of each lane."""
        for lane in (self.resumed, *self.lanes.values()):
            yield len(lane), lane.n_tokens

    def add(self, sequence: Sequence) -> None:
        """Insert at its place; one that has started before goes to the front."""
        if sequence.started_s is not None:
            self.resumed.add(sequence)
            return
        lane = self.lanes.get(sequence.tenant)
        if lane is None:
            lane = self.lanes[sequence.tenant] = Lane(sequence.tenant)
            lane.add(sequence)
            heappush(self._heap, self._entry(lane, 0))
            self._compact()
        else:
            lane.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence``, which must be here, out."""
        if sequence.started_s is not None:
            self.resumed.remove(sequence)
            return
        lane = self.lanes[sequence.tenant]
        lane.remove(sequence)
        if not lane:
            del self.lanes[sequence.tenant]

    def walk(self) -> Generator[Sequence]:
        """Everyone in fair order; close it before the class is used otherwise.

        The sequence that came last may be removed, and its tenant charged, before the next is asked for.
        """
        yield from _remaining(self.resumed)
        passed: list[Entry] = []
        lanes = set[Lane]()
        try:
            while (entry := self._least(passed)) is not None:
                i, lane = entry[2:]
                sequence = lane.sequences[i]
                lanes.add(lane)
                yield sequence
                if i < len(lane) and lane.sequences[i] is sequence:
                    i += 1
                if i < len(lane):
                    heappush(passed, self._entry(lane, i))
        finally:
            for lane in lanes:
                if lane:
                    heappush(self._heap, self._entry(lane, 0))

    def _least(self, passed: list[Entry]) -> Entry | None:
        """Pop the lane to go on with: one not seen in this walk, or one of those ``passed``."""
        first, again = self._top(self._heap), self._top(passed)
        if first is None and again is None:
            return None
        if again is None or (first is not None and first[:2] < again[:2]):
            return heappop(self._heap)
        return heappop(passed)

    def _top(self, heap: list[Entry]) -> Entry | None:
        """The least entry of ``heap``, brought up to date."""
        while heap:
            _, _, i, lane = heap[0]
            if i >= len(lane):
                heappop(heap)
                continue
            entry = self._entry(lane, i)
            if entry[:2] == heap[0][:2]:
                return entry
            heapreplace(heap, entry)
        return None

    def _compact(self) -> None:
        """Drop the entries of lanes that emptied without ever coming to the top, when they are the most."""
        if len(self._heap) > 64 + 2 * len(self.lanes):
            self._heap = [self._entry(lane, 0) for lane in self.lanes.values()]
            heapify(self._heap)

    def _entry(self, lane: Lane, i: int) -> Entry:
        return (self._tenants.served(lane.tenant), lane.sequences[i].order, i, lane)


def _remaining(lane: Lane) -> Iterator[Sequence]:
    """The sequences of a lane from which the one that came last may be removed."""
    i = 0
    while i < len(lane):
        sequence = lane.sequences[i]
        yield sequence
        if i < len(lane) and lane.sequences[i] is sequence:
            i += 1
