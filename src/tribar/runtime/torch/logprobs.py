"""Log-probabilities of the raw distribution, in float64 and in slices of bounded size."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tribar.core.sampling.params import TokenLogprobs

SLICE = 1 << 22
"""Entries of [rows, vocab] that are held in float64 at once (32 MB)."""


@dataclass(frozen=True, slots=True)
class Scored:
    """For n tokens: ``logprobs`` [n] and the k likeliest ids with theirs, [n, k]. On the device."""

    token_ids: Tensor
    logprobs: Tensor
    top_ids: Tensor
    top_logprobs: Tensor

    def tensors(self) -> list[Tensor]:
        """In the order in which ``read`` takes them back."""
        return [self.token_ids, self.logprobs, self.top_ids, self.top_logprobs]


def score(logits: Tensor, token_ids: Tensor, k: int) -> Scored:
    """Score ``token_ids`` [n] under ``logits`` [n, vocab] (fp32). Ties among the likeliest go to the lowest id."""
    n_rows = max(1, SLICE // logits.shape[1])
    parts = [
        _score_slice(logits[i : i + n_rows], token_ids[i : i + n_rows], min(k, logits.shape[1]))
        for i in range(0, logits.shape[0], n_rows)
    ]
    return join(parts)


def join(parts: list[Scored]) -> Scored:
    """The rows of ``parts`` one after another."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part.tensors() for part in parts), strict=True)
    return Scored(*(torch.cat(column) for column in columns))


def read(arrays: list[npt.NDArray[np.generic]], row: int, k: int) -> TokenLogprobs:
    """Row ``row`` of a ``Scored`` that has come to the host, with its ``k`` likeliest."""
    token_ids, logprobs, top_ids, top_logprobs = arrays
    return TokenLogprobs(
        token_id=int(token_ids[row]),
        logprob=float(logprobs[row]),
        top_ids=tuple(top_ids[row, :k].tolist()),
        top_logprobs=tuple(top_logprobs[row, :k].tolist()),
    )


def _score_slice(logits: Tensor, token_ids: Tensor, k: int) -> Scored:
    scores = logits.double()
    normalizer = scores.logsumexp(-1, keepdim=True)
    # a unique key per entry, ordered by (logit, -id), makes topk's choice among equals deterministic
    bits = (logits + 0.0).view(torch.int32).long()
    ordered = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)
    keys = (ordered << 32) - torch.arange(logits.shape[1], device=logits.device)
    top_ids = keys.topk(k, -1).indices
    logprobs = scores.gather(-1, token_ids[:, None]) - normalizer
    return Scored(token_ids, logprobs[:, 0], top_ids, scores.gather(-1, top_ids) - normalizer)
