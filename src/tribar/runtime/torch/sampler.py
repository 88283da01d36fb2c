"""Draws one token per row as ``tribar.core.sampling.reference`` says, without asking the device anything.

Rows that are plain argmax skip the float64 path. The random numbers are a function of seed and output index alone,
both known to the host, so they are made there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tribar.core.sampling.params import SamplingParams
from tribar.core.sampling.reference import BAN_AT, GREEDY_BELOW
from tribar.runtime.torch.filters import Filters, draw
from tribar.runtime.torch.logprobs import SLICE
from tribar.runtime.torch.transfer import upload
from tribar.runtime.torch.uniforms import uniforms

OK, NOT_FINITE, ALL_FORBIDDEN = 0, 1, 2

Mask = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Sampled:
    """A row that draws: it holds ``n_ids`` ids in ``Rows.ids``, the first ``n_prompt`` of which are prompt."""

    row: int
    n_prompt: int
    n_ids: int
    sampling: SamplingParams
    mask: Mask | None = None

    @property
    def output_index(self) -> int:
        """How many tokens were generated before this one."""
        return self.n_ids - self.n_prompt

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest allowed id is taken."""
        return self.sampling.temperature < GREEDY_BELOW

    @property
    def is_plain(self) -> bool:
        """Whether the answer is the argmax of the raw logits."""
        p = self.sampling
        has_penalty = p.repetition_penalty != 1.0 or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0
        is_held_back = bool(p.suppressed) and self.output_index < p.min_tokens
        return self.is_greedy and not (has_penalty or is_held_back or p.logit_bias or self.mask is not None)


def sample(logits: Tensor, sampled: Sequence[Sampled], ids: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [n] int64 and error codes [n] int8 for ``logits`` [n, vocab] (fp32).

    ``ids`` is ``Rows.ids``. A row with an error code gets some legal id, to be thrown away.
    """
    top = logits.amax(-1)
    tokens, errors = logits.argmax(-1), (~top.isfinite()).to(torch.int8)
    others = [i for i, row in enumerate(sampled) if not row.is_plain]
    n_rows = max(1, SLICE // logits.shape[1])
    for start in range(0, len(others), n_rows):
        chosen = others[start : start + n_rows]
        index = upload(np.array(chosen, dtype=np.int64), logits.device)
        drawn, is_empty = _sample_slice(logits[index], [sampled[i] for i in chosen], ids)
        tokens[index] = drawn
        errors[index] = torch.where(errors[index] == OK, is_empty.to(torch.int8) * ALL_FORBIDDEN, errors[index])
    return tokens, errors


def _sample_slice(logits: Tensor, sampled: list[Sampled], ids: Tensor) -> tuple[Tensor, Tensor]:
    scores = _forbidden(_penalized(_biased(logits.double(), sampled), sampled, ids), sampled)
    tokens = scores.argmax(-1)
    is_empty = scores.amax(-1) == float("-inf")
    if any(not row.is_greedy for row in sampled):
        is_greedy = upload(np.array([row.is_greedy for row in sampled]), logits.device)
        drawn = draw(scores, _filters(sampled, logits.shape[1], logits.device))
        tokens = torch.where(is_greedy, tokens, drawn)
    return tokens, is_empty


def _biased(scores: Tensor, sampled: list[Sampled]) -> Tensor:
    entries = [(i, *pair) for i, row in enumerate(sampled) for pair in row.sampling.logit_bias]
    if not entries:
        return scores
    places = upload(np.array([(i, token_id) for i, token_id, _ in entries], dtype=np.int64).T, scores.device)
    biases = upload(np.array([bias for _, _, bias in entries], dtype=np.float64), scores.device)
    scores.index_put_((places[0], places[1]), biases, accumulate=True)
    return scores


def _penalized(scores: Tensor, sampled: list[Sampled], ids: Tensor) -> Tensor:
    """Penalties of 1 and 0 change no bit, so rows without any pass through unharmed."""
    penalties = np.array(
        [(r.sampling.repetition_penalty, r.sampling.frequency_penalty, r.sampling.presence_penalty) for r in sampled]
    )
    if (penalties == (1.0, 0.0, 0.0)).all():
        return scores
    repetition, frequency, presence = upload(penalties, scores.device).T[:, :, None]
    counts = upload(np.array([(r.row, r.n_prompt, r.n_ids) for r in sampled], dtype=np.int64), scores.device)
    history = ids[counts[:, 0], : max(row.n_ids for row in sampled)]
    places = torch.arange(history.shape[1], device=scores.device)
    is_held = places < counts[:, 2:]
    is_output = is_held & (places >= counts[:, 1:2])
    n_held, n_output = (
        torch.zeros_like(scores).scatter_add_(1, history, counted.double()) for counted in (is_held, is_output)
    )
    repeated = torch.where(scores > 0, scores / repetition, scores * repetition)
    penalty = frequency * n_output + presence * (n_output > 0)
    return torch.where(n_held > 0, repeated, scores).sub_(penalty)


def _forbidden(scores: Tensor, sampled: list[Sampled]) -> Tensor:
    masks = {i: row.mask for i, row in enumerate(sampled) if row.mask is not None}
    if masks:
        scores = scores.masked_fill(~_allowed(masks, scores), float("-inf"))
    banned = [
        (i, token_id)
        for i, row in enumerate(sampled)
        for token_id in [
            *(row.sampling.suppressed if row.output_index < row.sampling.min_tokens else ()),
            *(token_id for token_id, bias in row.sampling.logit_bias if bias <= BAN_AT),
        ]
    ]
    if banned:
        places = upload(np.array(banned, dtype=np.int64).T, scores.device)
        scores[places[0], places[1]] = float("-inf")
    return scores


def _allowed(masks: Mapping[int, Mask], scores: Tensor) -> Tensor:
    """Bit sets as booleans [n, vocab]; rows without a mask allow all, ids beyond a mask are forbidden."""
    n_rows, vocab_size = scores.shape
    words = np.full((n_rows, -(-vocab_size // 32)), 0xFFFFFFFF, dtype=np.uint32)
    for i, mask in masks.items():
        words[i] = 0
        words[i, : len(mask)] = mask[: words.shape[1]]
    packed = upload(words.view(np.int32), scores.device)
    token_ids = torch.arange(vocab_size, device=scores.device)
    return ((packed[:, token_ids // 32] >> (token_ids % 32).to(torch.int32)) & 1).bool()


def _filters(sampled: list[Sampled], vocab_size: int, device: torch.device) -> Filters:
    params = [row.sampling for row in sampled]
    limits = [p.top_k if 0 < p.top_k < vocab_size else 0 for p in params]
    drawn = uniforms(
        np.array([p.seed or 0 for p in params], dtype=np.uint64),
        np.array([row.output_index for row in sampled], dtype=np.uint64),
    )
    temperatures = [1.0 if row.is_greedy else row.sampling.temperature for row in sampled]
    columns = np.stack([temperatures, [p.min_p for p in params], [p.top_p for p in params], drawn])
    temperature, min_p, top_p, uniform = upload(columns, device)[:, :, None]
    return Filters(
        temperature=temperature,
        min_p=min_p,
        top_k=upload(np.array([k or vocab_size for k in limits], dtype=np.int64), device)[:, None],
        top_p=top_p,
        uniform=uniform,
        max_top_k=max(limits),
        has_min_p=any(p.min_p > 0 for p in params),
        has_top_p=any(p.top_p < 1 for p in params),
    )
