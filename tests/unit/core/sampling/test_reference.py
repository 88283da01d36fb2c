"""The reference sampler against brute force that shares no code with it, over many random rows."""

import math
from collections import Counter

import numpy as np
import pytest

from tribar.core.errors import Internal
from tribar.core.sampling.params import SamplingParams
from tribar.core.sampling.philox import uniform
from tribar.core.sampling.reference import candidates, masked_logits, sample_row, token_logprobs, unpack_mask

VOCAB = 37
NO_IDS: list[int] = []


def random_logits(
    seed: int, vocab: int = VOCAB, *, with_ties: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    values = np.random.default_rng(seed).normal(0, 3, vocab)
    return (values.round() if with_ties else values).astype(np.float32)


def draw(logits: np.ndarray[tuple[int], np.dtype[np.float32]], params: SamplingParams, output_index: int = 0) -> int:
    return sample_row(logits, params, output_index=output_index, prompt_ids=NO_IDS, output_ids=NO_IDS)


def kept_by_brute_force(logits: list[float], t: float, min_p: float, top_k: int, top_p: float) -> list[int]:
    """Plain Python, one id at a time, on probabilities that are renormalised after each filter."""
    left = {i: math.exp((x - max(logits)) / t) for i, x in enumerate(logits)}
    ceiling = max(left.values())
    left = {i: w for i, w in left.items() if w >= min_p * ceiling}
    ranked = sorted(left, key=lambda i: (-logits[i], i))
    if 0 < top_k < len(ranked):
        ranked = ranked[:top_k]
    if top_p < 1:
        total = sum(left[i] for i in ranked)
        n, reached = 0, 0.0
        while reached < top_p * total * (1 - 1e-12):
            reached += left[ranked[n]]
            n += 1
        ranked = ranked[:n]
    return sorted(ranked)


@pytest.mark.parametrize("with_ties", [False, True])
def test_filters_equal_brute_force(with_ties: bool) -> None:
    for seed in range(300):
        rng = np.random.default_rng(10_000 + seed)
        logits = random_logits(seed, with_ties=with_ties)
        t, min_p = float(rng.uniform(0.2, 3)), float(rng.choice([0, 0.013, 0.21, 1]))
        top_k, top_p = int(rng.choice([0, 1, 3, 12, 500])), float(rng.choice([0.01, 0.37, 0.81, 0.983, 1]))
        params = SamplingParams(temperature=t, min_p=min_p, top_k=top_k, top_p=top_p, seed=seed)
        kept, weights = candidates(logits.astype(np.float64), params)
        assert kept.tolist() == kept_by_brute_force(logits.tolist(), t, min_p, top_k, top_p)
        assert weights == pytest.approx([math.exp((float(logits[i]) - float(logits.max())) / t) for i in kept])


def test_draw_is_the_inverse_cdf_in_id_order() -> None:
    for seed in range(300):
        logits = random_logits(seed)
        params = SamplingParams(temperature=0.9, top_k=9, seed=seed)
        kept = kept_by_brute_force(logits.tolist(), 0.9, 0, 9, 1)
        weights = [math.exp(float(logits[i]) / 0.9) for i in kept]
        for output_index in range(5):
            left = uniform(seed, output_index) * sum(weights)
            expected = kept[-1]
            for token_id, weight in zip(kept, weights, strict=True):
                if left < weight:
                    expected = token_id
                    break
                left -= weight
            assert draw(logits, params, output_index) == expected


def test_a_draw_on_a_boundary_goes_to_the_upper_id() -> None:
    """4,096 equal weights: u * 4096 is a whole number once in 4,096 draws, and must then be exceeded, not met."""
    on_boundary = [i for i in range(30_000) if (uniform(1, i) * 4096).is_integer()]
    assert len(on_boundary) > 2
    for i in on_boundary:
        assert draw(np.zeros(4096, dtype=np.float32), SamplingParams(seed=1), i) == uniform(1, i) * 4096


def test_frequencies_equal_the_analytic_distribution() -> None:
    """Chi-square over 8 ids, 7 degrees of freedom: 24.3 is the 99.9 % quantile."""
    logits = np.linspace(-1, 1.2, 8, dtype=np.float32)
    expected = np.exp(logits / 0.8) / np.exp(logits / 0.8).sum()
    n = 6000
    params = SamplingParams(temperature=0.8, seed=12345)
    counts = Counter(draw(logits, params, i) for i in range(n))
    observed = np.array([counts[i] for i in range(8)])
    assert ((observed - n * expected) ** 2 / (n * expected)).sum() < 24.3


def test_equal_inputs_draw_equal_tokens_and_change_nothing() -> None:
    logits = random_logits(3)
    before = logits.copy()
    params = SamplingParams(seed=9, repetition_penalty=1.3, logit_bias=((2, -100.0),), top_p=0.9)
    draws = {sample_row(logits, params, output_index=4, prompt_ids=[1, 2], output_ids=[3] * 4) for _ in range(5)}
    assert len(draws) == 1
    assert (logits == before).all()


def test_penalties_equal_brute_force() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        logits = random_logits(seed)
        prompt, output = rng.integers(0, VOCAB, 6).tolist(), rng.integers(0, VOCAB // 4, 9).tolist()
        bias = ((1, 2.5), (30, -4.0))
        params = SamplingParams(
            repetition_penalty=1.7, frequency_penalty=0.4, presence_penalty=-0.9, logit_bias=bias, seed=0
        )
        got = masked_logits(logits, params, output_index=9, prompt_ids=prompt, output_ids=output)
        for token_id in range(VOCAB):
            x = float(logits[token_id]) + dict(bias).get(token_id, 0.0)
            if token_id in prompt + output:
                x = x / 1.7 if x > 0 else x * 1.7
            x -= 0.4 * output.count(token_id)
            x -= -0.9 if token_id in output else 0.0
            assert got[token_id] == pytest.approx(x, abs=1e-12)


def test_grammar_mask_bans_by_bit() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        words = rng.integers(0, 2**32, 2, dtype=np.uint32)
        allowed = [bool(int(words[i // 32]) >> (i % 32) & 1) for i in range(VOCAB)]
        assert unpack_mask(words, VOCAB).tolist() == allowed
        if any(allowed):
            params = SamplingParams(temperature=5, seed=seed)
            token = sample_row(
                random_logits(seed), params, output_index=0, prompt_ids=NO_IDS, output_ids=NO_IDS, mask=words
            )
            assert allowed[token]


def test_ids_beyond_the_mask_are_banned() -> None:
    """A model may have more embedding rows than its grammar engine knows ids."""
    assert unpack_mask(np.array([0xFFFFFFFF], dtype=np.uint32), 40).tolist() == [True] * 32 + [False] * 8


def test_suppressed_until_min_tokens() -> None:
    logits = np.array([0, 9, 0, 5], dtype=np.float32)
    params = SamplingParams(temperature=0, min_tokens=2, suppressed=(1,))
    assert [draw(logits, params, i) for i in range(4)] == [3, 3, 1, 1]


@pytest.mark.parametrize("temperature", [0.0, -0.0, 1e-9, 1e-6])
def test_tiny_temperature_is_argmax_with_ties_to_the_lowest_id(temperature: float) -> None:
    """BUG-037."""
    logits = np.array([1, 7, 3, 7, 7], dtype=np.float32)
    assert {draw(logits, SamplingParams(temperature=temperature, seed=s), s) for s in range(20)} == {1}


@pytest.mark.parametrize(("temperature", "top_p"), [(1e-4, 1.0), (2e-5, 1.0), (1.0, 1e-4)])
def test_nearly_greedy_is_greedy_and_finite(temperature: float, top_p: float) -> None:
    """BUG-037: no NaN from a huge exponent, and top_p always leaves one id."""
    logits = np.array([-3e4, 2e4, 1.9e4], dtype=np.float32)
    assert {draw(logits, SamplingParams(temperature=temperature, top_p=top_p, seed=s)) for s in range(20)} == {1}


@pytest.mark.parametrize("top_k", [0, VOCAB, VOCAB + 1, 10**9])
def test_top_k_beyond_the_vocabulary_is_off(top_k: int) -> None:
    """BUG-038."""
    logits = random_logits(1)
    for seed in range(50):
        assert draw(logits, SamplingParams(seed=seed, top_k=top_k)) == draw(logits, SamplingParams(seed=seed))


def test_top_k_and_ties_keep_the_lowest_ids() -> None:
    kept, _ = candidates(np.array([1.0, 2, 2, 2, 0]), SamplingParams(top_k=2, seed=0))
    assert kept.tolist() == [1, 2]


def test_top_k_does_not_bring_back_banned_ids() -> None:
    kept, _ = candidates(np.array([-np.inf, 1, -np.inf]), SamplingParams(top_k=2, seed=0))
    assert kept.tolist() == [1]


def test_logit_bias_bans_at_minus_100_and_forces_at_plus_100() -> None:
    """BUG-039."""
    for seed in range(100):
        logits = random_logits(seed)
        best = int(logits.argmax())
        assert draw(logits, SamplingParams(seed=seed, temperature=9, logit_bias=((best, -100.0),))) != best
        assert draw(logits, SamplingParams(seed=seed, logit_bias=((5, 100.0),))) == 5
    huge = np.array([500, 0], dtype=np.float32)
    assert draw(huge, SamplingParams(temperature=0, logit_bias=((0, -100.0),))) == 1
    assert draw(huge, SamplingParams(temperature=0, logit_bias=((0, -99.9),))) == 0


def test_logprobs_are_of_the_raw_distribution() -> None:
    for seed in range(50):
        logits = random_logits(seed, with_ties=True)
        total = sum(math.exp(float(x)) for x in logits)
        got = token_logprobs(logits, 4, 6)
        ranked = sorted(range(VOCAB), key=lambda i: (-float(logits[i]), i))[:6]
        assert got.token_id == 4
        assert got.logprob == pytest.approx(float(logits[4]) - math.log(total))
        assert list(got.top_ids) == ranked
        assert got.top_logprobs == pytest.approx([float(logits[i]) - math.log(total) for i in ranked])


def test_logprobs_of_huge_logits_and_of_k_beyond_the_vocabulary() -> None:
    got = token_logprobs(np.array([3e38, -3e38, 0], dtype=np.float32), 0, 99)
    assert got.top_ids == (0, 2, 1)
    assert got.logprob == 0.0
    assert all(math.isfinite(x) and x <= 0 for x in got.top_logprobs)
    assert token_logprobs(np.zeros(3, dtype=np.float32), 1, 0).top_ids == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_logits_fail_the_row(bad: float) -> None:
    logits = random_logits(0)
    logits[7] = bad
    with pytest.raises(Internal, match="non-finite"):
        draw(logits, SamplingParams(temperature=0))
    with pytest.raises(Internal, match="non-finite"):
        token_logprobs(logits, 0, 1)


def test_a_row_of_minus_infinity_fails() -> None:
    with pytest.raises(Internal, match="non-finite"):
        draw(np.full(4, -np.inf, dtype=np.float32), SamplingParams(temperature=0))


def test_forbidding_everything_fails_the_row() -> None:
    none_allowed = np.zeros(2, dtype=np.uint32)
    with pytest.raises(Internal, match="whole vocabulary"):
        sample_row(
            random_logits(0),
            SamplingParams(temperature=0),
            output_index=0,
            prompt_ids=NO_IDS,
            output_ids=NO_IDS,
            mask=none_allowed,
        )


def test_a_drawing_row_without_a_seed_fails() -> None:
    with pytest.raises(Internal, match="seed"):
        draw(random_logits(0), SamplingParams(temperature=1))
