"""What is written: chunks, whole answers and log-probabilities."""

import math
from typing import Any

import orjson
import pytest

from tribar.core.errors import Internal
from tribar.core.fake_generator import BYTE_TOKENS
from tribar.core.requests import Delta, Finish, FinishReason, GenerateRequest, Prepared, TextPrompt, Timing, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.openai.answer import Choice, json_text, total_usage
from tribar.gateway.openai.chat_writer import ChatWriter
from tribar.gateway.openai.completion_writer import CompletionWriter
from tribar.gateway.openai.logprobs import chat_content, completion_logprobs
from tribar.gateway.openai.shared_fields import Call

FINISH = Finish(FinishReason.LENGTH, Usage(3, 5, 2), Timing())


def events(data: bytes) -> list[dict[str, Any]]:
    assert data == b"" or data.endswith(b"\n\n")
    blocks = data.split(b"\n\n")[:-1]
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in blocks)
    return [orjson.loads(block.removeprefix(b"data: ")) for block in blocks]


def chat_writer(*, include_usage: bool = False) -> ChatWriter:
    writer = ChatWriter("id", 5, 'a "model"', include_usage=include_usage, token_bytes=BYTE_TOKENS)
    request = GenerateRequest(model="m", prompt=TextPrompt("x"))
    writer.begin(Call((request,), 2, True, include_usage), [Prepared(request, 1)] * 2)
    return writer


@pytest.mark.parametrize("text", ["x", 'q"\\\n\r\x00', "é🫠", "a\u2028b\u2029c\x85d", "\x1c\x1d\x1e\x0b\x0c"])
def test_no_text_breaks_a_line(text: str) -> None:
    data = json_text(text)
    assert orjson.loads(data) == text
    assert len(data.decode().splitlines()) == 1
    written = chat_writer().chunk(0, Delta(text=text))
    assert events(written)[1]["choices"][0]["delta"] == {"content": text}


def test_chat_chunks() -> None:
    writer = chat_writer()
    first = events(writer.chunk(1, Delta(text="a")))
    assert first[0] == {
        "id": "id",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": 'a "model"',
        "choices": [
            {"index": 1, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        ],
    }
    assert [event["choices"][0]["delta"] for event in first[1:]] == [{"content": "a"}]
    assert events(writer.chunk(1, Delta(token_ids=(200,)))) == []
    last = events(writer.chunk(1, Delta(text="b", finish=FINISH)))
    assert [(e["choices"][0]["delta"], e["choices"][0]["finish_reason"]) for e in last] == [
        ({"content": "b"}, None),
        ({}, "length"),
    ]


def test_a_generation_without_text_still_has_role_and_finish() -> None:
    got = events(chat_writer().chunk(0, Delta(finish=FINISH)))
    assert [event["choices"][0]["finish_reason"] for event in got] == [None, "length"]
    assert got[0]["choices"][0]["delta"]["role"] == "assistant"


def test_usage_comes_only_where_asked() -> None:
    """BUG-006."""
    writer = chat_writer(include_usage=True)
    assert all(event["usage"] is None for event in events(writer.chunk(0, Delta(text="a", finish=FINISH))))
    (event,) = events(writer.usage_chunk(Usage(3, 5, 2)))
    assert event["choices"] == []
    assert event["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert all("usage" not in event for event in events(chat_writer().chunk(0, Delta(text="a", finish=FINISH))))


def test_completion_chunks_and_whole_agree() -> None:
    logprobs = [TokenLogprobs(byte, -1.0) for byte in "hé".encode()]
    pieces = [
        Delta(text="h", logprobs=(logprobs[0], logprobs[1])),
        Delta(text="é", logprobs=(logprobs[2],)),
        Delta(finish=FINISH),
    ]
    writer = CompletionWriter("id", 5, "m", include_usage=False, token_bytes=BYTE_TOKENS)
    chunks = [event["choices"][0] for piece in pieces for event in events(writer.chunk(0, piece))]
    choice = Choice()
    for piece in pieces:
        choice.add(piece)
    whole = orjson.loads(
        CompletionWriter("id", 5, "m", include_usage=False, token_bytes=BYTE_TOKENS).whole([choice], Usage())
    )["choices"][0]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"] == "hé"
    assert [chunk["finish_reason"] for chunk in chunks] == [None, None, "length"]
    assert whole["finish_reason"] == "length"
    for key, values in whole["logprobs"].items():
        assert [value for chunk in chunks if chunk["logprobs"] for value in chunk["logprobs"][key]] == values
    assert whole["logprobs"]["text_offset"] == [0, 1, 2]


def test_logprobs_are_finite_and_distinct() -> None:
    """BUG-015: equal texts stay apart in the chat shape; the older shape keeps the likelier one."""
    table = [b"a", b"a", b"\xf0\x9f"]
    entry = TokenLogprobs(2, 1e-7, (0, 1, 9), (-0.1, -0.2, -math.inf))
    (token,) = chat_content([entry], table)
    assert token["bytes"] == [0xF0, 0x9F]
    assert token["token"] == "\\xf0\\x9f"
    assert token["logprob"] == 0.0
    assert [(top["token"], top["logprob"]) for top in token["top_logprobs"]] == [("a", -0.1), ("a", -0.2), ("", -9999)]
    written, offset = completion_logprobs([entry], table, 4)
    assert written["tokens"] == ["bytes:\\xf0\\x9f"]
    assert written["top_logprobs"] == [{"a": -0.1, "": -9999.0}]
    assert (written["text_offset"], offset) == ([4], 5)


def test_usage_counts_each_prompt_once() -> None:
    def finish(n_prompt: int, n_output: int, n_cached: int) -> Finish:
        return Finish(FinishReason.STOP, Usage(n_prompt, n_output, n_cached), Timing())

    finishes = [finish(3, 1, 0), finish(3, 2, 3), finish(5, 4, 1), finish(5, 8, 5)]
    assert total_usage(finishes, 2) == Usage(8, 15, 1)
    with pytest.raises(Internal, match="finish reason"):
        total_usage([finish(1, 1, 0), None], 1)
