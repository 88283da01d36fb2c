"""Attention over paged keys and values: one padded batch of decodes, and chunks one by one.

Query heads that share a key/value head are laid out as extra queries of that head, so keys are never repeated.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

_TILE = 256
"""Queries of a chunk at a time: bounds the mask, and skips the keys that a tile cannot see."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How scores are made from q and k."""

    scale: float
    softcap: float | None


def decode_mask(positions: Tensor, n_keys: int, window: int | None, dtype: torch.dtype) -> Tensor:
    """Additive mask [n_rows, 1, 1, n_keys]: the row at ``positions[i]`` sees keys in (position - window, position]."""
    keys = torch.arange(n_keys, device=positions.device)
    is_seen = keys <= positions[:, None]
    if window is not None:
        is_seen &= keys > positions[:, None] - window
    mask = torch.zeros(is_seen.shape, dtype=dtype, device=positions.device)
    return mask.masked_fill(~is_seen, float("-inf"))[:, None, None, :]


def attend_decodes(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scoring: Scoring) -> Tensor:
    """One query per row: queries [n, n_heads, d], keys and values [n, n_keys, n_kv_heads, d] -> [n, n_heads, d]."""
    n_rows, n_heads, head_dim = queries.shape
    grouped = queries.view(n_rows, keys.shape[2], -1, head_dim)
    group = grouped.shape[2]
    out = _attend(grouped, keys.transpose(1, 2), values.transpose(1, 2), mask.expand(-1, -1, group, -1), scoring)
    return out.reshape(n_rows, n_heads, head_dim)


def attend_chunk(
    queries: Tensor, keys: Tensor, values: Tensor, position: int, window: int | None, scoring: Scoring
) -> Tensor:
    """Queries [n, n_heads, d] at ``position``.. over keys and values [>= position + n, n_kv_heads, d]."""
    tiles = []
    for start in range(0, queries.shape[0], _TILE):
        tile = queries[start : start + _TILE]
        first, last = position + start, position + start + tile.shape[0] - 1
        low = 0 if window is None else max(0, first - window + 1)
        seen = slice(low, last + 1)
        tiles.append(_attend_tile(tile, keys[seen], values[seen], first - low, window, scoring))
    return torch.cat(tiles)


def _attend_tile(
    queries: Tensor, keys: Tensor, values: Tensor, offset: int, window: int | None, scoring: Scoring
) -> Tensor:
    n, n_heads, head_dim = queries.shape
    n_kv_heads = keys.shape[1]
    group = n_heads // n_kv_heads
    steps = torch.arange(n, device=queries.device) + offset
    mask = decode_mask(steps, keys.shape[0], window, queries.dtype)[:, 0, 0]
    grouped = queries.view(n, n_kv_heads, group, head_dim).permute(1, 2, 0, 3).reshape(1, n_kv_heads, -1, head_dim)
    out = _attend(
        grouped, keys.transpose(0, 1)[None], values.transpose(0, 1)[None], mask.repeat(group, 1)[None, None], scoring
    )
    return out.view(n_kv_heads, group, n, head_dim).permute(2, 0, 1, 3).reshape(n, n_heads, head_dim)


def _attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scoring: Scoring) -> Tensor:
    """[n, heads, queries, d] x [n, heads, keys, d] with an additive mask."""
    if scoring.softcap is None:
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scoring.scale)
    scores = (queries @ keys.transpose(-1, -2)).float() * scoring.scale
    capped = scoring.softcap * torch.tanh(scores / scoring.softcap) + mask
    return capped.softmax(-1).to(values.dtype) @ values
