"""The radix tree against a flat table of paths searched by brute force (Law 8, BUG-025)."""

from dataclasses import dataclass
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tribar.core.errors import Internal
from tribar.core.ids import BlockId
from tribar.engine.kv.radix import Node, RadixTree, path_blocks

Path = tuple[bytes, ...]
KEYS = [b"a", b"b", b"c"]


@dataclass
class Entry:
    block_id: int
    stamp: int = 0


@dataclass
class Holder:
    epoch: int
    path: Path
    node: Node


class BruteForce:
    """All paths ever inserted and not forgotten, by (epoch, path); a reset starts a new epoch."""

    def __init__(self) -> None:
        self.epoch = 0
        self.clock = 0
        self.entries: dict[tuple[int, Path], Entry] = {}
        self.holders: list[Holder] = []

    def match(self, keys: Path) -> Path:
        n = 0
        while n < len(keys) and (self.epoch, keys[: n + 1]) in self.entries:
            n += 1
        return keys[:n]

    def blocks(self, epoch: int, path: Path) -> list[int]:
        return [self.entries[epoch, path[: i + 1]].block_id for i in range(len(path))]

    def n_locks(self, epoch: int, path: Path) -> int:
        return sum(holder.epoch == epoch and holder.path[: len(path)] == path for holder in self.holders)

    def idle(self) -> list[Path]:
        return [path for epoch, path in self.entries if epoch == self.epoch and not self.n_locks(epoch, path)]

    def unlock(self, holder: Holder) -> set[int]:
        self.holders.remove(holder)
        self.clock += 1
        for i in range(len(holder.path)):
            self.entries[holder.epoch, holder.path[: i + 1]].stamp = self.clock
        return self._forget_dead()

    def evict(self, n: int) -> list[int]:
        evicted: list[int] = []
        while len(evicted) < n:
            leaves = [path for path in self.idle() if not self._has_children(path)]
            if not leaves:
                break
            oldest = min(leaves, key=lambda path: self.entries[self.epoch, path].stamp)
            evicted.append(self.entries.pop((self.epoch, oldest)).block_id)
        return evicted

    def reset(self) -> set[int]:
        self.epoch += 1
        return self._forget_dead()

    def _has_children(self, path: Path) -> bool:
        return any(e == self.epoch and len(p) == len(path) + 1 and p[:-1] == path for e, p in self.entries)

    def _forget_dead(self) -> set[int]:
        dead = [key for key in self.entries if key[0] != self.epoch and not self.n_locks(*key)]
        return {self.entries.pop(key).block_id for key in dead}


def one_operation(rng: Random, tree: RadixTree, brute: BruteForce, block_ids: "count[int]") -> None:
    dice = rng.random()
    if dice < 0.3:
        keys = tuple(rng.choices(KEYS, k=rng.randint(0, 5)))
        node = tree.match(keys)
        path = brute.match(keys)
        assert path_blocks(node) == brute.blocks(brute.epoch, path)
        assert tree.n_unlocked(node) == sum(not brute.n_locks(brute.epoch, path[: i + 1]) for i in range(len(path)))
        tree.lock(node)
        brute.holders.append(Holder(brute.epoch, path, node))
    elif dice < 0.6 and brute.holders:
        holder = rng.choice(brute.holders)
        key, block_id = rng.choice(KEYS), next(block_ids)
        holder.node = tree.extend(holder.node, key, BlockId(block_id))
        holder.path = (*holder.path, key)
        entry = brute.entries.setdefault((holder.epoch, holder.path), Entry(block_id))
        assert holder.node.block_id == entry.block_id
    elif dice < 0.85 and brute.holders:
        holder = rng.choice(brute.holders)
        assert set(tree.unlock(holder.node)) == brute.unlock(holder)
    elif dice < 0.99:
        n = rng.randint(1, 4)
        assert tree.evict(n) == brute.evict(n)
    else:
        assert set(tree.reset()) == brute.reset()


@settings(deadline=None, max_examples=50)
@given(rng=st.randoms(use_true_random=False))
def test_random_operations_agree_with_brute_force(rng: Random) -> None:
    """50 x 100 operations; hypothesis shrinks what fails to the fewest that do."""
    agree_with_brute_force(rng, 100)


@pytest.mark.parametrize("seed", range(5))
def test_long_random_use_agrees_with_brute_force(seed: int) -> None:
    agree_with_brute_force(Random(seed), 1000)


def agree_with_brute_force(rng: Random, n_operations: int) -> None:
    tree, brute, block_ids = RadixTree(), BruteForce(), count(1)
    for _ in range(n_operations):
        one_operation(rng, tree, brute, block_ids)
        tree.check()
        assert tree.n_nodes == len(brute.entries)
        assert tree.n_evictable == len(brute.idle())
        assert sorted(tree.blocks()) == sorted(
            entry.block_id for (epoch, _), entry in brute.entries.items() if epoch == brute.epoch
        )
        for holder in brute.holders:
            assert path_blocks(holder.node) == brute.blocks(holder.epoch, holder.path)


def insert(tree: RadixTree, keys: Path, first_block: int) -> Node:
    node = tree.root
    for i, key in enumerate(keys):
        node = tree.extend(node, key, BlockId(first_block + i))
    return node


def test_eviction_takes_the_end_of_the_least_recently_used_path() -> None:
    """BUG-035: leaves go first, so whatever is left of a prefix is contiguous from its start."""
    tree = RadixTree()
    tree.unlock(insert(tree, (b"a", b"b", b"c"), 1))
    tree.unlock(insert(tree, (b"x", b"y"), 11))
    assert tree.evict(1) == [3]
    assert tree.match((b"a", b"b", b"c")).depth == 2
    again = tree.match((b"a", b"b"))
    tree.lock(again)
    tree.unlock(again)
    assert tree.evict(2) == [12, 11]
    assert tree.evict(9) == [2, 1]
    assert tree.n_nodes == tree.n_evictable == 0


def test_unlocking_too_often_is_noticed() -> None:
    tree = RadixTree()
    node = insert(tree, (b"a",), 1)
    tree.unlock(node)
    with pytest.raises(Internal):
        tree.unlock(node)


def test_queue_of_leaves_stays_bounded_under_repeated_hits() -> None:
    tree = RadixTree()
    node = insert(tree, (b"a",), 1)
    tree.unlock(node)
    for _ in range(1000):
        tree.lock(node)
        tree.unlock(node)
        assert len(tree._leaves) <= 64 + 2 * tree.n_nodes
    tree.check()
    assert tree.evict(5) == [1]


def test_nodes_cut_off_by_reset_die_with_their_last_holder() -> None:
    tree = RadixTree()
    held = insert(tree, (b"a", b"b"), 1)
    tree.unlock(insert(tree, (b"x",), 11))
    assert tree.reset() == [11]
    assert not held.is_attached
    assert tree.match((b"a", b"b")) is tree.root
    deeper = tree.extend(held, b"c", BlockId(3))
    tree.check()
    assert tree.evict(9) == []
    assert tree.unlock(deeper) == [3, 2, 1]
    assert tree.n_nodes == 0
