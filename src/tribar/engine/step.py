"""One step while it is being planned, and then until its result is committed."""

import numpy as np

from tribar.core.ids import BlockId, Row
from tribar.engine.grammar.base import Mask
from tribar.engine.pace import StepLoad
from tribar.engine.sequence import Sequence
from tribar.runtime.runner import AddRow, Int32s, StepPlan, Work


class Step:
    """Collects the work of a step; afterwards it remembers which sequence each result belongs to.

    ``budget`` is how many tokens may still be planned. The lists are parallel, one entry per row that computes; the
    first ``n_decodes`` of them are decodes, which attend to ``decode_context`` positions together.
    """

    __slots__ = (
        "_add", "_append", "_constrained", "budget", "decode_context", "n_decodes", "number", "planned_s", "positions",
        "rows", "samples", "sequences", "sizes",
    )  # fmt: skip

    def __init__(self, number: int, budget: int, planned_s: float) -> None:
        self.number = number
        self.budget = budget
        self.planned_s = planned_s
        self.n_decodes = 0
        self.decode_context = 0
        self.sequences: list[Sequence] = []
        self.rows: list[Row] = []
        self.positions: list[int] = []
        self.sizes: list[int] = []
        self.samples: list[bool] = []
        self._add: list[AddRow] = []
        self._append: list[tuple[Row, Int32s]] = []
        self._constrained: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Give ``sequence`` its row, with the ids known so far and its first blocks."""
        ids = np.array(sequence.ids, dtype=np.int32)
        row = AddRow(sequence.row, ids, sequence.n_prompt, sequence.sampling, sequence.wants, sequence.adapter)
        self._add.append(row)
        self.append(sequence, sequence.block_ids)

    def append(self, sequence: Sequence, block_ids: list[BlockId]) -> None:
        """Lengthen the row's block table."""
        if block_ids:
            self._append.append((sequence.row, np.array(block_ids, dtype=np.int32)))

    def compute(self, sequence: Sequence, n_tokens: int) -> None:
        """Plan the next ``n_tokens`` of ``sequence`` and count them as computed from here on."""
        position = sequence.n_computed
        end = position + n_tokens
        is_last = end == sequence.n_total
        self.sequences.append(sequence)
        self.rows.append(sequence.row)
        self.positions.append(position)
        self.sizes.append(n_tokens)
        self.samples.append(is_last)
        self.budget -= n_tokens
        sequence.n_computed = end
        sequence.n_in_flight += 1
        if is_last:
            sequence.n_total += 1
            if sequence.constraint is not None:
                self._constrained.append(sequence)

    def masks(self) -> dict[Row, Mask]:
        """What the rows that draw in this step may draw, where a grammar says so. To be asked before the next plan.

        A finished row that goes on for its batch's sake has nothing to obey any more.
        """
        return {
            sequence.row: sequence.constraint.mask()
            for sequence in self._constrained
            if sequence.constraint is not None and not sequence.is_finished
        }

    def end_decodes(self) -> None:
        """What is planned so far are the decodes."""
        self.n_decodes = len(self.rows)
        self.decode_context = sum(self.positions)

    def load(self) -> StepLoad:
        """What this step computes."""
        chunks = zip(self.positions[self.n_decodes :], self.sizes[self.n_decodes :], strict=True)
        context = sum(size * (position + size / 2) for position, size in chunks)
        return StepLoad(self.n_decodes, sum(self.sizes) - self.n_decodes, self.decode_context, context)

    def plan(self, drop: tuple[Row, ...]) -> StepPlan:
        """The plan for the runner; its arrays are its own."""
        work = Work(
            np.array(self.rows, dtype=np.int32),
            np.array(self.positions, dtype=np.int32),
            np.array(self.sizes, dtype=np.int32),
            np.array(self.samples, dtype=np.bool_),
        )
        return StepPlan(self.number, work, drop, tuple(self._add), tuple(self._append))
