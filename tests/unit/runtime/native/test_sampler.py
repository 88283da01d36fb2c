"""The native sampler against the numpy reference: the same ids, draw by draw, over all parameters."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tribar.core.errors import Internal
from tribar.core.sampling import SamplingParams, sample_row, token_logprobs, uniform
from tribar.runtime.native._native import kernels, sampling

Floats = npt.NDArray[np.float32]
Masks = npt.NDArray[np.uint32]

LEVELS = kernels.levels()


@dataclass(frozen=True)
class Case:
    """One row that is to be sampled."""

    logits: Floats
    params: SamplingParams
    output_index: int = 0
    prompt: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    mask: Masks | None = None


def wanted(case: Case) -> tuple[int, str]:
    try:
        token = sample_row(
            case.logits,
            case.params,
            output_index=case.output_index,
            prompt_ids=case.prompt,
            output_ids=case.output,
            mask=case.mask,
        )
    except Internal as error:
        return -1, error.message
    return token, ""


def spec_of(params: SamplingParams) -> sampling.SamplingSpec:
    names = [name for name in params.__slots__ if name != "seed"]
    return sampling.SamplingSpec(**{name: getattr(params, name) for name in names}, seed=params.seed or 0)


def sampled(case: Case, level: str = "") -> tuple[int, str, bool]:
    ids = np.array(case.prompt + case.output, np.int32)
    counts = sampling.TokenCounts(ids, len(case.prompt), len(ids) + 1)
    sampler = sampling.Sampler(len(case.logits), level)
    return sampler.sample(case.logits, spec_of(case.params), counts, case.output_index, case.mask)


def random_logits(rng: np.random.Generator, vocab: int) -> Floats:
    """Smooth, peaked, full of ties, or with impossible tokens."""
    logits = rng.normal(0, rng.choice([0.1, 1, 3, 8]), vocab)
    kind = rng.integers(0, 5)
    if kind == 1:
        logits = logits.round()
    elif kind == 2:
        logits[rng.random(vocab) < 0.4] = -np.inf
        logits[rng.integers(vocab)] = 1.0
    elif kind == 3:
        logits[rng.integers(0, vocab, 3)] += 12
    elif kind == 4:
        logits = np.full(vocab, logits[0])
    return logits.astype(np.float32)


def random_mask(rng: np.random.Generator, vocab: int) -> Masks:
    words = rng.integers(0, 2**32, -(-vocab // 32), np.uint32)
    words[rng.random(len(words)) < 0.3] = 0xFFFFFFFF
    words[rng.random(len(words)) < 0.3] = 0
    return words[: len(words) - int(rng.random() < 0.2)]


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    vocab = int(rng.choice([1, 2, 7, 33, 255, 256, 257, 600, 3000]))

    def some(likely: Any, otherwise: Any, share: float = 0.5) -> Any:
        return likely if rng.random() < share else otherwise

    bias = {int(i): float(rng.choice([-200, -100, -99, -3, 0.5, 4, 100])) for i in rng.integers(0, vocab, 4)}
    params = SamplingParams(
        temperature=float(rng.choice([0, 1e-6, 1e-4, 0.2, 0.7, 1, 1.5, 20])),
        top_p=float(some(1, rng.choice([1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 1 - 1e-12]))),
        top_k=int(some(0, rng.choice([1, 2, 3, 12, 50, vocab - 1, vocab, 10**6]))),
        min_p=float(some(0, rng.choice([1e-9, 0.01, 0.1, 0.9, 1]), 0.6)),
        presence_penalty=float(some(0, rng.normal(), 0.7)),
        frequency_penalty=float(some(0, rng.normal(), 0.7)),
        repetition_penalty=float(some(1, rng.uniform(0.5, 2), 0.7)),
        logit_bias=some((), tuple(sorted(bias.items())), 0.7),
        min_tokens=int(some(0, 5)),
        suppressed=tuple(sorted({int(i) for i in rng.integers(0, vocab, 2)})),
        seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
    )
    return Case(
        random_logits(rng, vocab),
        params,
        output_index=int(rng.integers(0, 10)),
        prompt=rng.integers(0, vocab, int(rng.integers(0, 40))).tolist(),
        output=rng.integers(0, vocab, int(rng.integers(0, 40))).tolist(),
        mask=some(None, random_mask(rng, vocab), 0.7),
    )


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.long) for part in range(2, 8))])
def test_equals_the_reference_draw_by_draw(part: int) -> None:
    """BUG-034, BUG-037, BUG-038, BUG-039: 8,000 rows over all parameters, each on one level in turn."""
    failures = 0
    for seed in range(part * 1000, (part + 1) * 1000):
        case = random_case(seed)
        answer = wanted(case)
        failures += answer[0] < 0
        assert sampled(case, LEVELS[seed % len(LEVELS)])[:2] == answer, f"seed {seed}"
    assert failures < 300


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_draws_the_same(level: str) -> None:
    for seed in range(20_000, 20_300):
        case = random_case(seed)
        assert sampled(case, level)[:2] == wanted(case), f"seed {seed}"


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.6),
        SamplingParams(temperature=1.6),
        SamplingParams(top_p=0.95),
        SamplingParams(top_p=0.5, temperature=0.8),
        SamplingParams(top_p=0.95, temperature=1.8),
        SamplingParams(top_k=50),
        SamplingParams(top_k=40, top_p=0.9, min_p=0.02),
        SamplingParams(min_p=0.05),
        SamplingParams(repetition_penalty=1.1, top_p=0.95),
        SamplingParams(presence_penalty=0.5, logit_bias=((7, 3.0), (40_000, -100.0))),
    ],
    ids=lambda params: ",".join(f"{n}={getattr(params, n)}" for n in params.__slots__ if getattr(params, n))[:40],
)
def test_a_real_vocabulary_seldom_needs_the_exact_path(params: SamplingParams) -> None:
    """49,152 logits shaped like a language model's: a few likely ids over a broad floor."""
    vocab, exact = 49_152, 0
    sampler = sampling.Sampler(vocab)
    prompt = np.random.default_rng(0).integers(0, vocab, 300).tolist()
    counts = sampling.TokenCounts(np.array(prompt, np.int32), len(prompt), 400)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        logits = rng.normal(-2, 2.2, vocab).astype(np.float32)
        logits[rng.integers(0, vocab, 30)] += rng.exponential(6, 30).astype(np.float32)
        case = Case(logits, replace(params, seed=seed), output_index=seed, prompt=prompt)
        token, error, was_exact = sampler.sample(logits, spec_of(case.params), counts, seed)
        assert (token, error) == wanted(case)
        exact += was_exact
    assert exact <= 20


