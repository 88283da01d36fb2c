"""One step in flight: what was computed, on the device, and how it becomes a ``StepResult``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tribar.core.ids import Row
from tribar.core.sampling.reference import NOTHING_ALLOWED
from tribar.runtime.runner import RowResult, StepResult
from tribar.runtime.torch.layout import Item
from tribar.runtime.torch.logprobs import Scored, read, score
from tribar.runtime.torch.rows import RowState
from tribar.runtime.torch.sampler import ALL_FORBIDDEN, NOT_FINITE, Mask, Sampled, sample
from tribar.runtime.torch.transfer import HostCopy, upload

MESSAGES = {
    NOT_FINITE: "the model gave non-finite logits for this row",
    ALL_FORBIDDEN: NOTHING_ALLOWED,
}

Arrays = list[npt.NDArray[np.generic]]


@dataclass(slots=True)
class Step:
    """``items`` and their rows' ``states`` are in the plan's order; ``sampled`` rows keep that order.

    ``logits`` [n_sampled, vocab] and ``normed`` [n_sampled, hidden_size] are None when nobody draws.
    ``prompt_scores`` belong to the items that scored prompt tokens.
    """

    number: int
    items: Sequence[Item]
    states: Sequence[RowState]
    sampled: Sequence[Sampled]
    logits: Tensor | None = None
    normed: Tensor | None = None
    prompt_scores: dict[int, Scored] = field(default_factory=dict)
    is_drawn: bool = False
    _copy: HostCopy | None = None

    def draw(self, masks: dict[Row, Mask], ids: Tensor) -> Tensor | None:
        """Draw and start the results' way to the host. The drawn tokens [n_sampled], on the device."""
        self.is_drawn = True
        tensors: list[Tensor] = []
        tokens = None
        if self.logits is not None and self.normed is not None:
            masked = [replace(row, mask=masks.get(Row(row.row))) for row in self.sampled]
            tokens, errors = sample(self.logits, masked, ids)
            tensors += [tokens, errors, *self._logprobs(self.logits, tokens), *self._hidden(self.normed)]
        for scored in self.prompt_scores.values():
            tensors += scored.tensors()
        self._copy = HostCopy(tensors)
        self.logits = self.normed = None
        return tokens

    def result(self) -> StepResult:
        """Wait for the device and sort its answers by row."""
        arrays = self._copy.wait() if self._copy is not None else []
        results = [RowResult(Row(item.row), []) for item in self.items]
        if self.sampled:
            tokens, errors, arrays = arrays[0], arrays[1], arrays[2:]
            arrays = self._read_logprobs(results, arrays)
            arrays = self._read_hidden(results, arrays)
            for i, token, error in zip(self._sampled_items(), tokens.tolist(), errors.tolist(), strict=True):
                results[i].tokens = [token]
                self.states[i].error = self.states[i].error or MESSAGES.get(error, "")
        for i in self.prompt_scores:
            self._read_prompt(results, arrays[:4], i)
            arrays = arrays[4:]
        for i, state in enumerate(self.states):
            if state.error:
                results[i] = RowResult(results[i].row, [], error=state.error)
        return StepResult(self.number, results)

    def _sampled_items(self) -> list[int]:
        return [i for i, item in enumerate(self.items) if item.is_sampled]

    def _wanting_logprobs(self) -> list[tuple[int, int]]:
        """(place among the sampled, k) of the rows that want them."""
        wants = [self.states[i].wants for i in self._sampled_items()]
        return [(j, want.logprobs) for j, want in enumerate(wants) if want.logprobs is not None]

    def _wanting_hidden(self) -> list[int]:
        return [j for j, i in enumerate(self._sampled_items()) if self.states[i].wants.hidden]

    def _logprobs(self, logits: Tensor, tokens: Tensor) -> list[Tensor]:
        wanting = self._wanting_logprobs()
        if not wanting:
            return []
        index = upload(np.array([j for j, _ in wanting], dtype=np.int64), logits.device)
        return score(logits[index], tokens[index], max(k for _, k in wanting)).tensors()

    def _hidden(self, normed: Tensor) -> list[Tensor]:
        wanting = self._wanting_hidden()
        if not wanting:
            return []
        return [normed[upload(np.array(wanting, dtype=np.int64), normed.device)].float()]

    def _read_logprobs(self, results: list[RowResult], arrays: Arrays) -> Arrays:
        wanting = self._wanting_logprobs()
        if not wanting:
            return arrays
        items = self._sampled_items()
        for place, (j, k) in enumerate(wanting):
            results[items[j]].logprobs = [read(arrays[:4], place, k)]
        return arrays[4:]

    def _read_hidden(self, results: list[RowResult], arrays: Arrays) -> Arrays:
        wanting = self._wanting_hidden()
        if not wanting:
            return arrays
        items = self._sampled_items()
        for place, j in enumerate(wanting):
            results[items[j]].hidden = arrays[0][place].astype(np.float32)
        return arrays[1:]

    def _read_prompt(self, results: list[RowResult], arrays: Arrays, i: int) -> None:
        state = self.states[i]
        scored = [read(arrays, place, state.wants.prompt_logprobs or 0) for place in range(len(arrays[0]))]
        results[i].prompt_logprobs = scored
        if any(math.isnan(entry.logprob) for entry in scored):
            state.error = state.error or MESSAGES[NOT_FINITE]
