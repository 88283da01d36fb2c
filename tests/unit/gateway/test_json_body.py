import random
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribar.core.errors import InvalidRequest
from tribar.gateway.json_body import MAX_NODES, MAX_VALUES, decode


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    a: float | None = None
    b: str | None = None
    free: Any = None


DECODER = msgspec.json.Decoder(Body)
ANYTHING = msgspec.json.Decoder(Any)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b'{"a":NaN}', "a", "NaN and Infinity"),
        (b'{"b":"x", "a" : -Infinity}', "a", "NaN and Infinity"),
        (b'{"a":1e400}', "a", "out of range"),
        (b'{"a":' + b"9" * 5000 + b"}", "a", "out of range"),
        (b'{"a":true}', "a", "got `bool`"),
        (b'{"b":"x\\ud800"}', "b", "lone surrogate"),
        (b'{"a":1,"b":"\\udfff"}', "b", "lone surrogate"),
        (b'{"a":1,"b":"\xff"}', "b", "not UTF-8"),
        (b'{"c":1}', "c", "unknown field 'c'"),
        (b'{"' + b"c" * 10**6 + b'":1}', "c" * 100, "unknown field"),
        (b'{"a":1,"a":2}', "a", "twice"),
        (b'{"a":1,"\\u0061":2}', "a", "twice"),
        (b'{"free":[{"x":1,"y":{"x":2},"x":3}]}', "x", "twice"),
        (b"[]", None, "expected `object`"),
        (b"", None, "empty"),
        (b'{"a":1} x', "a", "trailing"),
        (b'{"a"', None, "invalid JSON"),
        (b"\xef\xbb\xbf{}", None, "byte order mark"),
        ('{"a":1}'.encode("utf-16"), None, "byte order mark"),
        ('{"a":1}'.encode("utf-32-le"), None, "invalid JSON"),
        (b'{"free":' + b"[" * 64, None, "deeper than 64"),
        (b"[" * 2_000_000, None, "deeper than 64"),
    ],
)
def test_refused_by_name(body: bytes, param: str | None, words: str) -> None:
    """BUG-037, BUG-041: what is wrong, where, and an answer that itself encodes."""
    with pytest.raises(InvalidRequest) as caught:
        decode(body, DECODER, 64)
    assert caught.value.param == param
    assert words in caught.value.message
    assert len(caught.value.message) < 1000
    orjson.dumps([caught.value.message, caught.value.param])


@pytest.mark.parametrize(
    "body",
    [
        b'{"free":' + b"[" * 63 + b"]" * 63 + b"}",
        b'{"free":{"a":{"a":1},"b":{"a":1}},"a":1}',
        b'{"b":"a\\": \\"a\\":"}',
        b'{"b":"{[{["}',
        b' \n{"a"\t:null}\r\n',
        '{"b":"\\ud83e\\udee0 \U0001fae0"}'.encode(),
    ],
)
def test_accepted(body: bytes) -> None:
    assert decode(body, DECODER, 64) == msgspec.json.decode(body, type=Body)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
)


@given(JSON_VALUES)
def test_valid_json_always_passes(value: object) -> None:
    assert decode(orjson.dumps(value), ANYTHING, 1000) == value


def test_repeated_keys_are_found_wherever_they_are() -> None:
    """Against a slow oracle: the standard library's pairs hook."""
    import json

    def unique(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            raise KeyError

    def grow(rng: random.Random, depth: int) -> str:
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(['"a"', "1", '"\\""', '"a:"', "[]", '"\\\\"'])
        if rng.random() < 0.4:
            return "[" + ",".join(grow(rng, depth - 1) for _ in range(rng.randrange(3))) + "]"
        keys = [rng.choice("abcde") for _ in range(rng.randrange(4))]
        return "{" + " , ".join(f'"{key}" : {grow(rng, depth - 1)}' for key in keys) + "}"

    n_repeated = 0
    for seed in range(500):
        text = grow(random.Random(seed), 4)
        try:
            json.loads(text, object_pairs_hook=unique)
        except KeyError:
            n_repeated += 1
            with pytest.raises(InvalidRequest, match="twice"):
                decode(text.encode(), ANYTHING, 64)
        else:
            decode(text.encode(), ANYTHING, 64)
    assert 100 < n_repeated < 400


@pytest.mark.parametrize(
    "free",
    [
        b"[" + b"[]," * MAX_NODES + b"0]",
        b"[" + b"{}," * MAX_NODES + b"0]",
        b"{" + b",".join(b'"%d":0' % i for i in range(2 * MAX_NODES)) + b"}",
        b"[" + b"1," * (MAX_VALUES + 1) + b"0]",
        b"[" + b'"",' * (MAX_VALUES + 1) + b"0]",
        b'""' * (MAX_VALUES + MAX_NODES + 1),
    ],
)
def test_bodies_of_too_many_parts(free: bytes) -> None:
    """BUG-021, BUG-041: a million tiny objects are refused before one of them is made."""
    with pytest.raises(InvalidRequest, match="more than 131072 objects") as caught:
        decode(b'{"free":' + free + b"}", DECODER, 64)
    assert caught.value.code == "json_too_large"


def test_commas_in_text_are_no_parts() -> None:
    text = "," * (MAX_VALUES + 10) + "[{" * MAX_NODES
    assert decode(orjson.dumps({"b": text}), DECODER, 64).b == text
