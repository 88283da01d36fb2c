"""From a plan's work to one flat batch: decodes padded to a few static shapes, then the chunks as they are."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tribar.core.errors import Internal
from tribar.runtime.runner import Work
from tribar.runtime.torch.kv_cache import KvCache
from tribar.runtime.torch.model import Chunk, FlatBatch
from tribar.runtime.torch.rows import Rows
from tribar.runtime.torch.transfer import upload


@dataclass(frozen=True, slots=True)
class Item:
    """One row's work. ``start`` is the place of its first token in the flat batch."""

    row: int
    position: int
    n_tokens: int
    is_sampled: bool
    start: int

    @property
    def end(self) -> int:
        """The position after the last one."""
        return self.position + self.n_tokens


def bucket(n: int) -> int:
    """The smallest static size that holds ``n``: 1 to 8, then four per doubling (10, 12, 14, 16, 20, ...).

    At most a quarter is padding, and there are few enough shapes to compile or capture each.
    """
    step = 1 << max(n.bit_length() - 3, 0)
    rounded = -(-n // step) * step
    return rounded if n <= 8 or rounded.bit_length() == n.bit_length() else 1 << n.bit_length()


def arrange(work: Work, rows: Rows, block_size: int) -> tuple[list[Item], int]:
    """The work's items, in the plan's order, and how many places the decodes take.

    Raises ``Internal`` where the plan does not fit the rows.
    """
    n_decodes = int((work.n_tokens == 1).sum())
    n_padded = bucket(n_decodes) if n_decodes else 0
    items, next_decode, next_chunk = [], 0, n_padded
    for row, position, n_tokens, samples in zip(
        work.rows.tolist(), work.positions.tolist(), work.n_tokens.tolist(), work.samples.tolist(), strict=True
    ):
        start = next_decode if n_tokens == 1 else next_chunk
        item = Item(row, position, n_tokens, samples, start)
        _check(item, rows, block_size)
        items.append(item)
        next_decode += n_tokens == 1
        next_chunk += n_tokens if n_tokens > 1 else 0
    return items, n_padded


def lay_out(items: list[Item], n_padded: int, rows: Rows, cache: KvCache) -> FlatBatch:
    """The flat batch, made on the device from the rows' state; clears blocks that get their first token."""
    device = rows.ids.device
    chunks = [item for item in items if item.n_tokens > 1]
    n_flat = n_padded + sum(item.n_tokens for item in chunks)
    flat = np.zeros((2, n_flat), dtype=np.int64)
    flat[0] = rows.padding_row
    for item in items:
        place = slice(item.start, item.start + item.n_tokens)
        flat[0, place], flat[1, place] = item.row, np.arange(item.position, item.end)
    of_row, positions = upload(flat, device)
    _clear_fresh_blocks(items, rows, cache)
    return FlatBatch(
        tokens=rows.ids[of_row, positions],
        positions=positions,
        slots=rows.slots(of_row, positions),
        tables=_decode_tables(flat[1, :n_padded], of_row, positions, rows, cache.block_size),
        chunks=tuple(
            Chunk(item.start, item.n_tokens, item.position, rows.tables[item.row, : -(-item.end // cache.block_size)])
            for item in chunks
        ),
    )


def _decode_tables(
    host_positions: np.ndarray[tuple[int], np.dtype[np.int64]],
    of_row: Tensor,
    positions: Tensor,
    rows: Rows,
    block_size: int,
) -> Tensor:
    """[n_padded, n_context_blocks]; entries behind a row's last computed block are the null block.

    A row may own blocks that nobody has written yet, and dropped rows leave theirs in the table.
    """
    n_padded = len(host_positions)
    if n_padded == 0:
        return rows.tables[:0]
    n_blocks = min(bucket(int(host_positions.max()) // block_size + 1), rows.tables.shape[1])
    tables = rows.tables[of_row[:n_padded], :n_blocks]
    last = (positions[:n_padded] // block_size)[:, None]
    return tables.masked_fill(torch.arange(n_blocks, device=tables.device) > last, 0)


def _clear_fresh_blocks(items: list[Item], rows: Rows, cache: KvCache) -> None:
    """Only a row's last block can stay partly unwritten, and it is fresh if this step writes its first slot."""
    size = cache.block_size
    fresh = [
        (item.row, (item.end - 1) // size)
        for item in items
        if item.end % size and (item.end - 1) // size * size >= item.position
    ]
    if fresh:
        places = upload(np.array(fresh, dtype=np.int64).T, rows.ids.device)
        cache.clear(rows.tables[places[0], places[1]])


def _check(item: Item, rows: Rows, block_size: int) -> None:
    state = rows[item.row]
    if item.n_tokens < 1 or item.position < 0 or item.end > state.n_ids:
        raise Internal(f"row {item.row} holds {state.n_ids} ids, work covers [{item.position}, {item.end})")
    if item.is_sampled != (item.end == state.n_ids):
        raise Internal(f"row {item.row}: a token is drawn exactly when the work reaches the last of {state.n_ids} ids")
    if item.end > state.n_blocks * block_size:
        raise Internal(f"row {item.row} has {state.n_blocks} blocks, work covers [{item.position}, {item.end})")
