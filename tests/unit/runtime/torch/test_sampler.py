"""The vectorised sampler against the numpy oracle, draw by draw."""

import numpy as np
import pytest
import torch

from tribar.core.errors import Internal
from tribar.core.sampling.params import SamplingParams
from tribar.core.sampling.philox import uniform
from tribar.core.sampling.reference import sample_row, token_logprobs
from tribar.runtime.torch import logprobs, sampler
from tribar.runtime.torch.sampler import ALL_FORBIDDEN, NOT_FINITE, OK, Mask, Sampled
from tribar.runtime.torch.uniforms import uniforms

VOCAB = 211
N_COLUMNS = 40
Rng = np.random.Generator


def random_params(rng: Rng) -> SamplingParams:
    def maybe(chance: float, value: float, neutral: float) -> float:
        return float(value if rng.random() < chance else neutral)

    ids = sorted({int(i) for i in rng.integers(0, VOCAB, 4)})
    biases = tuple((i, float(rng.choice([-100.0, -3.0, 2.5, 60.0]))) for i in ids)
    return SamplingParams(
        temperature=float(rng.choice([0.0, 1e-6, 0.3, 1.0, 2.5])),
        top_p=maybe(0.5, rng.uniform(0.01, 1.0), 1.0),
        top_k=int(maybe(0.5, float(rng.integers(1, VOCAB + 50)), 0)),
        min_p=maybe(0.3, rng.uniform(0.0, 0.5), 0.0),
        presence_penalty=maybe(0.3, rng.uniform(-2, 2), 0.0),
        frequency_penalty=maybe(0.3, rng.uniform(-2, 2), 0.0),
        repetition_penalty=maybe(0.3, rng.uniform(0.5, 2), 1.0),
        logit_bias=biases if rng.random() < 0.3 else (),
        min_tokens=int(rng.integers(0, 10)),
        suppressed=tuple(int(i) for i in rng.integers(0, VOCAB, 3)),
        seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
    )


def random_mask(rng: Rng) -> Mask | None:
    if rng.random() < 0.6:
        return None
    n_words = int(rng.integers(1, -(-VOCAB // 32) + 1))  # short masks forbid what they do not cover
    return rng.integers(1, 2**32, n_words, dtype=np.uint32)


def random_logits(rng: Rng, n: int) -> torch.Tensor:
    logits = rng.standard_normal((n, VOCAB)) * rng.choice([0.1, 3.0, 20.0], (n, 1))
    is_coarse = rng.random((n, 1)) < 0.5  # coarse rows are full of ties
    rounded = np.where(is_coarse, np.round(logits), logits)
    rounded[rng.random((n, VOCAB)) < 0.02] = -np.inf
    return torch.from_numpy(rounded.astype(np.float32))


def expected(logits: torch.Tensor, row: Sampled, ids: torch.Tensor) -> tuple[int | None, int]:
    history = ids[row.row].tolist()
    try:
        token = sample_row(
            logits.numpy(),
            row.sampling,
            output_index=row.output_index,
            prompt_ids=history[: row.n_prompt],
            output_ids=history[row.n_prompt : row.n_ids],
            mask=row.mask,
        )
    except Internal as error:
        return None, NOT_FINITE if "non-finite" in str(error) else ALL_FORBIDDEN
    return token, OK


def assert_agrees(logits: torch.Tensor, rows: list[Sampled], ids: torch.Tensor) -> None:
    tokens, errors = sampler.sample(logits.clone(), rows, ids)
    for i, row in enumerate(rows):
        token, error = expected(logits[i], row, ids)
        assert int(errors[i]) == error
        assert token is None or int(tokens[i]) == token


def random_row(rng: Rng, row: int) -> Sampled:
    n_ids = int(rng.integers(1, N_COLUMNS))
    return Sampled(row, int(rng.integers(1, n_ids + 1)), n_ids, random_params(rng), random_mask(rng))


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_the_oracle(seed: int) -> None:
    """BUG-034, BUG-037, BUG-039: random parameters, masks, ties and histories, mixed in one batch."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    ids = torch.from_numpy(rng.integers(0, VOCAB, (n + 3, N_COLUMNS)))
    rows = [random_row(rng, int(row)) for row in rng.permutation(n + 3)[:n]]
    assert_agrees(random_logits(rng, n), rows, ids)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bad_rows_fail_alone(temperature: float) -> None:
    rng = np.random.default_rng(1)
    logits = random_logits(rng, 5)
    logits[0, 3] = float("nan")
    logits[1, 7] = float("inf")
    logits[2] = float("-inf")
    ids = torch.zeros((5, N_COLUMNS), dtype=torch.int64)
    params = SamplingParams(temperature=temperature, seed=3)
    rows = [Sampled(i, 2, 4, params) for i in range(5)]
    rows[3] = Sampled(3, 2, 4, params, np.zeros(-(-VOCAB // 32), dtype=np.uint32))
    assert_agrees(logits, rows, ids)
    assert sampler.sample(logits, rows, ids)[1].tolist() == [NOT_FINITE] * 3 + [ALL_FORBIDDEN, OK]


def test_slices_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large batch is drawn in slices of bounded size."""
    rng = np.random.default_rng(2)
    ids = torch.from_numpy(rng.integers(0, VOCAB, (9, N_COLUMNS)))
    rows, logits = [random_row(rng, i) for i in range(9)], random_logits(rng, 9)
    whole = sampler.sample(logits, rows, ids)
    monkeypatch.setattr(sampler, "SLICE", 2 * VOCAB)
    monkeypatch.setattr(logprobs, "SLICE", 2 * VOCAB)
    sliced = sampler.sample(logits, rows, ids)
    assert [t.tolist() for t in sliced] == [t.tolist() for t in whole]


def test_uniforms_are_philox() -> None:
    rng = np.random.default_rng(3)
    seeds = np.concatenate([rng.integers(0, 2**64, 50, dtype=np.uint64), np.array([0, 2**64 - 1], dtype=np.uint64)])
    indices = rng.integers(0, 2**20, 52).astype(np.uint64)
    assert uniforms(seeds, indices).tolist() == [uniform(int(s), int(i)) for s, i in zip(seeds, indices, strict=True)]


@pytest.mark.parametrize("k", [0, 1, 5, VOCAB + 9])
def test_logprobs_agree_with_the_oracle(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """BUG-015: distinct ids, ties to the lowest."""
    monkeypatch.setattr(logprobs, "SLICE", 4 * VOCAB)
    rng = np.random.default_rng(k)
    logits = random_logits(rng, 10)
    logits[0, ::2] = -0.0
    logits[0, 1::2] = 0.0
    tokens = rng.integers(0, VOCAB, 10)
    scored = logprobs.score(logits, torch.from_numpy(tokens), k)
    arrays = [tensor.numpy() for tensor in scored.tensors()]
    for i, token in enumerate(tokens.tolist()):
        got, want = logprobs.read(arrays, i, k), token_logprobs(logits[i].numpy(), token, k)
        assert (got.token_id, got.top_ids) == (want.token_id, want.top_ids)
        assert got.logprob == pytest.approx(want.logprob, rel=1e-12)
        assert got.top_logprobs == pytest.approx(want.top_logprobs, rel=1e-12)
