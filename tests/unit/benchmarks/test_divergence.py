"""The measures of accuracy, against their definitions."""

import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.divergence import Reference, Score, log_softmax


def test_log_softmax_is_normalised_and_keeps_differences() -> None:
    logits = np.array([[1000.0, 1001.0, 999.0], [0.0, -1.0, 2.0]], dtype=np.float32)
    got = log_softmax(logits)
    assert np.exp(got).sum(axis=1) == pytest.approx(1)
    assert got[0, 1] - got[0, 0] == pytest.approx(1)


def test_a_score_by_hand() -> None:
    """KL of (1/2, 1/2) || (1/4, 3/4) and of equals; the first has a tie, won by the first id, the second agrees."""
    reference = np.log(np.array([[0.5, 0.5], [0.9, 0.1]]))
    measured = np.log(np.array([[0.25, 0.75], [0.9, 0.1]]))
    score = Score()
    score.add(np.array([0, 1], dtype=np.int32), measured, reference)
    kl = (0.5 * math.log(2) + 0.5 * math.log(2 / 3)) / 2
    assert str(score) == (
        f"KL {kl:.5f}  top-1 50.00%  perplexity {1 / 0.75:.4f} ({0.5 / 0.75 - 1:+.2%} over fp32's {2:.4f})"
    )


def test_a_reference_outlives_its_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 7, (2, 3), dtype=np.int32)
    saved = Reference(ids, rng.standard_normal((2, 3, 7)).astype(np.float32))
    saved.save(tmp_path / "reference.npz")
    loaded = Reference.load(tmp_path / "reference.npz")
    assert np.array_equal(loaded.ids, saved.ids)
    assert np.array_equal(loaded.log_probabilities, saved.log_probabilities)
    assert [window.dtype for _, window in loaded] == [np.float64] * 2
