"""Answers in the shape of text-generation-inference."""

from typing import Any

import orjson
import pytest

from tribar.core.requests import Delta, Finish, FinishReason, GenerateRequest, Prepared, TextPrompt, Timing, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.answer import Choice
from tribar.gateway.call import AnswerHead
from tribar.gateway.tgi.call import TgiCall
from tribar.gateway.tgi.writer import TgiWriter
from tribar.gateway.vocabulary import Vocabulary

TOKENS = [b"Hi", b" \xf0\x9f", b"\x90\x9f", b"<end>"]
END = 3


def finish(reason: FinishReason, stop: str | None = None, end: bool = False) -> Finish:
    last = TokenLogprobs(END, -0.25, (END,), (-0.25,)) if end else None
    return Finish(reason, Usage(2, 4, 0), Timing(), stop, END if end else None, last)


def writer(**fields: Any) -> TgiWriter:
    request = GenerateRequest(model="m", prompt=TextPrompt("HiHi"))
    call = TgiCall((request,), 1, True, **fields)
    return TgiWriter(AnswerHead(call, [Prepared(request, 2, (0, 0))], Vocabulary(TOKENS, {END}), "id", 5))


def scored(*ids: int) -> tuple[TokenLogprobs, ...]:
    return tuple(TokenLogprobs(i, -1.0, (i,), (-1.0,)) for i in ids)


ENDED = Delta(finish=finish(FinishReason.STOP, end=True))
PIECES = [Delta("Hi", (0,), scored(0), (None, *scored(0))), Delta(" 🐟", (1, 2), scored(1, 2))]


def events(made: TgiWriter, pieces: list[Delta]) -> list[dict[str, Any]]:
    data = b"".join(made.chunk(0, piece) for piece in pieces) + made.tail(Usage())
    blocks = data.decode().split("\n\n")[:-1]
    assert all(block.startswith("data:{") for block in blocks)
    return [orjson.loads(block.removeprefix("data:")) for block in blocks]


def whole(made: TgiWriter, pieces: list[Delta]) -> Any:
    choice = Choice()
    for piece in pieces:
        choice.add(piece)
    return orjson.loads(made.whole([choice], Usage()))


def test_one_event_per_token() -> None:
    """BUG-001: a character split over two tokens is in the second; the end token comes last and is special."""
    got = events(writer(details=True, seed=7), [*PIECES, ENDED])
    assert [event["index"] for event in got] == [1, 2, 3, 4]
    assert [event["token"]["text"] for event in got] == ["Hi", " ", "🐟", "<end>"]
    assert [event["token"]["special"] for event in got] == [False, False, False, True]
    assert [event["generated_text"] for event in got] == [None, None, None, "Hi 🐟"]
    assert [event["details"] for event in got[:-1]] == [None, None, None]
    assert got[-1]["token"]["logprob"] == -0.25
    assert got[-1]["details"] == {"finish_reason": "eos_token", "generated_tokens": 4, "seed": 7, "input_length": 2}
    assert "top_tokens" not in got[0]
    assert got[:-1] == events(writer(), [*PIECES, ENDED])[:-1]
    assert events(writer(), [*PIECES, ENDED])[-1]["details"] is None


def test_the_last_token_ends_an_answer_by_length() -> None:
    last = Delta(" 🐟", (1, 2), scored(1, 2), finish=finish(FinishReason.LENGTH))
    got = events(writer(details=True, top_n=1), [PIECES[0], last])
    assert [event["generated_text"] for event in got] == [None, None, "Hi 🐟"]
    assert got[-1]["details"]["finish_reason"] == "length"
    assert got[0]["top_tokens"] == [{"id": 0, "text": "Hi", "logprob": -1.0, "special": False}]


def test_an_end_without_a_new_token_shows_nothing_more() -> None:
    got = events(writer(details=True), [*PIECES, Delta(finish=finish(FinishReason.STOP, "!"))])
    assert "".join(event["token"]["text"] for event in got) == "Hi 🐟"
    assert got[-1]["token"] == {"id": 2, "text": "", "logprob": 0.0, "special": True}
    assert got[-1]["generated_text"] == "Hi 🐟!"
    assert got[-1]["details"]["finish_reason"] == "stop_sequence"


def test_a_whole_answer() -> None:
    assert whole(writer(), [*PIECES, ENDED]) == {"generated_text": "Hi 🐟"}
    assert whole(writer(is_list=True, full_text=True), [*PIECES, ENDED]) == [{"generated_text": "HiHiHi 🐟"}]
    answer = whole(writer(details=True, prefill=True, top_n=1), [*PIECES, ENDED])
    details = answer["details"]
    assert details["prefill"] == [
        {"id": 0, "text": "Hi", "logprob": None},
        {"id": 0, "text": "Hi", "logprob": -1.0},
    ]
    assert [token["id"] for token in details["tokens"]] == [0, 1, 2, END]
    assert [[token["id"] for token in tokens] for tokens in details["top_tokens"]] == [[0], [1], [2], [END]]
    assert details["finish_reason"] == "eos_token"
    assert details["generated_tokens"] == 4
    assert whole(writer(details=True), [*PIECES, ENDED])["details"]["prefill"] == []


@pytest.mark.parametrize("text", ["a\u2028b\u2029c\x85d", "\n\n"])
def test_no_text_breaks_an_event(text: str) -> None:
    (event,) = events(writer(), [Delta(text, (0,), scored(0), finish=finish(FinishReason.LENGTH))])
    assert event["generated_text"] == text
