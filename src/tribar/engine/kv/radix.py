"""The prefix cache: a tree with one node per full KV block.

A node stands for the tokens on its path from the root; its key among its siblings is (namespace, tokens of its
block) as bytes. The children are a dict, so a hit has compared the bytes themselves and not only a hash.

A holder (a running sequence) locks a whole path. Locks are therefore closed upwards: below an unlocked node nothing
is locked, every unlocked node can be evicted sooner or later, and ``n_evictable`` is a plain count.

The idea of a radix tree over KV blocks is RadixAttention (Zheng et al., SGLang, 2023, arXiv:2312.07104).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from tribar.core.errors import Internal
from tribar.core.ids import NULL_BLOCK, BlockId


@dataclass(slots=True, eq=False)
class Node:
    """One cached block. ``depth`` counts the blocks up to and including this one; the root has 0 and no block.

    ``is_attached`` turns false for good when the node cannot be reached from the tree's root any more (evicted, or
    cut off by ``reset``), so a remembered node can be trusted while it is true.
    """

    parent: "Node | None"
    key: bytes
    block_id: BlockId
    depth: int
    is_attached: bool = True
    n_locks: int = 0
    stamp: int = 0
    children: dict[bytes, "Node"] = field(default_factory=dict)


def path(node: Node) -> Iterator[Node]:
    """The nodes from ``node`` up to, but without, the root."""
    while node.parent is not None:
        yield node
        node = node.parent


def path_blocks(node: Node) -> list[BlockId]:
    """The blocks on the way to ``node``, first block first."""
    return [step.block_id for step in path(node)][::-1]


class RadixTree:
    """Owns the blocks of its nodes. Blocks that leave it are returned to the caller, who frees them.

    ``n_nodes`` counts all nodes that own a block, ``n_evictable`` those of them that nobody locks.
    """

    def __init__(self) -> None:
        self.root = Node(None, b"", NULL_BLOCK, 0)
        self.n_nodes = 0
        self.n_evictable = 0
        self._n_detached = 0
        self._clock = 0
        self._leaves: list[tuple[int, int, Node]] = []
        self._order = count()

    def match(self, keys: Iterable[bytes], start: Node | None = None) -> Node:
        """The deepest node reached by following ``keys`` from ``start`` (the root); neither locks nor touches."""
        node = start or self.root
        for key in keys:
            child = node.children.get(key)
            if child is None:
                break
            node = child
        return node

    def n_unlocked(self, node: Node) -> int:
        """How many nodes on the path to ``node`` would stop being evictable if it were locked."""
        n = 0
        for step in path(node):
            if step.n_locks:
                break
            n += 1
        return n

    def lock(self, node: Node) -> None:
        """Protect the path to ``node``, which must be attached, for one more holder."""
        for step in path(node):
            if step.n_locks == 0:
                self.n_evictable -= 1
            step.n_locks += 1

    def extend(self, node: Node, key: bytes, block_id: BlockId) -> Node:
        """Move a holder's lock from ``node`` one block deeper; returns the child, locked.

        A new child adopts ``block_id``: the tree owns it from here on. Where the child exists already, the tree
        keeps its own block and the caller keeps ``block_id`` (compare with the returned node's).
        """
        child = node.children.get(key)
        if child is None:
            child = Node(node, key, block_id, node.depth + 1, node.is_attached)
            node.children[key] = child
            self.n_nodes += 1
            self._n_detached += not node.is_attached
        elif child.n_locks == 0:
            self.n_evictable -= 1
        child.n_locks += 1
        return child

    def unlock(self, node: Node) -> list[BlockId]:
        """End one holder's lock and mark the path as used just now.

        Returns the blocks of nodes that ``reset`` had cut off and that nobody holds any more.
        """
        self._clock += 1
        released: list[BlockId] = []
        for step in path(node):
            if step.n_locks == 0:
                raise Internal("a prefix cache path was unlocked more often than locked")
            step.n_locks -= 1
            step.stamp = self._clock
            if step.n_locks:
                continue
            if step.is_attached:
                self.n_evictable += 1
                self._offer(step)
            else:
                self._n_detached -= 1
                released.append(self._remove(step))
        return released

    def evict(self, n: int) -> list[BlockId]:
        """Forget the ``n`` least recently used blocks (fewer if fewer are evictable), leaves first. O(n log nodes)."""
        evicted: list[BlockId] = []
        while self._leaves and len(evicted) < n:
            stamp, _, node = heappop(self._leaves)
            if not _is_evictable_leaf(node, stamp):
                continue
            parent = node.parent
            evicted.append(self._remove(node))
            self.n_evictable -= 1
            if parent is not None and parent.parent is not None and parent.n_locks == 0:
                self._offer(parent)
        return evicted

    def reset(self) -> list[BlockId]:
        """Forget everything. Locked nodes are cut off and die with their holders; the others' blocks are returned."""
        released: list[BlockId] = []
        for node in self._nodes():
            node.is_attached = False
            if node.n_locks:
                self._n_detached += 1
            else:
                released.append(self._remove(node))
        self.root.is_attached = False
        self.root = Node(None, b"", NULL_BLOCK, 0)
        self._leaves.clear()
        self.n_evictable = 0
        return released

    def blocks(self) -> list[BlockId]:
        """Blocks of all nodes that can be reached."""
        return [node.block_id for node in self._nodes()]

    def check(self) -> None:
        """Raise ``AssertionError`` where counts, locks, links or the queue of leaves contradict each other."""
        nodes = self._nodes()
        waiting = {(id(node), stamp) for stamp, _, node in self._leaves}
        assert len(nodes) == self.n_nodes - self._n_detached, "node count"
        assert sum(node.n_locks == 0 for node in nodes) == self.n_evictable, "evictable count"
        assert len({node.block_id for node in nodes}) == len(nodes), "a block has two nodes"
        for node in nodes:
            assert node.is_attached, "a node that can be reached is marked as cut off"
            assert node.block_id != NULL_BLOCK, "a node names the null block"
            assert node.parent is not None, "a second root"
            assert node.parent.children[node.key] is node, "parent and child disagree"
            assert node.depth == node.parent.depth + 1, "depth"
            assert node.n_locks >= sum(child.n_locks for child in node.children.values()), "a lock skips its parent"
            assert node.n_locks or node.children or (id(node), node.stamp) in waiting, "an idle leaf is not queued"

    def _nodes(self) -> list[Node]:
        """All nodes below the root, parents before children."""
        nodes = list(self.root.children.values())
        for node in nodes:
            nodes.extend(node.children.values())
        return nodes

    def _offer(self, node: Node) -> None:
        """Queue ``node`` for eviction if it is a leaf; entries that went stale are dropped when they surface."""
        if node.children:
            return
        heappush(self._leaves, (node.stamp, next(self._order), node))
        if len(self._leaves) > 64 + 2 * self.n_nodes:
            self._leaves = [entry for entry in self._leaves if _is_evictable_leaf(entry[2], entry[0])]
            heapify(self._leaves)

    def _remove(self, node: Node) -> BlockId:
        assert node.parent is not None
        del node.parent.children[node.key]
        node.is_attached = False
        self.n_nodes -= 1
        return node.block_id


def _is_evictable_leaf(node: Node, stamp: int) -> bool:
    return node.is_attached and not node.n_locks and not node.children and node.stamp == stamp
