"""What is written: chunks, whole answers and log-probabilities."""

import math
from typing import Any

import orjson
import pytest

from tribar.core.errors import Internal
from tribar.core.fake_generator import BYTE_TOKENS
from tribar.core.requests import Delta, Finish, FinishReason, GenerateRequest, Prepared, TextPrompt, Timing, Usage
from tribar.core.sampling.params import TokenLogprobs, Wants
from tribar.gateway.answer import Choice, total_usage
from tribar.gateway.call import AnswerHead
from tribar.gateway.openai.call import OpenAiCall, Shows
from tribar.gateway.openai.chat_writer import ChatWriter
from tribar.gateway.openai.chunks import json_text
from tribar.gateway.openai.completion_writer import CompletionWriter
from tribar.gateway.openai.logprobs import TokenNames, chat_content, completion_logprobs
from tribar.gateway.vocabulary import Vocabulary

FINISH = Finish(FinishReason.LENGTH, Usage(3, 5, 2), Timing())


def events(data: bytes) -> list[dict[str, Any]]:
    assert data == b"" or data.endswith(b"\n\n")
    blocks = data.split(b"\n\n")[:-1]
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in blocks)
    return [orjson.loads(block.removeprefix(b"data: ")) for block in blocks]


def head(prompt: str = "xy", n: int = 2, wants: Wants = Wants(), **shows: Any) -> AnswerHead[OpenAiCall]:  # noqa: B008  (frozen)
    request = GenerateRequest(model='a "model"', prompt=TextPrompt(prompt), wants=wants)
    prepared = Prepared(request, len(prompt.encode()), tuple(prompt.encode()))
    return AnswerHead(OpenAiCall((request,), n, True, Shows(**shows)), [prepared] * n, Vocabulary(BYTE_TOKENS), "id", 5)


def chat_writer(*, include_usage: bool = False) -> ChatWriter:
    return ChatWriter(head(usage=include_usage))


