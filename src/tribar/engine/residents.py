"""The sequences that hold a row of the runner and KV blocks, from their start until both have returned."""

from bisect import insort
from collections.abc import Iterable

from tribar.engine.kv.base import KvAllocator
from tribar.engine.rows import RowPool
from tribar.engine.sequence import NO_ROW, Sequence, State


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order


class Residents:
    """Three lists: ``running`` (in order of service), ``held`` and ``leaving``.

    ``held`` have finished but wait for their batch (static batching only). ``leaving`` have given up their row, but a
    launched step still names it; row and blocks return when the last such step is collected.
    """

    def __init__(self, n_rows: int, kv: KvAllocator, holds_finished: bool) -> None:
        self.rows = RowPool(n_rows)
        self.running: list[Sequence] = []
        self.held: list[Sequence] = []
        self.leaving: list[Sequence] = []
        self._kv = kv
        self._holds_finished = holds_finished

    def __len__(self) -> int:
        return len(self.running) + len(self.held) + len(self.leaving)

    @property
    def n_computing(self) -> int:
        """Rows that a step may name: each takes at least one token of its budget."""
        return len(self.running) + len(self.held)

    def all(self) -> list[Sequence]:
        """Everyone, as a new list."""
        return [*self.running, *self.held, *self.leaving]

    def join(self, sequence: Sequence) -> None:
        """Give a sequence that the allocator has admitted a row, and run it."""
        sequence.state = State.RUNNING
        sequence.row = self.rows.take()
        insort(self.running, sequence, key=_order)

    def preempt(self, sequence: Sequence) -> None:
        """Stop a running sequence; it is a waiting one from here on, though it may still be leaving."""
        sequence.state = State.WAITING
        self.running.remove(sequence)
        self._leave(sequence)
        self._retire_batch()

    def finish(self, sequence: Sequence) -> None:
        """End a running sequence: its row leaves, or is held until its batch has finished."""
        self.running.remove(sequence)
        if self._holds_finished:
            self.held.append(sequence)
        else:
            self._leave(sequence)
        self._retire_batch()

    def collected(self, sequence: Sequence) -> None:
        """One launched step less names the row of ``sequence``."""
        sequence.n_in_flight -= 1
        if sequence.is_leaving and sequence.n_in_flight == 0:
            self.leaving.remove(sequence)
            self._release(sequence)

    def check(self, in_flight: Iterable[list[Sequence]]) -> None:
        """Raise ``AssertionError`` where states, counts, rows or blocks contradict the lists.

        ``in_flight`` are the sequences of each launched step.
        """
        everyone = self.all()
        named = [sequence for step in in_flight for sequence in step]
        assert all(sequence.state is State.RUNNING for sequence in self.running), "a running sequence is not"
        assert all(sequence.is_finished for sequence in self.held), "a held sequence is not finished"
        assert all(sequence.is_leaving for sequence in self.leaving), "a leaving sequence is not"
        assert all(sequence in everyone for sequence in named), "a row went while a launched step names it"
        orders = [sequence.order for sequence in self.running]
        assert orders == sorted(orders), "order of service"
        for sequence in everyone:
            assert sequence.n_in_flight == named.count(sequence), "launched steps"
            assert sequence.n_committed <= sequence.n_computed <= sequence.n_total, "token counts"
            assert sequence.n_computed <= sequence.n_slots, "computed beyond its blocks"
        self.rows.check([sequence.row for sequence in everyone])
        self._kv.check(everyone)

    def _retire_batch(self) -> None:
        """Let the held rows go when the last of their batch has ended."""
        if self.held and not self.running:
            for sequence in self.held:
                self._leave(sequence)
            self.held.clear()

    def _leave(self, sequence: Sequence) -> None:
        """Drop the row with the next plan; row and blocks return once no launched step names them."""
        self.rows.drop(sequence.row)
        if sequence.n_in_flight:
            sequence.is_leaving = True
            self.leaving.append(sequence)
        else:
            self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._kv.release(sequence)
        self.rows.free(sequence.row)
        sequence.row = NO_ROW
        sequence.is_leaving = False
        sequence.n_computed = sequence.n_committed = 0
        sequence.n_total = len(sequence.ids)
