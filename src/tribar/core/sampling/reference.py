"""The sampler's specification and oracle: slow, obvious, numpy. Every runner's sampler must agree with it.

All arithmetic is float64, from the model's fp32 logits ``l`` (one entry per id of the vocabulary).

1. **Bias.** ``l[id] += bias`` for each pair of ``logit_bias``.
2. **Penalties.** For ids present in prompt + output: ``l = l / p if l > 0 else l * p`` with p the repetition penalty.
   Then ``l -= frequency * n + presence * (n > 0)`` with n the count of the id in the output alone.
3. **Mask.** ``l = -inf`` for ids whose grammar bit is 0 (bit ``id % 32`` of uint32 word ``id // 32``; ids beyond the
   last word too), for ``suppressed`` ids while ``output_index < min_tokens``, and for ids with a bias <= -100.
4. **Temperature.** Below 1e-5 the answer is the argmax, ties to the lowest id, and nothing is drawn.
   Otherwise ``l /= temperature``. From here on ``w = exp(l - max l)`` stands for the unnormalised probability.
5. **Min-p.** Drop ids with ``w < min_p`` (the likeliest id has w = 1 exactly).
6. **Top-k.** Keep the k largest l, ties to the lowest id. 0, or k beyond the ids that are left, keeps all.
7. **Top-p.** In the order (-l, id), keep the shortest prefix whose cumulative w is at least ``top_p`` times the
   total w of the ids that are left; at least one. 1 keeps all.
8. **Draw.** With u from ``philox.uniform(seed, output_index)`` and the cumulative sum of w over the kept ids in
   increasing id order, pick the first id whose cumulative sum exceeds u times the total.

A row fails alone, with ``Internal``, where its logits hold NaN or +inf, or where no id is left after step 3.
Log-probabilities are ``log_softmax`` of the raw logits, before step 1, in float64.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tribar.core.errors import Internal
from tribar.core.sampling.params import SamplingParams, TokenLogprobs
from tribar.core.sampling.philox import uniform

NOTHING_ALLOWED = "no token may be drawn: grammar, logit_bias and min_tokens together forbid the whole vocabulary"
"""What every runner says of a row where no id is left after step 3: the request asked for it, no part of us failed."""

GREEDY_BELOW = 1e-5
"""Temperatures below this are argmax."""

BAN_AT = -100.0
"""A logit bias at or below this bans its token."""

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]
Ids = Sequence[int] | npt.NDArray[np.integer]
Mask = npt.NDArray[np.uint32]


def sample_row(
    logits: Float32s,
    params: SamplingParams,
    *,
    output_index: int,
    prompt_ids: Ids,
    output_ids: Ids,
    mask: Mask | None = None,
) -> int:
    """The id that follows, for ``logits`` of shape [vocab]; see the module docstring. Mutates nothing.

    ``output_index`` is the number of tokens generated before this one. All ids must lie in the vocabulary.
    Raises ``Internal`` where the row has no valid answer.
    """
    scores = masked_logits(
        logits, params, output_index=output_index, prompt_ids=prompt_ids, output_ids=output_ids, mask=mask
    )
    if params.temperature < GREEDY_BELOW:
        return int(np.argmax(scores))
    if params.seed is None:
        raise Internal("a row that draws needs a seed, but its sampling parameters have none")
    kept_ids, weights = candidates(scores, params)
    cumulative = np.cumsum(weights)
    threshold = uniform(params.seed, output_index) * cumulative[-1]
    return int(kept_ids[np.searchsorted(cumulative, threshold, side="right")])


def masked_logits(
    logits: Float32s,
    params: SamplingParams,
    *,
    output_index: int,
    prompt_ids: Ids,
    output_ids: Ids,
    mask: Mask | None = None,
) -> Float64s:
    """Steps 1 to 3: a new float64 array with at least one finite entry, -inf where an id may not be drawn."""
    _require_finite(logits)
    scores = logits.astype(np.float64)
    for token_id, bias in params.logit_bias:
        scores[token_id] += bias
    scores = _penalized(scores, params, prompt_ids, output_ids)
    if mask is not None:
        scores[~unpack_mask(mask, len(scores))] = -np.inf
    if output_index < params.min_tokens:
        scores[list(params.suppressed)] = -np.inf
    scores[[token_id for token_id, bias in params.logit_bias if bias <= BAN_AT]] = -np.inf
    if not np.isfinite(scores.max()):
        raise Internal(NOTHING_ALLOWED)
    return scores


def candidates(scores: Float64s, params: SamplingParams) -> tuple[npt.NDArray[np.intp], Float64s]:
    """Steps 4 to 7 for ``masked_logits`` and a temperature that is not greedy.

    Returns the kept ids, increasing, and their weights; the probability of an id is its weight over their sum.
    """
    scaled = scores / params.temperature
    weights = np.exp(scaled - scaled.max())
    ids = np.flatnonzero(np.isfinite(scaled) & (weights >= params.min_p))
    by_rank = ids[np.argsort(-scaled[ids], kind="stable")]
    if params.top_k > 0:
        by_rank = by_rank[: params.top_k]
    if params.top_p < 1.0:
        cumulative = np.cumsum(weights[by_rank])
        last = np.searchsorted(cumulative, params.top_p * cumulative[-1], side="left")
        by_rank = by_rank[: last + 1]
    kept = np.sort(by_rank)
    return kept, weights[kept]


def token_logprobs(logits: Float32s, token_id: int, k: int) -> TokenLogprobs:
    """Raw log-probabilities of ``token_id`` and of the ``k`` likeliest ids (at most the vocabulary).

    ``logits`` has shape [vocab]. Raises ``Internal`` where they are not finite.
    """
    _require_finite(logits)
    scores = logits.astype(np.float64)
    shifted = scores - scores.max()
    logprobs = shifted - np.log(np.exp(shifted).sum())
    top_ids = np.argsort(-scores, kind="stable")[:k]
    return TokenLogprobs(
        token_id=int(token_id),
        logprob=float(logprobs[token_id]),
        top_ids=tuple(int(i) for i in top_ids),
        top_logprobs=tuple(float(x) for x in logprobs[top_ids]),
    )


def unpack_mask(mask: Mask, vocab_size: int) -> npt.NDArray[np.bool_]:
    """The grammar bit set as one bool per id: True where the id is allowed. Ids beyond the mask are not."""
    ids = np.arange(vocab_size)
    is_covered = ids < 32 * len(mask)
    allowed = np.zeros(vocab_size, dtype=np.bool_)
    covered = ids[is_covered]
    allowed[covered] = (mask[covered // 32] >> (covered % 32).astype(np.uint32)) & np.uint32(1)
    return allowed


def _penalized(scores: Float64s, params: SamplingParams, prompt_ids: Ids, output_ids: Ids) -> Float64s:
    n_output = np.bincount(np.asarray(output_ids, dtype=np.int64), minlength=len(scores))
    n_prompt = np.bincount(np.asarray(prompt_ids, dtype=np.int64), minlength=len(scores))
    p = params.repetition_penalty
    is_present = (n_output + n_prompt) > 0
    penalized: Float64s = np.where(is_present, np.where(scores > 0, scores / p, scores * p), scores)
    return penalized - (params.frequency_penalty * n_output + params.presence_penalty * (n_output > 0))


def _require_finite(logits: Float32s) -> None:
    """-inf is a legal logit (an impossible token); NaN and +inf are not."""
    if np.isnan(logits).any() or np.isposinf(logits).any() or not np.isfinite(logits).any():
        raise Internal("the model gave non-finite logits for this row")
