"""Vectors in this process' memory, searched without a graph or a tree: signatures first, then the vectors themselves.

A signature has one bit for each of 512 random directions: the side of it on which the vector lies. Two vectors at an
angle t differ in a share t / pi of the bits (Charikar, "Similarity Estimation Techniques from Rounding Algorithms",
2002), so counting differing bits, 64 at a time, orders vectors by their angle, give or take some 2 % of the bits. The
first ``SHORTLIST`` of this order are compared by their cosines. An insertion or a deletion costs one row, and a row
64 bytes and two for each dimension. Up to ``SHORTLIST`` vectors the search is exact.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tribar.core.errors import Internal
from tribar.core.ports import Neighbour

SIGNATURE_WORDS = 8
SIGNATURE_BITS = 64 * SIGNATURE_WORDS
SHORTLIST = 256

INLINE_ROWS = 4096
"""Partitions with more rows are searched in a thread."""

_FIRST_CAPACITY = 16

T = TypeVar("T")


class MemoryVectorIndex:
    """Implements ``VectorIndex`` for at most ``max_vectors`` in all partitions.

    Full, it forgets the one that has not been the nearest of a search for longest.

    One thread does whatever takes long; it and the event loop never work at the same time on one index.
    """

    def __init__(self, max_vectors: int) -> None:
        self._max_vectors = max_vectors
        self._partitions: dict[str, _Partition] = {}
        self._places: OrderedDict[str, str] = OrderedDict()  # key -> partition, in the order of use
        self._directions: dict[int, NDArray[np.float32]] = {}
        self._thread = ThreadPoolExecutor(1, "vectors")
        self._turn = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def n_bytes(self) -> int:
        """Memory of the signatures and vectors."""
        return sum(partition.n_bytes for partition in self._partitions.values())

    async def insert(self, partition: str, key: str, vector: NDArray[np.float32]) -> None:
        """See ``VectorIndex``. Raises ``Internal`` for a dimension that the partition does not have."""
        async with self._turn:
            await self._run(self._n_rows(partition), lambda: self._insert(partition, key, vector))

    async def search(self, partition: str, vector: NDArray[np.float32], k: int) -> Sequence[Neighbour]:
        """See ``VectorIndex``. Raises ``Internal`` for a dimension that the partition does not have."""
        async with self._turn:
            return await self._run(self._n_rows(partition), lambda: self._search(partition, vector, k))

    async def delete(self, keys: Sequence[str]) -> None:
        """See ``VectorIndex``."""
        async with self._turn:
            await self._run(len(self._places), lambda: self._delete_all(keys))

    def close(self) -> None:
        """End the thread. The index is of no use any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def check(self) -> None:
        """Assert that every key has its row and every row its key, and that bounds hold."""
        assert len(self._places) <= self._max_vectors
        rows = [(key, name) for name, partition in self._partitions.items() for key in partition.keys]
        assert sorted(rows) == sorted(self._places.items())
        for partition in self._partitions.values():
            partition.check()

    async def _run(self, n_rows: int, work: Callable[[], T]) -> T:
        """A caller that is cancelled leaves the thread at work; the next one has to wait for it all the same."""
        if n_rows <= INLINE_ROWS:
            return work()
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def _n_rows(self, partition: str) -> int:
        found = self._partitions.get(partition)
        return 0 if found is None else len(found.keys)

    def _insert(self, name: str, key: str, vector: NDArray[np.float32]) -> None:
        self._delete(key)
        if len(self._places) >= self._max_vectors:
            self._delete(next(iter(self._places)))
        partition = self._partitions.get(name)
        if partition is None:
            partition = self._partitions[name] = _Partition(self._directions_of(len(vector)))
        partition.add(key, vector)
        self._places[key] = name

    def _search(self, name: str, vector: NDArray[np.float32], k: int) -> list[Neighbour]:
        partition = self._partitions.get(name)
        found = [] if partition is None else partition.nearest(vector, k)
        if found:
            self._places.move_to_end(found[0].key)
        return found

    def _delete_all(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._delete(key)

    def _delete(self, key: str) -> None:
        name = self._places.pop(key, None)
        if name is None:
            return
        partition = self._partitions[name]
        partition.remove(key)
        if not partition.keys:
            del self._partitions[name]

    def _directions_of(self, dimension: int) -> NDArray[np.float32]:
        """Shape (dimension, SIGNATURE_BITS); the same for every partition of the dimension."""
        if dimension not in self._directions:
            normal = np.random.default_rng(dimension).standard_normal((dimension, SIGNATURE_BITS), np.float32)
            self._directions[dimension] = normal
        return self._directions[dimension]


class _Partition:
    """Rows 0 to n - 1 are in use: signatures by word, so that counting runs through memory, and vectors by row."""

    def __init__(self, directions: NDArray[np.float32]) -> None:
        self._directions = directions
        self.keys: list[str] = []
        self._rows: dict[str, int] = {}
        self._words = np.zeros((SIGNATURE_WORDS, _FIRST_CAPACITY), np.uint64)
        self._vectors = np.zeros((_FIRST_CAPACITY, len(directions)), np.float16)

    @property
    def n_bytes(self) -> int:
        """Memory of the arrays."""
        return self._words.nbytes + self._vectors.nbytes

    def add(self, key: str, vector: NDArray[np.float32]) -> None:
        self._check_dimension(vector)
        row = len(self.keys)
        if row == len(self._vectors):
            self._resize(2 * row)
        self.keys.append(key)
        self._rows[key] = row
        self._words[:, row] = self._signature(vector)
        self._vectors[row] = vector

    def remove(self, key: str) -> None:
        """The last row takes its place."""
        row, last = self._rows.pop(key), len(self.keys) - 1
        moved = self.keys.pop()
        if row != last:
            self.keys[row] = moved
            self._rows[moved] = row
            self._words[:, row] = self._words[:, last]
            self._vectors[row] = self._vectors[last]
        if _FIRST_CAPACITY < 4 * last <= len(self._vectors):
            self._resize(max(_FIRST_CAPACITY, 2 * last))

    def nearest(self, vector: NDArray[np.float32], k: int) -> list[Neighbour]:
        self._check_dimension(vector)
        rows = self._shortlist(vector)
        similarities = self._vectors[rows].astype(np.float32) @ vector
        order = np.argsort(-similarities, kind="stable")[:k]
        return [Neighbour(self.keys[rows[i]], float(similarities[i])) for i in order]

    def check(self) -> None:
        assert [self._rows[key] for key in self.keys] == list(range(len(self.keys)))
        assert len(self._rows) == len(self.keys) <= len(self._vectors)

    def _shortlist(self, vector: NDArray[np.float32]) -> NDArray[np.intp]:
        n = len(self.keys)
        if n <= SHORTLIST:
            return np.arange(n)
        n_differing = np.zeros(n, np.uint16)
        for words, word in zip(self._words[:, :n], self._signature(vector), strict=True):
            n_differing += np.bitwise_count(words ^ word)
        n_within = np.cumsum(np.bincount(n_differing, minlength=SIGNATURE_BITS + 1))
        limit = int(np.searchsorted(n_within, SHORTLIST))
        rows = np.flatnonzero(n_differing <= limit)
        if len(rows) <= 2 * SHORTLIST:
            return rows
        return rows[np.argpartition(n_differing[rows], SHORTLIST)[:SHORTLIST]]  # many are equally near

    def _signature(self, vector: NDArray[np.float32]) -> NDArray[np.uint64]:
        return np.packbits(vector @ self._directions > 0).view(np.uint64)

    def _resize(self, capacity: int) -> None:
        n = min(capacity, len(self.keys))
        words = np.zeros((SIGNATURE_WORDS, capacity), np.uint64)
        vectors = np.zeros((capacity, self._vectors.shape[1]), np.float16)
        words[:, :n], vectors[:n] = self._words[:, :n], self._vectors[:n]
        self._words, self._vectors = words, vectors

    def _check_dimension(self, vector: NDArray[np.float32]) -> None:
        if vector.shape != (len(self._directions),):
            raise Internal(f"a vector of shape {vector.shape} among vectors of {len(self._directions)} dimensions")
