import orjson
import pytest

from tribar.core.errors import InvalidRequest, TribarError, Unavailable
from tribar.core.requests import Delta, FinishReason, Usage
from tribar.gateway.openai.reading.choice_reader import ChoiceReader, Reading
from tribar.gateway.openai.reading.pieces import CallArguments, CallEnd, CallStart, Content, Reasoning
from tribar.gateway.upstream.openai.chunks import ChunkReader


def text_of(*deltas: dict[str, object], shows_thinking: bool = True) -> str:
    reader = ChunkReader(shows_thinking=shows_thinking)
    texts = [reader.read(orjson.dumps({"choices": [{"delta": delta}]})) for delta in deltas]
    return "".join(texts) + reader.close()


def test_plain_text_of_both_endpoints() -> None:
    reader = ChunkReader(shows_thinking=True)
    assert reader.read(b'{"choices":[{"text":"a"}]}') == "a"
    assert reader.read(b'{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}') == ""
    assert reader.read(b'{"choices":[{"delta":{"content":"b"},"finish_reason":"length"}]}') == "b"
    assert reader.read(b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}') == ""
    assert (reader.finish_reason, reader.usage) == (FinishReason.LENGTH, Usage(3, 2))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_comes_back_as_thinking(field: str) -> None:
    deltas: list[dict[str, object]] = [{field: "hm"}, {field: ", so"}, {"content": "Yes"}]
    reader = ChoiceReader(Reading(reasoning_format="think"), ())
    assert reader.read(Delta(text_of(*deltas))) == [Reasoning("hm, so"), Content("Yes")]
    assert text_of(*deltas, shows_thinking=False) == "Yes"
    assert text_of({field: "only"}) == "<think>\nonly\n</think>\n\n"


def test_calls_of_tools_come_back_as_calls() -> None:
    def call(index: int | None, name: str | None = None, arguments: str | None = None) -> dict[str, object]:
        return {"tool_calls": [{"index": index, "function": {"name": name, "arguments": arguments}}]}

    deltas: list[dict[str, object]] = [
        {"content": "Let me see. "},
        call(0, "weather", ""),
        call(0, None, '{"city": "Zü'),
        call(0, None, 'rich"}'),
        call(1, "now"),
    ]
    reading = Reading(tool_format="hermes", tool_names=frozenset({"weather", "now"}), max_calls=9)
    pieces = ChoiceReader(reading, ()).read(Delta(text_of(*deltas)))
    found = [piece if not isinstance(piece, CallStart) else (piece.index, piece.name) for piece in pieces]
    assert found == [
        Content("Let me see."),
        (0, "weather"),
        CallArguments(0, '{"city": "Zürich"}'),
        CallEnd(0),
        (1, "now"),
        CallArguments(1, "{}"),
        CallEnd(1),
    ]


def test_calls_without_an_index_are_told_apart_by_their_names() -> None:
    text = text_of(
        {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"tool_calls": [{"function": {"name": "g", "arguments": "{}"}}]},
    )
    assert text.count("<tool_call>") == text.count("</tool_call>") == 2


@pytest.mark.parametrize(
    ("document", "kind", "message"),
    [
        ({"error": {"message": "boom", "type": "server_error"}}, Unavailable, "boom"),
        ({"error": {"message": "bad n", "type": "BadRequestError", "code": 400}}, InvalidRequest, "bad n"),
        ({"error": {"message": "bad", "type": "invalid_request_error", "param": "n"}}, InvalidRequest, "bad"),
        ({"error": "TGI says no", "error_type": "generation"}, Unavailable, "TGI says no"),
        ({"object": "error", "message": "old", "code": 500}, Unavailable, "old"),
        ({"choices": [{"finish_reason": "abort"}]}, Unavailable, "abort"),
        ([1, 2], Unavailable, "no chunk"),
    ],
)
def test_an_error_in_the_stream(document: object, kind: type[TribarError], message: str) -> None:
    """BUG-013: never taken for an end."""
    with pytest.raises(kind, match=message) as caught:
        ChunkReader(shows_thinking=False).read(orjson.dumps(document))
    assert type(caught.value) is kind


@pytest.mark.parametrize("data", [b"{", b"null", b'{"choices": 5}', b"\xff"])
def test_what_is_no_chunk(data: bytes) -> None:
    with pytest.raises(Unavailable, match="no chunk"):
        ChunkReader(shows_thinking=False).read(data)
