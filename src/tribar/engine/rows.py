"""The runner's rows: which are free, and which the runner has yet to be told to drop."""

from tribar.core.ids import Row


class RowPool:
    """A row goes through take, drop (said in the next plan) and free (when no launched step names it any more).

    A plan's drops precede its adds, so a row dropped and freed since the last plan may be taken by the next one.
    """

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._free = [Row(i) for i in reversed(range(n_rows))]
        self._to_drop: list[Row] = []

    @property
    def n_free(self) -> int:
        """Rows that ``take`` can give."""
        return len(self._free)

    def take(self) -> Row:
        """A free row."""
        return self._free.pop()

    def drop(self, row: Row) -> None:
        """Have the runner forget ``row`` with the next plan."""
        self._to_drop.append(row)

    def free(self, row: Row) -> None:
        """Make ``row`` available again."""
        self._free.append(row)

    def drain_drops(self) -> tuple[Row, ...]:
        """The rows to drop in the plan being made; each is returned once."""
        if not self._to_drop:
            return ()
        drops = tuple(self._to_drop)
        self._to_drop.clear()
        return drops

    def check(self, taken: list[Row]) -> None:
        """Raise ``AssertionError`` unless ``taken`` and the free rows are all rows, once each."""
        rows = sorted([*taken, *self._free])
        assert rows == list(range(self._n_rows)), f"rows lost or taken twice: {rows}"
