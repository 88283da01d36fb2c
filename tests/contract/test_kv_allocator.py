"""The contract of ``KvAllocator``, for every implementation."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from tribar.core.ids import Uid
from tribar.core.sampling.params import SamplingParams
from tribar.engine.kv.base import Admission, KvAllocator
from tribar.engine.kv.contiguous import ContiguousKv
from tribar.engine.kv.paged import PagedKv
from tribar.engine.kv.prefix_cached import PrefixCachedKv
from tribar.engine.sequence import Sequence, from_submit
from tribar.wire.messages import Submit

BLOCK_SIZE = 4
MAX_MODEL_LEN = 24
N_BLOCKS = 25

Factory = Callable[[], KvAllocator]
FACTORIES: dict[str, Factory] = {
    "paged": lambda: PagedKv(N_BLOCKS, BLOCK_SIZE),
    "prefix_cached": lambda: PrefixCachedKv(N_BLOCKS, BLOCK_SIZE),
    "contiguous": lambda: ContiguousKv(N_BLOCKS, BLOCK_SIZE, MAX_MODEL_LEN),
}


@pytest.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
def kv(request: pytest.FixtureRequest) -> KvAllocator:
    factory: Factory = request.param
    return factory()


def make_sequence(number: int, ids: list[int]) -> Sequence:
    packed = np.array(ids, dtype="<i4").tobytes()
    submit = Submit(Uid(1, number), packed, SamplingParams(), max_tokens=MAX_MODEL_LEN)
    return from_submit(submit, number, 0.0, MAX_MODEL_LEN)


def compute(kv: KvAllocator, sequence: Sequence, n: int) -> None:
    """Compute and commit ``n`` more positions."""
    sequence.n_computed += n
    sequence.n_committed = sequence.n_computed
    if sequence.n_committed >= sequence.insert_at:
        kv.commit(sequence)


def release(kv: KvAllocator, sequence: Sequence) -> None:
    kv.release(sequence)
    sequence.n_computed = sequence.n_committed = 0


def test_admitted_sequence_covers_its_tokens_and_leaves_the_last_to_compute(kv: KvAllocator) -> None:
    for number in range(3):
        sequence = make_sequence(number, [7] * 8)
        assert kv.admit(sequence, 0, 8) is Admission.ADMITTED
        assert sequence.n_slots == len(sequence.block_ids) * BLOCK_SIZE >= 8
        assert sequence.n_computed < 8
        compute(kv, sequence, 8 - sequence.n_computed)
        kv.check([sequence])
        release(kv, sequence)
    kv.check([])
    assert kv.usage([]).n_used == 0


def test_growing_returns_the_new_end_of_the_table(kv: KvAllocator) -> None:
    sequence = make_sequence(0, [1, 2, 3])
    assert kv.admit(sequence, 0, 3) is Admission.ADMITTED
    before = list(sequence.block_ids)
    new = kv.grow(sequence, 9)
    assert new is not None
    assert sequence.block_ids == before + new
    assert sequence.n_slots >= 9
    kv.check([sequence])


def test_full_changes_nothing(kv: KvAllocator) -> None:
    residents: list[Sequence] = []
    while True:
        sequence = make_sequence(len(residents), [len(residents)] * 20)
        if kv.admit(sequence, len(residents), 20) is not Admission.ADMITTED:
            break
        residents.append(sequence)
    assert residents
    assert sequence.block_ids == []
    kv.check(residents)
    assert kv.usage(residents).n_used <= N_BLOCKS - 1


@pytest.mark.parametrize("name", ["paged", "prefix_cached"])
def test_admission_keeps_one_block_for_each_running_sequence(name: str) -> None:
    kv = FACTORIES[name]()
    n_tokens = (N_BLOCKS - 3) * BLOCK_SIZE
    assert kv.admit(make_sequence(0, [1] * n_tokens), 3, n_tokens) is Admission.FULL
    assert kv.admit(make_sequence(0, [1] * n_tokens), 2, n_tokens) is Admission.ADMITTED


def test_reset_leaves_residents_alone(kv: KvAllocator) -> None:
    sequence = make_sequence(0, list(range(10)))
    assert kv.admit(sequence, 0, 10) is Admission.ADMITTED
    compute(kv, sequence, 10)
    table = list(sequence.block_ids)
    kv.reset()
    kv.check([sequence])
    assert sequence.block_ids == table
    release(kv, sequence)
    usage = kv.usage([])
    assert usage.n_used == usage.n_cached == 0


def test_usage_counts_the_slots_of_a_lone_sequence(kv: KvAllocator) -> None:
    sequence = make_sequence(0, list(range(10)))
    assert kv.admit(sequence, 0, 10) is Admission.ADMITTED
    compute(kv, sequence, 9)
    usage = kv.usage([sequence])
    assert usage.n_blocks == N_BLOCKS - 1
    assert usage.slots_used == 9
    assert usage.slots_allocated == usage.n_used * BLOCK_SIZE == sequence.n_slots


@pytest.mark.parametrize("seed", range(3))
def test_random_use_never_shares_a_block_that_is_written(kv: KvAllocator, seed: int) -> None:
    """BUG-025: after each operation every block is accounted for, and only committed full blocks are shared."""
    rng = Random(seed)
    residents: list[Sequence] = []
    for number in range(700):
        dice = rng.random()
        if dice < 0.35:
            ids = [rng.choice([1, 2]) for _ in range(rng.randint(1, MAX_MODEL_LEN - 1))]
            sequence = make_sequence(number, ids)
            if kv.admit(sequence, len(residents), len(ids)) is Admission.ADMITTED:
                residents.append(sequence)
        elif dice < 0.8 and residents:
            grow_or_compute(rng, kv, rng.choice(residents))
        elif dice < 0.99 and residents:
            release(kv, residents.pop(rng.randrange(len(residents))))
        else:
            kv.reset()
        kv.check(residents)
        check_sharing(residents)
        usage = kv.usage(residents)
        assert 0 <= usage.slots_used <= usage.slots_allocated
        assert usage.n_used + usage.n_cached <= usage.n_blocks
    for sequence in residents:
        release(kv, sequence)
    kv.check([])
    assert kv.usage([]).n_used == 0


def grow_or_compute(rng: Random, kv: KvAllocator, sequence: Sequence) -> None:
    n_missing = len(sequence.ids) - sequence.n_computed
    if n_missing:
        compute(kv, sequence, rng.randint(1, n_missing))
    elif len(sequence.ids) < MAX_MODEL_LEN and kv.grow(sequence, len(sequence.ids) + 1) is not None:
        sequence.ids.append(rng.choice([1, 2]))


def check_sharing(residents: list[Sequence]) -> None:
    """A block in several tables stands at one index, is committed by all, and holds the same ids for all."""
    places: dict[int, list[tuple[Sequence, int]]] = {}
    for sequence in residents:
        for i, block_id in enumerate(sequence.block_ids):
            places.setdefault(block_id, []).append((sequence, i))
    for users in places.values():
        if len(users) > 1:
            assert len({tuple(sequence.ids[: (i + 1) * BLOCK_SIZE]) for sequence, i in users}) == 1
            assert all((i + 1) * BLOCK_SIZE <= sequence.n_committed for sequence, i in users)
