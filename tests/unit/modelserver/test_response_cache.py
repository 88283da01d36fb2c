import random
from typing import Any

import numpy as np
import pytest

from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver import response_cache
from tribar.modelserver.response_cache import ENTRY_OVERHEAD_BYTES, CacheKey, ResponseCache


def tensor(values: Any, datatype: DataType = DataType.INT32, name: str = "INPUT") -> Tensor:
    return Tensor(name, datatype, np.array(values, datatype.dtype))


def key(cache: ResponseCache, request: InferRequest, version: str = "1", generation: int = 0) -> CacheKey:
    found = cache.key(request, version, generation)
    assert found is not None
    return found


REQUEST = InferRequest(model_name="m", inputs=[tensor([[1, 2]])], outputs=["OUTPUT"], parameters={"flag": True})


@pytest.mark.parametrize(
    "change",
    [
        {"model_name": "n"},
        {"inputs": [tensor([[1, 3]])]},
        {"inputs": [tensor([[1], [2]])]},
        {"inputs": [tensor([[1, 2]], DataType.UINT32)]},
        {"inputs": [tensor([[1, 2]], name="OTHER")]},
        {"inputs": [tensor([[1, 2]]), tensor([[1, 2]], name="OTHER")]},
        {"outputs": None},
        {"outputs": ["OUTPUT", "OTHER"]},
        {"parameters": {}},
        {"parameters": {"flag": 1}},
        {"parameters": {"flag": "True"}},
    ],
)
def test_whatever_the_answer_depends_on_makes_another_key(change: dict[str, Any]) -> None:
    cache = ResponseCache(100_000)
    cache.put(key(cache, REQUEST), [tensor([9])], {})
    assert cache.get(key(cache, REQUEST)) is not None
    assert cache.get(key(cache, REQUEST._replace(**change))) is None
    assert cache.get(key(cache, REQUEST, version="2")) is None
    assert cache.get(key(cache, REQUEST, generation=1)) is None


def test_what_the_answer_does_not_depend_on_makes_no_other_key() -> None:
    cache = ResponseCache(100_000)
    two = REQUEST._replace(inputs=[tensor([1]), tensor([2], name="OTHER")])
    cache.put(key(cache, two), [tensor([9])], {"p": 1})
    again = two._replace(id="7", priority=1, timeout_us=5, inputs=list(reversed(two.inputs)))
    found = cache.get(key(cache, again))
    assert found is not None
    assert found.outputs[0].data.tolist() == [9]
    assert found.parameters == {"p": 1}


def test_strings_are_told_apart_where_their_bytes_join_alike() -> None:
    cache = ResponseCache(100_000)
    split = REQUEST._replace(inputs=[tensor([b"ab", b"c"], DataType.BYTES)])
    cache.put(key(cache, split), [tensor([b"out"], DataType.BYTES)], {})
    assert cache.get(key(cache, split._replace(inputs=[tensor([b"a", b"bc"], DataType.BYTES)]))) is None
    assert cache.get(key(cache, split)) is not None


def test_an_entry_is_a_copy_that_nobody_writes() -> None:
    cache = ResponseCache(100_000)
    output = tensor([[1, 2], [3, 4]])
    cache.put(key(cache, REQUEST), [Tensor("OUTPUT", DataType.INT32, output.data[:1])], {})
    output.data[:] = 0
    found = cache.get(key(cache, REQUEST))
    assert found is not None
    data = found.outputs[0].data
    assert data.tolist() == [[1, 2]]
    assert data.base is None
    with pytest.raises(ValueError, match="read-only"):
        data[:] = 5


def test_sequences_and_giants_are_not_cached() -> None:
    cache = ResponseCache(4096)
    assert cache.key(REQUEST._replace(sequence_id=5), "1", 0) is None
    assert cache.key(REQUEST._replace(inputs=[tensor([0] * 2000)]), "1", 0) is None
    assert cache.put(key(cache, REQUEST), [tensor([0] * 2000)], {})
    assert len(cache) == 0
    assert cache.put(key(cache, REQUEST), [tensor([0])], {})
    assert not cache.put(key(cache, REQUEST), [tensor([0])], {}), "it is there already"


def test_bytes_are_bounded_and_the_least_recently_used_leave() -> None:
    entry_bytes = ENTRY_OVERHEAD_BYTES + 4 + 4
    cache = ResponseCache(3 * entry_bytes)
    keys = [key(cache, REQUEST._replace(inputs=[tensor([number])])) for number in range(4)]
    for number in range(3):
        cache.put(keys[number], [tensor([number])], {})
    assert cache.get(keys[0]) is not None
    cache.put(keys[3], [tensor([3])], {})
    assert [cache.get(one) is not None for one in keys] == [True, False, True, True]
    assert cache.n_bytes == 3 * entry_bytes

    rng = random.Random(0)
    for _ in range(500):
        request = REQUEST._replace(inputs=[tensor([rng.randrange(50)])])
        cache.put(key(cache, request), [tensor([0] * rng.randrange(300))], {})
        cache.check()


@pytest.mark.parametrize(
    ("values", "datatype", "n_bytes"),
    [([0] * 1000, DataType.INT32, 4000), ([b"abc"] * 1000, DataType.BYTES, 1000 * (3 + 56))],
)
def test_entries_up_to_the_bound_are_cached(
    values: Any, datatype: DataType, n_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is larger is not looked at: the event loop would wait."""
    for n_spare, is_cached in ((0, True), (-1, False)):
        monkeypatch.setattr(response_cache, "MAX_ENTRY_BYTES", ENTRY_OVERHEAD_BYTES + n_bytes + n_spare)
        cache = ResponseCache(100_000_000)
        assert (cache.key(REQUEST._replace(inputs=[tensor(values, datatype)]), "1", 0) is not None) is is_cached
        cache.put(key(cache, REQUEST._replace(inputs=[])), [tensor(values, datatype)], {})
        assert cache.n_bytes == (ENTRY_OVERHEAD_BYTES + n_bytes if is_cached else 0)
        cache.check()
