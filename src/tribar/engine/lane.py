"""Waiting sequences of one priority: a lane for each tenant, and the walk through all lanes in fair order."""

from bisect import bisect_left, insort
from collections.abc import Generator, Iterator
from heapq import heapify, heappop, heappush, heapreplace

from tribar.engine.sequence import Sequence
from tribar.engine.tenants import Tenants


def _place(sequence: Sequence) -> tuple[bool, int]:
    return (sequence.started_s is None, sequence.order[1])


class Lane:
    """One tenant's sequences: those that were preempted in the order of their starts, then the others by arrival.

    ``number`` grows from lane to lane; ``n_tokens`` counts the prompts, ``n_most`` what the answers may have.
    """

    __slots__ = ("n_most", "n_tokens", "number", "sequences", "tenant")

    def __init__(self, tenant: str, number: int) -> None:
        self.tenant = tenant
        self.number = number
        self.sequences: list[Sequence] = []
        self.n_tokens = self.n_most = 0

    def __len__(self) -> int:
        return len(self.sequences)

    def add(self, sequence: Sequence) -> None:
        """Insert at its place."""
        insort(self.sequences, sequence, key=_place)
        self.n_tokens += sequence.n_prompt
        self.n_most += sequence.n_most

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence``, which must be here, out."""
        i = bisect_left(self.sequences, _place(sequence), key=_place)
        assert self.sequences[i] is sequence
        del self.sequences[i]
        self.n_tokens -= sequence.n_prompt
        self.n_most -= sequence.n_most


Entry = tuple[float, int, int, Lane]
"""The counter of a lane's tenant, the lane's number, the index of its next sequence, the lane."""


class PriorityClass:
    """Everyone who waits at one priority: always the first of the tenant that was served least comes next.

    At equal counters it is the lane that is longer there. ``_heap`` has one entry for each lane. Counters only grow,
    so an entry that is out of date is a lower bound, and it is enough to correct the least one.
    """

    def __init__(self, tenants: Tenants) -> None:
        self.lanes: dict[str, Lane] = {}
        self._tenants = tenants
        self._heap: list[Entry] = []
        self._n_lanes = 0

    def __iter__(self) -> Iterator[Sequence]:
        for lane in self.lanes.values():
            yield from lane.sequences

    def add(self, sequence: Sequence) -> None:
        """Insert at its place."""
        lane = self.lanes.get(sequence.tenant)
        if lane is None:
            self._n_lanes += 1
            lane = self.lanes[sequence.tenant] = Lane(sequence.tenant, self._n_lanes)
            heappush(self._heap, self._entry(lane, 0))
            self._compact()
        lane.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence``, which must be here, out."""
        lane = self.lanes[sequence.tenant]
        lane.remove(sequence)
        if not lane:
            del self.lanes[sequence.tenant]

    def walk(self) -> Generator[Sequence]:
        """Everyone in fair order; close it before the class is used otherwise.

        The sequence that came last may be removed, and its tenant charged, before the next is asked for.
        """
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
        return (self._tenants.served(lane.tenant), lane.number, i, lane)
