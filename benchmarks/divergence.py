"""How far one implementation's logits lie from a reference's. Needs numpy alone, so a rival's Python can run it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]


def log_softmax(logits: Float32s) -> Float64s:
    """Per row, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@dataclass(frozen=True)
class Reference:
    """A text in windows, ids [windows, n], and the log-probabilities of every position, [windows, n, vocab]."""

    ids: Int32s
    log_probabilities: Float32s

    def __iter__(self) -> Iterator[tuple[Int32s, Float64s]]:
        for ids, log_probabilities in zip(self.ids, self.log_probabilities, strict=True):
            yield ids, log_probabilities.astype(np.float64)

    def save(self, path: Path) -> None:
        """As .npz: four bytes for each position and id of the vocabulary."""
        with path.open("wb") as file:
            np.savez(file, ids=self.ids, log_probabilities=self.log_probabilities)

    @classmethod
    def load(cls, path: Path) -> "Reference":
        """What ``save`` wrote."""
        with np.load(path, allow_pickle=False) as saved:
            return cls(saved["ids"], saved["log_probabilities"])


class Score:
    """Sums over positions."""

    def __init__(self) -> None:
        self._n = self._n_targets = self._same_top = 0
        self._kl = self._nll = self._reference_nll = 0.0

    def add(self, ids: Int32s, measured: Float64s, reference: Float64s) -> None:
        """One window's log-probabilities."""
        self._n += len(ids)
        self._kl += float((np.exp(reference) * (reference - measured)).sum())
        self._same_top += int((measured.argmax(-1) == reference.argmax(-1)).sum())
        targets = np.arange(len(ids) - 1), ids[1:]
        self._n_targets += len(ids) - 1
        self._nll -= float(measured[targets].sum())
        self._reference_nll -= float(reference[targets].sum())

    def __str__(self) -> str:
        perplexity, reference = (math.exp(nll / self._n_targets) for nll in (self._nll, self._reference_nll))
        return (
            f"KL {self._kl / self._n:.5f}  top-1 {self._same_top / self._n:.2%}  perplexity {perplexity:.4f} "
            f"({perplexity / reference - 1:+.2%} over fp32's {reference:.4f})"
        )
