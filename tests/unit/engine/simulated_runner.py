"""A runner that computes nothing but remembers everything, to catch a scheduler that shares or frees wrongly.

Every KV slot holds a hash of the whole prefix up to its token (and of the adapter). A step reads all slots before its
position and compares them with the row's ids, so a block with foreign, stale, moved or unwritten content is noticed
at once. The next token is a function of that hash: any mistake also changes the text.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from tribar.core.ids import Row
from tribar.runtime.runner import AddRow, RowResult, RunnerInfo, StepPlan, StepResult

EMPTY = -1


def extend_hash(prefix_hash: int, token: int) -> int:
    return (prefix_hash * 1_000_003 + token + 1) % (2**61 - 1)


def hashes_of(ids: Iterable[int], adapter: str) -> list[int]:
    hashes = []
    value = int.from_bytes(b"seed" + adapter.encode(), "big")
    for token in ids:
        value = extend_hash(value, token)
        hashes.append(value)
    return hashes


def draw(prefix_hash: int, vocab_size: int) -> int:
    return (prefix_hash >> 11) % vocab_size


def lone_run(
    prompt: list[int], vocab_size: int, max_tokens: int, stop_ids: Iterable[int], max_model_len: int, adapter: str = ""
) -> list[int]:
    """What a request yields alone: its output, a stop token included."""
    value = hashes_of(prompt, adapter)[-1]
    output: list[int] = []
    while len(output) < max_tokens and len(prompt) + len(output) < max_model_len:
        token = draw(value, vocab_size)
        value = extend_hash(value, token)
        output.append(token)
        if token in stop_ids:
            break
    return output


@dataclass(eq=False)
class SimulatedRow:
    ids: list[int]
    hashes: list[int]
    table: list[int] = field(default_factory=list)


class SimulatedRunner:
    def __init__(self, info: RunnerInfo, max_model_len: int, budget: int, rng: Random, error_rate: float = 0.0) -> None:
        self.info = info
        self.max_model_len = max_model_len
        self.budget = budget
        self.error_rate = error_rate
        self.n_computed = 0
        self.rows: dict[int, SimulatedRow] = {}
        self._rng = rng
        self._slots = np.full((info.n_blocks, info.block_size), EMPTY, dtype=np.int64)
        self._in_flight: deque[tuple[list[SimulatedRow], StepResult]] = deque()

    @property
    def n_in_flight(self) -> int:
        return len(self._in_flight)

    def launch(self, plan: StepPlan) -> None:
        assert len(self._in_flight) < self.info.depth
        for row in plan.drop:
            del self.rows[row]
        for add in plan.add:
            self._add(add)
        for row, block_ids in plan.append:
            self._append(self.rows[row], block_ids.tolist())
        assert 0 < plan.work.n_tokens.sum() <= self.budget, "token budget"
        numbers = plan.work.rows.tolist()
        assert len(set(numbers)) == len(numbers), "a row computes twice in one step"
        readers = self._readers()
        result = StepResult(plan.step)
        work = plan.work
        sizes = zip(numbers, work.positions.tolist(), work.n_tokens.tolist(), work.samples.tolist(), strict=True)
        for number, position, n_tokens, samples in sizes:
            result.rows.append(self._compute(number, position, n_tokens, samples, readers))
        self._in_flight.append(([self.rows[number] for number in numbers], result))

    def collect(self) -> StepResult:
        return self._in_flight.popleft()[1]

    def _add(self, add: AddRow) -> None:
        assert add.row not in self.rows, "row in use"
        assert 0 <= add.row < self.info.max_rows
        ids = add.ids.tolist()
        assert 0 < add.n_prompt <= len(ids)
        self.rows[add.row] = SimulatedRow(ids, hashes_of(ids, add.adapter))

    def _append(self, row: SimulatedRow, block_ids: list[int]) -> None:
        assert all(0 < block_id < self.info.n_blocks for block_id in block_ids)
        row.table += block_ids
        assert len(set(row.table)) == len(row.table), "a block is twice in one table"

    def _readers(self) -> dict[int, list[SimulatedRow]]:
        """Who may still read a block: rows now, and rows of steps in flight."""
        readers: dict[int, list[SimulatedRow]] = {}
        everyone = [*self.rows.values(), *(row for rows, _ in self._in_flight for row in rows)]
        for row in set(everyone):
            for block_id in row.table:
                readers.setdefault(block_id, []).append(row)
        return readers

    def _compute(
        self, number: int, position: int, n_tokens: int, samples: bool, readers: dict[int, list[SimulatedRow]]
    ) -> RowResult:
        row = self.rows[number]
        end = position + n_tokens
        assert n_tokens > 0
        assert end <= len(row.ids), "work beyond the known ids"
        assert samples == (end == len(row.ids))
        lookahead = self.info.max_tokens_per_step - 1
        covered = min(end + lookahead * samples, self.max_model_len)
        assert covered <= len(row.table) * self.info.block_size, "the block table is too short"
        size = self.info.block_size
        for block_id in row.table[position // size : (covered - 1) // size + 1]:
            assert readers[block_id] == [row], "a block that another row reads would be written"
        read = self._slots[row.table].reshape(-1)[:position].tolist()
        assert read == row.hashes[:position], "KV of other tokens under the row's prefix"
        for p in range(position, covered):
            self._write(row, p, row.hashes[p] if p < end else EMPTY - 1)
        self.n_computed += n_tokens
        tokens = self._sample(row, covered) if samples else []
        if self._rng.random() < self.error_rate:  # the row's next step may be in flight: its state goes on
            return RowResult(Row(number), [], error="non-finite logits")
        return RowResult(Row(number), tokens)

    def _sample(self, row: SimulatedRow, covered: int) -> list[int]:
        """Draw 1..k tokens; the KV of all but the last is computed as they are accepted."""
        start = len(row.ids)
        tokens = []
        for _ in range(self._rng.randint(1, covered - start + 1)):
            token = draw(row.hashes[-1], self.info.vocab_size)
            tokens.append(token)
            row.ids.append(token)
            row.hashes.append(extend_hash(row.hashes[-1], token))
        for p in range(start, len(row.ids) - 1):
            self._write(row, p, row.hashes[p])
        return tokens

    def _write(self, row: SimulatedRow, position: int, value: int) -> None:
        size = self.info.block_size
        self._slots[row.table[position // size], position % size] = value
