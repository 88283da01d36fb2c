"""``/tokenize`` and ``/detokenize`` over HTTP, and bad bodies on every route that reads one."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.process.gateway.served import Served, post, read_all, serve

from tribar.core.fake_generator import FakeGenerator, speak
from tribar.gateway.config import GatewayConfig
from tribar.gateway.openapi import BODIES

TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(config=GatewayConfig(offload_bytes=50_000), fake=FakeGenerator(speak("hi"))) as served:
        yield served


def ask(served: Served, path: str, body: bytes | dict[str, Any]) -> tuple[int, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with served.connect(post(path, raw, "Connection: close")) as connection:
        head, _, answer = read_all(connection).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(answer)


def test_there_and_back(served: Served) -> None:
    text = "wörld 🐟"
    told = {"count": 11, "max_model_len": 65536, "tokens": list(text.encode()), "token_strs": None}
    assert ask(served, "/tokenize", {"prompt": text}) == (200, told)
    assert ask(served, "/detokenize", {"tokens": told["tokens"], "model": "fake"}) == (200, {"prompt": text})
    assert ask(served, "/detokenize", {"tokens": []}) == (200, {"prompt": ""})
    _, named = ask(served, "/tokenize", {"prompt": "é", "return_token_strs": True})
    assert named["token_strs"] == ["bytes:\\xc3", "bytes:\\xa9"]
    _, chat = ask(served, "/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
    assert bytes(chat["tokens"]) == b"user: hi\n"


def test_large_texts_leave_the_loop(served: Served) -> None:
    """BUG-086: the answer is the same."""
    ids = list(b"x" * 60_000)
    assert ask(served, "/tokenize", {"prompt": "x" * 60_000})[1]["tokens"] == ids
    assert ask(served, "/detokenize", {"tokens": ids})[1] == {"prompt": "x" * 60_000}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": ""}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ("/tokenize", {"prompt": "x", "continue_final_message": True}, "continue_final_message"),
        ("/tokenize", {"prompt": "x" * 70_000}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "critic", "content": "x"}]}, "messages[0].role"),
        ("/tokenize", {"prompt": "x", "tools": [{"type": "function"}]}, "tools[0].function"),
        ("/tokenize", {"prompt": "x", "tools": [TOOL]}, "tools"),
        ("/tokenize", {"prompt": "x", "model": "none"}, "model"),
        ("/detokenize", {"tokens": [1, 256]}, "tokens[1]"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_bad_requests_name_the_field(served: Served, path: str, body: dict[str, Any], param: str) -> None:
    status, answer = ask(served, path, body)
    assert status in {400, 404, 501}
    assert answer["error"]["param"] == param


@pytest.mark.parametrize("path", sorted(set(BODIES) - {"/v1/cache/feedback"}))  # nothing is cached here
def test_bad_bodies_on_every_route(served: Served, path: str) -> None:
    """BUG-041, BUG-021: hostile or broken JSON is the client's fault, in the route's own shape."""
    for body in (b"", b"[]", b"{", b"null", b"[" * 10_000, b'{"inputs":"\\ud800"}', b'{"a":1,"a":2}', b'{"unknown":1}'):
        status, answer = ask(served, path, body)
        assert status in {400, 422}
        assert isinstance(answer["error"], str) == ("error_type" in answer)


def test_several_models_have_to_be_named() -> None:
    with serve(one=FakeGenerator(speak("a")), two=FakeGenerator(speak("b"))) as served:
        assert ask(served, "/tokenize", {"prompt": "x"})[1]["error"]["param"] == "model"
        assert ask(served, "/tokenize", {"prompt": "x", "model": "two"})[0] == 200
        assert ask(served, "/generate", {"inputs": "x"})[0] == 422


def test_a_long_answer_is_the_same_beside_the_loop(served: Served) -> None:
    """BUG-086: thousands of ids, with their names, do not hold up the event loop while they are written."""
    status, answer = ask(served, "/tokenize", {"prompt": "xy" * 2500, "return_token_strs": True})
    assert status == 200
    assert answer["count"] == len(answer["tokens"]) == 5000
    assert answer["token_strs"] == ["x", "y"] * 2500
