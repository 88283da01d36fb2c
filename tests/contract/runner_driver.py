"""The smallest engine that can drive a runner: allots rows and blocks, keeps counts, pipelines to the depth."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams, TokenLogprobs, Wants
from tribar.runtime.runner import AddRow, Int32s, Runner, RunnerInfo, StepPlan, StepResult, Ticket, Work

MAX_STEP_TOKENS = 64
Masks = dict[Row, npt.NDArray[np.uint32]]


def int32s(values: Sequence[int]) -> Int32s:
    return np.array(values, dtype=np.int32)


@dataclass(frozen=True)
class Ask:
    """One sequence: ``ids`` are its prompt, ``generated`` what an earlier life of it drew."""

    ids: Sequence[int]
    sampling: SamplingParams = SamplingParams(temperature=0)
    wants: Wants = Wants()
    generated: Sequence[int] = ()


@dataclass
class Got:
    """All that came back for one sequence."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    hidden: list[npt.NDArray[np.float32]] = field(default_factory=list)
    error: str = ""


@dataclass
class _Sequence:
    n_ids: int
    n_computed: int
    n_uncollected: int = 0
    table: list[int] = field(default_factory=list)
    got: Got = field(default_factory=Got)


class RunnerDriver:
    """Queue adds and drops, then ``step``. ``shuffle`` seeds the order in which blocks are handed out."""

    def __init__(self, runner: Runner, info: RunnerInfo, shuffle: int | None = None) -> None:
        self.runner = runner
        self.info = info
        self._free = list(range(info.n_blocks - 1, 0, -1))
        if shuffle is not None:
            np.random.default_rng(shuffle).shuffle(self._free)
        self._live: dict[Row, _Sequence] = {}
        self._flight: deque[tuple[Ticket, list[tuple[Row, _Sequence, bool]]]] = deque()
        self._adds: list[AddRow] = []
        self._drops: list[Row] = []
        self._appends: list[tuple[Row, Int32s]] = []
        self._n_steps = 0

    def add(self, ask: Ask, *, row: Row | None = None, cached: Sequence[int] = ()) -> Row:
        """Queue the sequence; ``cached`` are blocks that hold its first tokens already."""
        taken = row if row is not None else Row(next(r for r in range(self.info.max_rows) if r not in self._live))
        ids = [*ask.ids, *ask.generated]
        self._adds.append(AddRow(taken, int32s(ids), len(ask.ids), ask.sampling, ask.wants))
        self._live[taken] = _Sequence(len(ids), len(cached) * self.info.block_size)
        if cached:
            self._append(taken, list(cached))
        return taken

    def drop(self, *rows: Row, keep_blocks: bool = False) -> list[int]:
        """Queue the drops (nothing may be in flight); returns the blocks, which are free again unless kept."""
        assert not self._flight
        blocks: list[int] = []
        for row in rows:
            self._drops.append(row)
            blocks += self._live.pop(row).table
        if not keep_blocks:
            self._free += blocks
        return blocks

    def table(self, row: Row) -> list[int]:
        return list(self._live[row].table)

    def got(self, row: Row) -> Got:
        return self._live[row].got

    def take_blocks(self, n: int) -> list[int]:
        return [self._free.pop() for _ in range(n)]

    def launch(self, n_tokens: Mapping[Row, int], masks: Masks | None = None) -> None:
        """Launch and sample one step that computes so many tokens of these rows."""
        spans, samples = [], []
        for row, n in n_tokens.items():
            sequence = self._live[row]
            end = sequence.n_computed + n
            is_sampled = end == sequence.n_ids
            self._cover(row, end + (self.info.max_tokens_per_step - 1 if is_sampled else 0))
            spans.append((row, sequence.n_computed, n))
            samples.append(is_sampled)
            sequence.n_computed = end
            if is_sampled:
                sequence.n_ids += 1
                sequence.n_uncollected += 1
        rows, positions, counts = (int32s([span[i] for span in spans]) for i in range(3))
        self._n_steps += 1
        ticket = self.runner.launch(
            StepPlan(
                step=self._n_steps,
                work=Work(rows, positions, counts, np.array(samples, dtype=np.bool_)),
                drop=tuple(self._drops),
                add=tuple(self._adds),
                append=tuple(self._appends),
            )
        )
        self._drops, self._adds, self._appends = [], [], []
        self.runner.sample(ticket, masks)
        self._flight.append((ticket, [(row, self._live[row], s) for row, s in zip(n_tokens, samples, strict=True)]))

    def collect(self) -> StepResult:
        """Collect the oldest step and note what each sequence gained."""
        ticket, flying = self._flight.popleft()
        result = self.runner.collect(ticket)
        for row, (expected_row, sequence, is_sampled) in zip(result.rows, flying, strict=True):
            assert row.row == expected_row
            assert len(row.tokens) == 0 if row.error or not is_sampled else len(row.tokens) >= 1
            sequence.n_uncollected -= is_sampled
            n_extra = max(0, len(row.tokens) - 1)
            sequence.n_ids += n_extra
            sequence.n_computed += n_extra
            got = sequence.got
            got.tokens += row.tokens
            got.logprobs += row.logprobs or []
            got.prompt_logprobs += row.prompt_logprobs or []
            got.error = row.error or got.error
            if row.hidden is not None:
                got.hidden.append(row.hidden)
        return result

    def step(self, n_tokens: Mapping[Row, int], masks: Masks | None = None) -> StepResult:
        """One step alone."""
        self.launch(n_tokens, masks)
        return self.collect()

    def flush(self) -> None:
        """Carry out queued drops and adds in a step without work."""
        self.step({})

    def run(self, rows: Sequence[Row], n_new: int, *, chunk: int = 1 << 20, depth: int | None = None) -> None:
        """Step these rows together, at most ``chunk`` tokens each, until each has ``n_new`` tokens or an error."""
        depth = self.info.depth if depth is None else depth
        while True:
            left = MAX_STEP_TOKENS
            work: dict[Row, int] = {}
            for row in rows:
                sequence = self._live[row]
                n_planned = len(sequence.got.tokens) + sequence.n_uncollected
                n = min(sequence.n_ids - sequence.n_computed, chunk, left)
                if n_planned < n_new and not sequence.got.error and n > 0:
                    work[row] = n
                    left -= n
            if work:
                self.launch(work)
            if not work and not self._flight:
                return
            if len(self._flight) == depth or not work:
                self.collect()

    def generate(self, asks: Sequence[Ask], n_new: int, *, chunk: int = 1 << 20, depth: int | None = None) -> list[Got]:
        """Add, run, drop. Tokens beyond ``n_new`` (k > 1) are cut, as an engine does at max_tokens."""
        rows = [self.add(ask) for ask in asks]
        self.run(rows, n_new, chunk=chunk, depth=depth)
        results = [self.got(row) for row in rows]
        self.drop(*rows)
        self.flush()
        for got in results:
            del got.tokens[n_new:], got.logprobs[n_new:]
        return results

    def _cover(self, row: Row, n_positions: int) -> None:
        n_blocks = -(-min(n_positions, self.info.max_model_len) // self.info.block_size)
        n_missing = n_blocks - len(self._live[row].table)
        if n_missing > 0:
            self._append(row, self.take_blocks(n_missing))

    def _append(self, row: Row, blocks: list[int]) -> None:
        self._live[row].table += blocks
        self._appends.append((row, int32s(blocks)))
