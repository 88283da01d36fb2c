"""The persistent rows: their ids and block tables on the device, their counts on the host.

The host knows every count without asking the device (a sampled row gains exactly one id), so the next step can be
prepared while a token is still being drawn; only the token's value stays on the device, where the next step reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tribar.core.errors import Internal, Unsupported
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.core.sampling.reference import GREEDY_BELOW
from tribar.runtime.runner import AddRow, StepPlan
from tribar.runtime.torch.transfer import upload


@dataclass(slots=True)
class RowState:
    """What the host knows of an occupied row. ``n_ids`` counts tokens that are still being drawn too.

    ``error`` is set once a step of the row has failed; the sequence gains nothing from then on.
    """

    n_prompt: int
    n_ids: int
    sampling: SamplingParams
    wants: Wants
    n_blocks: int = 0
    error: str = ""


class Rows:
    """``ids`` [max_rows + 1, max_model_len + 1] and ``tables`` [max_rows + 1, blocks of the longest row], int64.

    The extra last row is the padding row: id 0 at position 0 in the KV cache's sink block.
    """

    def __init__(
        self,
        *,
        max_rows: int,
        max_model_len: int,
        block_size: int,
        sink_block: int,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        self.padding_row = max_rows
        self._max_model_len = max_model_len
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._device = device
        self._states: dict[int, RowState] = {}
        n_columns = max_model_len // block_size + 1
        self.ids = torch.zeros((max_rows + 1, max_model_len + 1), dtype=torch.int64, device=device)
        self.tables = torch.zeros((max_rows + 1, n_columns), dtype=torch.int64, device=device)
        self.tables[max_rows, 0] = sink_block

    def __getitem__(self, row: int) -> RowState:
        state = self._states.get(row)
        if state is None:
            raise Internal(f"row {row} is empty")
        return state

    def apply(self, plan: StepPlan) -> None:
        """Drops, adds and appended blocks, in this order. Raises ``Internal`` for an impossible plan."""
        for row in plan.drop:
            if self._states.pop(row, None) is None:
                raise Internal(f"row {row} is dropped but empty")
        for added in plan.add:
            self._add(added)
        self._write(self.ids, [(added.row, 0, added.ids) for added in plan.add])
        places = []
        for row, blocks in plan.append:
            state = self[row]
            places.append((row, state.n_blocks, blocks))
            state.n_blocks += len(blocks)
            if state.n_blocks > self.tables.shape[1]:
                raise Internal(f"row {row} has more blocks than max_model_len needs")
        self._write(self.tables, places)

    def append_tokens(self, rows: Sequence[int], n_ids: Sequence[int], tokens: Tensor) -> None:
        """Store a drawn token for each row, behind its first ``n_ids`` ids."""
        where = upload(np.array([rows, n_ids], dtype=np.int64), self._device)
        self.ids[where[0], where[1]] = tokens

    def slots(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Where the KV of ``positions`` lies."""
        return self.tables[rows, positions // self._block_size] * self._block_size + positions % self._block_size

    def _add(self, added: AddRow) -> None:
        row, ids = int(added.row), added.ids
        if not 0 <= row < self.padding_row or row in self._states:
            raise Internal(f"row {row} cannot take a sequence: it is occupied or does not exist")
        if added.adapter:
            raise Unsupported(f"the torch runner has no adapters, asked for {added.adapter!r}", param="adapter")
        if not 0 < len(ids) <= self._max_model_len:
            raise Internal(f"row {row} was given {len(ids)} ids; the model takes 1 to {self._max_model_len}")
        if ids.min() < 0 or ids.max() >= self._vocab_size:
            raise Internal(f"row {row} was given an id outside the vocabulary of {self._vocab_size}")
        if added.sampling.seed is None and added.sampling.temperature >= GREEDY_BELOW:
            raise Internal(f"row {row} draws at random but has no seed")
        self._states[row] = RowState(added.n_prompt, len(ids), added.sampling, added.wants)

    def _write(self, target: Tensor, places: Sequence[tuple[int, int, npt.NDArray[np.int32]]]) -> None:
        """Put each array into its row, from its column on, in one transfer."""
        if not places:
            return
        rows = np.concatenate([np.full(len(values), row) for row, _, values in places])
        columns = np.concatenate([np.arange(start, start + len(values)) for _, start, values in places])
        values = np.concatenate([values for _, _, values in places])
        where = upload(np.stack([rows, columns, values]).astype(np.int64), self._device)
        target[where[0], where[1]] = where[2]