def test_undecided_draws_take_the_exact_path() -> None:
    """Equal weights put boundaries exactly where some draws land (as in the reference's own test)."""
    logits = np.zeros(4096, np.float32)
    sampler, spec = sampling.Sampler(4096), sampling.SamplingSpec(seed=1)
    on_boundary = [i for i in range(30_000) if (uniform(1, i) * 4096).is_integer()]
    assert len(on_boundary) > 2
    for i in on_boundary:
        assert sampler.sample(logits, spec, None, i) == (int(uniform(1, i) * 4096), "", True)


@pytest.mark.parametrize("n_equal", [1, 2, 3, 5, 10, 256, 300, 1000])
@pytest.mark.parametrize("top_p", [0.1, 0.2, 0.25, 0.3, 0.5, 0.6, 0.7, 0.9])
def test_top_p_on_equal_weights_cuts_where_the_reference_cuts(n_equal: int, top_p: float) -> None:
    """Boundaries that are met exactly: nothing but the specification's own arithmetic may decide them."""
    logits = np.full(1000, -np.inf, np.float32)
    logits[np.random.default_rng(n_equal).permutation(1000)[:n_equal]] = 1.5
    for seed in range(20):
        case = Case(logits, SamplingParams(top_p=top_p, seed=seed))
        assert sampled(case)[:2] == wanted(case)


@pytest.mark.parametrize("top_k", [1, 2, 3, 5, 255, 256, 257, 511, 999])
def test_top_k_through_ties_keeps_the_lowest_ids(top_k: int) -> None:
    """BUG-038."""
    for seed in range(40):
        logits = np.random.default_rng(seed).integers(0, 4, 1000).astype(np.float32)
        case = Case(logits, SamplingParams(top_k=top_k, seed=seed, temperature=5))
        assert sampled(case)[:2] == wanted(case)


def test_scores_that_only_the_division_makes_equal() -> None:
    """Penalised scores are fp64; two that differ in the last place may be equal once divided by the temperature."""
    logits = np.array([1, 1, 1, 0.5], np.float32)
    for seed in range(200):
        bias = ((0, 0.3 - 0.1), (1, 0.2), (2, math.nextafter(0.2, 1)))
        case = Case(logits, SamplingParams(top_k=1 + seed % 3, temperature=3.3, logit_bias=bias, seed=seed))
        assert sampled(case)[:2] == wanted(case)


@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e7, 1e30, 3e38])
@pytest.mark.parametrize("temperature", [2e-5, 1e-3, 1, 1e3, 1e30])
def test_extreme_logits_and_temperatures(scale: float, temperature: float) -> None:
    """BUG-037: finite answers where exponents are huge, equal to the reference's."""
    for seed in range(12):
        logits = (np.random.default_rng(seed).uniform(-1, 1, 500) * scale).astype(np.float32)
        for change in ({}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 7}, {"logit_bias": ((3, 50.0),)}):
            case = Case(logits, replace(SamplingParams(temperature=temperature, seed=seed), **change))
            assert sampled(case)[:2] == wanted(case)