@pytest.mark.parametrize("text", ["x", 'q"\\\n\r\x00', "é🫠", "a\u2028b\u2029c\x85d", "\x1c\x1d\x1e\x0b\x0c"])
def test_no_text_breaks_a_line(text: str) -> None:
    data = orjson.dumps(json_text(text))
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
    tail = writer.tail(Usage(3, 5, 2))
    (event,) = events(tail.removesuffix(b"data: [DONE]\n\n"))
    assert event["choices"] == []
    assert event["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert chat_writer().tail(Usage(3, 5, 2)) == b"data: [DONE]\n\n"
    assert all("usage" not in event for event in events(chat_writer().chunk(0, Delta(text="a", finish=FINISH))))


def test_completion_chunks_and_whole_agree() -> None:
    logprobs = [TokenLogprobs(byte, -1.0) for byte in "hé".encode()]
    pieces = [
        Delta(text="h", logprobs=(logprobs[0], logprobs[1])),
        Delta(text="é", logprobs=(logprobs[2],)),
        Delta(finish=FINISH),
    ]
    wants = Wants(logprobs=0)
    writer = CompletionWriter(head(wants=wants))
    chunks = [event["choices"][0] for piece in pieces for event in events(writer.chunk(0, piece))]
    choice = Choice()
    for piece in pieces:
        choice.add(piece)
    whole = orjson.loads(CompletionWriter(head(wants=wants)).whole([choice], Usage()))["choices"][0]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"] == "hé"
    assert [chunk["finish_reason"] for chunk in chunks] == [None, None, "length"]
    assert whole["finish_reason"] == "length"
    for key, values in whole["logprobs"].items():
        assert [value for chunk in chunks if chunk["logprobs"] for value in chunk["logprobs"][key]] == values
    assert whole["logprobs"]["text_offset"] == [0, 1, 2]


def test_logprobs_are_finite_and_distinct() -> None:
    """BUG-015: equal texts stay apart in the chat shape; the older shape keeps the likelier one."""
    names = TokenNames(Vocabulary([b"a", b"a", b"\xf0\x9f"]))
    entry = TokenLogprobs(2, 1e-7, (0, 1, 9), (-0.1, -0.2, -math.inf))
    (token,) = chat_content([entry], names)
    assert token["bytes"] == [0xF0, 0x9F]
    assert token["token"] == "\\xf0\\x9f"
    assert token["logprob"] == 0.0
    assert [(top["token"], top["logprob"]) for top in token["top_logprobs"]] == [("a", -0.1), ("a", -0.2), ("", -9999)]
    written, offset = completion_logprobs([(2, entry)], names, 4, 3)
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


def scored(text: str, logprob: float, n_top: int = 0) -> tuple[TokenLogprobs, ...]:
    tops = tuple(range(n_top)), tuple(-1.0 - k for k in range(n_top))
    return tuple(TokenLogprobs(byte, logprob, *tops) for byte in text.encode())


def echo_pieces(prompt: str) -> list[Delta]:
    """What an engine sends for a prompt that is scored and two words."""
    return [
        Delta("h", tuple(b"h"), scored("h", -1.0, 1), (None, *scored(prompt, -2.0, 2)[1:])),
        Delta("é", tuple("é".encode()), scored("é", -1.0, 1)),
        Delta(finish=FINISH),
    ]


def test_an_echoed_prompt_comes_first_whole_and_streamed() -> None:
    """Its first token has no log-probability; offsets run through prompt and output; cut to the asked alternatives."""
    prompt = "aéz"
    asked = head(prompt, 1, Wants(logprobs=1, prompt_logprobs=2), echo=True, prompt_logprobs=2)
    choice = Choice()
    writer, chunks = CompletionWriter(asked), []
    for piece in echo_pieces(prompt):
        choice.add(piece)
        chunks += [event["choices"][0] for event in events(writer.chunk(0, piece))]
    whole = orjson.loads(CompletionWriter(asked).whole([choice], Usage()))["choices"][0]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"] == "aézhé"
    assert chunks[0]["text"] == prompt
    for key, values in whole["logprobs"].items():
        assert [value for chunk in chunks if chunk["logprobs"] for value in chunk["logprobs"][key]] == values
    assert whole["logprobs"]["token_logprobs"] == [None, -2.0, -2.0, -2.0, -1.0, -1.0, -1.0]
    assert whole["logprobs"]["text_offset"] == [0, 1, 2, 2, 3, 4, 5]
    assert [top and len(top) for top in whole["logprobs"]["top_logprobs"]] == [None, 1, 1, 1, 1, 1, 1]
    first, second, *_ = whole["prompt_logprobs"]
    assert first is None
    own = str("é".encode()[0])
    assert second[own] == {"logprob": -2.0, "rank": None, "decoded_token": "bytes:\\xc3"}
    assert second["1"] == {"logprob": -2.0, "rank": 2, "decoded_token": "\x01"}


def test_tokens_that_are_not_in_the_echoed_text_have_offset_0() -> None:
    """A BOS that the tokenizer adds, and a space that it puts before the first word, precede the text."""
    vocabulary = Vocabulary([b"<s>", b" Hi", b" you"], frozenset({0}))
    request = GenerateRequest(model="m", prompt=TextPrompt("Hi you"), wants=Wants(logprobs=0, prompt_logprobs=0))
    call = OpenAiCall((request,), 1, False, Shows(echo=True))
    writer = CompletionWriter(AnswerHead(call, [Prepared(request, 3, (0, 1, 2))], vocabulary, "id", 5))
    entries = (None, TokenLogprobs(1, -1.0), TokenLogprobs(2, -1.0))
    choice = Choice(["!"], [1], [TokenLogprobs(1, -1.0)], entries, FINISH)
    written = orjson.loads(writer.whole([choice], Usage()))["choices"][0]
    assert written["text"] == "Hi you!"
    assert written["logprobs"]["tokens"] == ["<s>", " Hi", " you", " Hi"]
    assert written["logprobs"]["text_offset"] == [0, 0, 2, 6]


@pytest.mark.parametrize("make", [ChatWriter, CompletionWriter])
def test_token_ids_and_running_usage(make: Any) -> None:
    asked = head("xy", 1, token_ids=True, usage=True, continuous_usage=True)
    writer, chunks, choice = make(asked), [], Choice()
    for piece in [Delta("ab", (97, 98)), Delta(token_ids=(99,), finish=FINISH)]:
        choice.add(piece)
        chunks += events(writer.chunk(0, piece))
    ids = [chunk["choices"][0].get("token_ids", []) for chunk in chunks]
    assert [token_id for each in ids for token_id in each] == [97, 98, 99]
    first = chunks[0] | chunks[0]["choices"][0]
    assert first["prompt_token_ids"] == [120, 121]
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 2, 5]
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {2}
    whole = orjson.loads(make(asked).whole([choice], Usage()))
    assert whole["choices"][0]["token_ids"] == [97, 98, 99]
    assert (whole | whole["choices"][0])["prompt_token_ids"] == [120, 121]


def test_tokens_may_be_named_by_their_ids() -> None:
    names = TokenNames(Vocabulary(BYTE_TOKENS), as_ids=True)
    entry = TokenLogprobs(97, -1.0, (98,), (-2.0,))
    assert chat_content([entry], names)[0]["token"] == "token_id:97"
    written, _ = completion_logprobs([(97, entry)], names, 0, 1)
    assert (written["tokens"], written["top_logprobs"]) == (["token_id:97"], [{"token_id:98": -2.0}])
