"""Paged KV with a prefix cache: a pool of blocks and a radix tree over the full ones.

A sequence's block table, B = block size, d = depth of its tree node::

    entries   [0 ............ d)                          [d ........ end)
    content   full blocks, published in the tree          being filled, private
    block     the tree's, or (duplicate) a private copy   private

A private copy of what the tree has already stays in the table (the runner's tables only grow) and dies with its
sequence. A block of the tree is never written: matching leaves at least the last token to compute, and publishing
takes only blocks whose every position is committed.
"""

from collections.abc import Collection

from tribar.core.ids import BlockId
from tribar.engine.kv.base import Admission, KvUsage
from tribar.engine.kv.pool import BlockPool
from tribar.engine.kv.radix import Node, RadixTree, path, path_blocks
from tribar.engine.sequence import Sequence


class PrefixCachedKv:
    """``KvAllocator`` with sharing. Available blocks are the free ones and the tree's evictable ones."""

    def __init__(self, n_blocks: int, block_size: int) -> None:
        self._pool = BlockPool(n_blocks)
        self._tree = RadixTree()
        self._block_size = block_size
        self._computing: dict[tuple[Node, bytes], int] = {}

    def admit(self, sequence: Sequence, n_running: int, n_tokens: int) -> Admission:
        """See ``KvAllocator``. Matches at most floor((n-1)/B)*B tokens, so that the last one is always computed."""
        if sequence.awaits in self._computing:
            return Admission.COMPUTING
        sequence.awaits = None
        n_matchable = (len(sequence.ids) - 1) // self._block_size if sequence.may_match else 0
        node = self._match(sequence, n_matchable)
        if node.depth < n_matchable:
            missing = (node, sequence.block_key(node.depth, self._block_size))
            if missing in self._computing:
                sequence.awaits = missing
                return Admission.COMPUTING
        n_new = -(-n_tokens // self._block_size) - node.depth
        if n_new + n_running > self._pool.n_free + self._tree.n_evictable - self._tree.n_unlocked(node):
            return Admission.FULL
        self._tree.lock(node)
        sequence.block_ids = path_blocks(node) + self._take(n_new)
        sequence.n_slots = len(sequence.block_ids) * self._block_size
        sequence.n_computed = sequence.n_committed = node.depth * self._block_size
        sequence.n_duplicates = 0
        sequence.hint = None
        self._move(sequence, node)
        return Admission.ADMITTED

    def grow(self, sequence: Sequence, n_tokens: int) -> list[BlockId] | None:
        """See ``KvAllocator``."""
        n = -(-n_tokens // self._block_size) - len(sequence.block_ids)
        if n > self._pool.n_free + self._tree.n_evictable:
            return None
        blocks = self._take(n)
        sequence.block_ids += blocks
        sequence.n_slots += n * self._block_size
        return blocks

    def commit(self, sequence: Sequence) -> None:
        """See ``KvAllocator``."""
        node = _node(sequence)
        while (node.depth + 1) * self._block_size <= sequence.n_committed:
            block_id = sequence.block_ids[node.depth]
            node = self._tree.extend(node, sequence.block_key(node.depth, self._block_size), block_id)
            sequence.n_duplicates += node.block_id != block_id
        self._stop_computing(sequence)
        self._move(sequence, node)

    def release(self, sequence: Sequence) -> None:
        """See ``KvAllocator``. Published blocks stay in the tree, unlocked, for whoever comes next."""
        node = _node(sequence)
        self._stop_computing(sequence)
        self._pool.free(_private_blocks(sequence))
        self._pool.free(self._tree.unlock(node))
        sequence.block_ids = []
        sequence.n_slots = 0
        sequence.node = None

    def reset(self) -> None:
        """See ``KvAllocator``."""
        self._pool.free(self._tree.reset())

    def usage(self, holders: Collection[Sequence]) -> KvUsage:
        """See ``KvAllocator``. A shared block counts once."""
        n_cached = self._tree.n_evictable
        n_used = self._pool.n_usable - self._pool.n_free - n_cached
        slots_used = (self._tree.n_nodes - n_cached) * self._block_size
        for sequence in holders:
            n_published = _node(sequence).depth - sequence.n_duplicates
            slots_used += sequence.n_computed - n_published * self._block_size
        return KvUsage(self._pool.n_usable, n_used, n_cached, slots_used, n_used * self._block_size)

    def check(self, holders: Collection[Sequence]) -> None:
        """See ``KvAllocator``. Also: locks equal holders, and every node on a path names its sequence's own tokens."""
        self._tree.check()
        locks: dict[Node, int] = {}
        owned: list[BlockId] = []
        for sequence in holders:
            private = _private_blocks(sequence)
            owned += private
            n_published = _node(sequence).depth - sequence.n_duplicates
            assert len(private) == len(sequence.block_ids) - n_published, "duplicates are miscounted"
            assert _node(sequence).depth * self._block_size <= len(sequence.ids), "unknown tokens are published"
            for node in path(_node(sequence)):
                locks[node] = locks.get(node, 0) + 1
                assert node.key == sequence.block_key(node.depth - 1, self._block_size), "foreign tokens on a path"
        for node, n_locks in locks.items():
            assert node.n_locks == n_locks, f"{node.n_locks} locks for {n_locks} holders"
        owned += [node.block_id for node in locks if not node.is_attached]
        self._pool.check([*owned, *self._tree.blocks()])
        computing = [sequence.computes for sequence in holders if sequence.computes is not None]
        assert sum(self._computing.values()) == len(computing), "blocks marked as being computed by nobody"
        assert set(self._computing) == set(computing), "blocks marked as being computed by somebody else"

    def _match(self, sequence: Sequence, n_matchable: int) -> Node:
        """The deepest cached node, resuming where the last look-up ended, so that waiting costs no re-matching."""
        start = sequence.hint
        if start is None or not start.is_attached or start.depth > n_matchable:
            start = self._tree.root
        keys = (sequence.block_key(i, self._block_size) for i in range(start.depth, n_matchable))
        sequence.hint = self._tree.match(keys, start)
        return sequence.hint

    def _take(self, n: int) -> list[BlockId]:
        n_missing = n - self._pool.n_free
        if n_missing > 0:
            self._pool.free(self._tree.evict(n_missing))
        return self._pool.allocate(n)

    def _move(self, sequence: Sequence, node: Node) -> None:
        """Note where ``sequence`` stands in the tree and which known block it computes next."""
        sequence.node = node
        sequence.insert_at = (node.depth + 1) * self._block_size
        if sequence.insert_at <= len(sequence.ids):
            computes = (node, sequence.block_key(node.depth, self._block_size))
            self._computing[computes] = self._computing.get(computes, 0) + 1
            sequence.computes = computes

    def _stop_computing(self, sequence: Sequence) -> None:
        computes = sequence.computes
        if computes is None:
            return
        sequence.computes = None
        if self._computing[computes] == 1:
            del self._computing[computes]
        else:
            self._computing[computes] -= 1


def _node(sequence: Sequence) -> Node:
    assert sequence.node is not None, "the sequence holds no blocks"
    return sequence.node


def _private_blocks(sequence: Sequence) -> list[BlockId]:
    """The blocks of the table that the tree does not own."""
    node = _node(sequence)
    private = sequence.block_ids[node.depth :]
    if sequence.n_duplicates:
        private += [
            sequence.block_ids[step.depth - 1]
            for step in path(node)
            if step.block_id != sequence.block_ids[step.depth - 1]
        ]
    return private