@pytest.mark.parametrize("vocab", [1, 16, 255, 256, 1000])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.nan])
@pytest.mark.parametrize("level", LEVELS)
def test_non_finite_logits_fail_the_row(level: str, bad: float, vocab: int) -> None:
    """Wherever they stand, also on an id that is banned."""
    for at in {0, vocab - 1, vocab // 2}:
        logits = random_logits(np.random.default_rng(at), vocab)
        logits[at] = bad
        for params in (SamplingParams(seed=1), SamplingParams(temperature=0, logit_bias=((at, -100.0),))):
            case = Case(logits, params)
            answer = sampled(case, level)
            assert answer[:2] == wanted(case)
            assert answer[1] == "the model gave non-finite logits for this row"


def test_impossible_rows_fail() -> None:
    everything = Case(np.full(300, -np.inf, np.float32), SamplingParams(seed=1))
    nothing_allowed = Case(np.zeros(300, np.float32), SamplingParams(seed=1), mask=np.zeros(10, np.uint32))
    banned = Case(np.zeros(1, np.float32), SamplingParams(seed=1, logit_bias=((0, -100.0),)))
    suppressed = Case(np.zeros(1, np.float32), SamplingParams(temperature=0, suppressed=(0,), min_tokens=1))
    for case in (everything, nothing_allowed, banned, suppressed):
        assert sampled(case)[:2] == wanted(case)
        assert sampled(case)[0] == -1


def test_counts_grow_as_a_sequence_does() -> None:
    """Counts kept step by step equal counts made at once."""
    rng = np.random.default_rng(5)
    params = SamplingParams(repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2, seed=3)
    prompt = rng.integers(0, 50, 20).tolist()
    counts = sampling.TokenCounts(np.array(prompt, np.int32), 20, 300)
    sampler = sampling.Sampler(300)
    output: list[int] = []
    for step in range(200):
        logits = random_logits(rng, 300)
        token, _, _ = sampler.sample(logits, spec_of(params), counts, step)
        assert token == wanted(Case(logits, params, step, prompt, output))[0]
        output.append(token)
        counts.add_output(token)


def test_philox_equals_python() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        seed, index = int(rng.integers(0, 2**64, dtype=np.uint64)), int(rng.integers(0, 2**31))
        assert sampling.philox_uniform(seed, index, 3) == uniform(seed, index, 3)


@pytest.mark.parametrize("level", LEVELS)
def test_logprobs_equal_the_reference(level: str) -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        vocab = int(rng.choice([1, 2, 7, 33, 256, 600, 3000]))
        logits, token, k = random_logits(rng, vocab), int(rng.integers(vocab)), int(rng.choice([0, 1, 5, 20, 5000]))
        answer = token_logprobs(logits, token, k)
        error, logprob, top_ids, top_logprobs = sampling.Sampler(vocab, level).token_logprobs(logits, token, k)
        assert error == ""
        assert logprob == pytest.approx(answer.logprob, rel=1e-9, abs=1e-13)
        assert tuple(top_ids) == answer.top_ids
        assert top_logprobs == pytest.approx(list(answer.top_logprobs), rel=1e-9, abs=1e-13)


def test_logprobs_are_bit_equal_at_every_level() -> None:
    for seed in range(50):
        logits = random_logits(np.random.default_rng(seed), 1003)
        answers = {sampling.Sampler(1003, level).token_logprobs(logits, 5, 0)[1] for level in LEVELS}
        assert len(answers) == 1


def test_logprobs_of_huge_and_of_non_finite_logits() -> None:
    error, logprob, ids, values = sampling.Sampler(3).token_logprobs(np.array([3e38, -3e38, 0], np.float32), 0, 9)
    assert (error, logprob, ids) == ("", 0.0, [0, 2, 1])
    assert all(math.isfinite(x) and x <= 0 for x in values)
    for bad in (math.nan, math.inf):
        assert sampling.Sampler(2).token_logprobs(np.array([0, bad], np.float32), 0, 1)[0]
    assert sampling.Sampler(2).token_logprobs(np.full(2, -np.inf, np.float32), 0, 1)[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.sample(np.zeros(3, np.float32), sampling.SamplingSpec(), None, 0), "size of the vocabulary"),
        (
            lambda s: s.sample(np.zeros(4, np.float32), sampling.SamplingSpec(presence_penalty=1.0), None, 0),
            "token counts",
        ),
        (lambda s: s.token_logprobs(np.zeros(4, np.float32), 4, 0), "out of range"),
        (lambda s: s.token_logprobs(np.zeros(4, np.float32), 0, -1), "out of range"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(sampling.Sampler(4))
