"""Steps 4 to 8 of the sampling specification (``tribar.core.sampling.reference``), vectorised over rows."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Filters:
    """Per row, [n, 1] float64 (``top_k`` int64): neutral values are temperature 1, min_p 0, top_k vocab, top_p 1.

    ``max_top_k`` bounds the rows' top_k (0: none uses it); ``has_min_p`` and ``has_top_p`` say whether any row does.
    """

    temperature: Tensor
    min_p: Tensor
    top_k: Tensor
    top_p: Tensor
    uniform: Tensor
    max_top_k: int
    has_min_p: bool
    has_top_p: bool


def draw(scores: Tensor, filters: Filters) -> Tensor:
    """One id per row of ``scores`` [n, vocab] (float64, -inf where forbidden)."""
    scaled = scores / filters.temperature
    weights = (scaled - scaled.amax(-1, keepdim=True)).exp()
    if filters.has_min_p:
        weights, scaled = _drop(weights, scaled, weights < filters.min_p)
    if filters.max_top_k:
        weights, scaled = _drop(weights, scaled, ~_top_k(scaled, filters))
    if filters.has_top_p:
        weights, scaled = _drop(weights, scaled, ~_top_p(scaled, weights, filters.top_p))
    cumulative = weights.cumsum(-1)
    chosen = torch.searchsorted(cumulative, filters.uniform * cumulative[:, -1:], right=True)[:, 0]
    return chosen.clamp_(max=scores.shape[1] - 1)  # a row of NaN finds no place


def _drop(weights: Tensor, scaled: Tensor, is_dropped: Tensor) -> tuple[Tensor, Tensor]:
    return weights.masked_fill(is_dropped, 0.0), scaled.masked_fill(is_dropped, float("-inf"))


def _top_k(scaled: Tensor, filters: Filters) -> Tensor:
    """True for the k largest, the lowest ids among those equal to the k-th."""
    largest = scaled.topk(filters.max_top_k, -1).values
    is_limited = filters.top_k <= filters.max_top_k
    index = filters.top_k.clamp(max=filters.max_top_k) - 1
    kth = largest.gather(-1, index).masked_fill(~is_limited, float("-inf"))
    is_above, is_tied = scaled > kth, scaled == kth
    n_wanted = filters.top_k - is_above.sum(-1, keepdim=True)
    return is_above | (is_tied & (is_tied.cumsum(-1) <= n_wanted))


def _top_p(scaled: Tensor, weights: Tensor, top_p: Tensor) -> Tensor:
    """True for the shortest prefix, by (-score, id), whose weight reaches ``top_p`` of the whole."""
    order = torch.sort(scaled, dim=-1, descending=True, stable=True).indices
    cumulative = weights.gather(-1, order).cumsum(-1)
    target = (top_p * cumulative[:, -1:]).masked_fill(top_p >= 1.0, float("inf"))
    before = torch.cat([torch.full_like(target, float("-inf")), cumulative[:, :-1]], -1)
    return torch.zeros_like(scaled, dtype=torch.bool).scatter_(-1, order, before < target)
