"""Tools and thinking through the ``openai`` package, unmodified, against scripted generators."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import openai
import pydantic
import pytest
from tests.process.gateway.served import Served, serve

from tribar.core.fake_generator import FAKE_CARD, FakeGenerator, Step, speak
from tribar.core.requests import ChatPrompt, FinishReason, Prepared

ARGUMENTS = '{"city": "Zürich", "unit": "C"}'
HERMES_CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
LLAMA3_CALL = f'{{"name": "weather", "parameters": {ARGUMENTS}}}'
USER: dict[str, Any] = {"role": "user", "content": "Weather?"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}},
    },
}

REPLIES = {
    "once": f"Let me look.\n{HERMES_CALL}",
    "twice": f"{HERMES_CALL}\n{HERMES_CALL}",
    "thought": f"<think>\nHm.\n</think>\n\n{HERMES_CALL}",
    "pondering": "<think>Hm.</think>Done.",
    "broken": "<tool_call>{weather}</tool_call>",
    "21": "It is 21 °C.",
    "as JSON": '{"text": "<tool_call> is a mark"}',
}
OPENED = "<think>\n"
"""Ends the prompt like the template of a model that always thinks."""


def script(prepared: Prepared) -> Iterator[Step]:
    """The reply whose key is in the prompt, three characters at a time."""
    prompt = prepared.request.prompt
    assert isinstance(prompt, ChatPrompt)
    content = str(prompt.messages[-1]["content"])
    text = next((reply for key, reply in REPLIES.items() if key in content), "Hi.")
    if content.endswith(OPENED):
        text = "Hm.</think>Done."
    reason = FinishReason.LENGTH if "short" in content else FinishReason.STOP
    if reason is FinishReason.LENGTH:
        text = text[: -len('C"}}\n</tool_call>')]
    return iter(speak(*(text[i : i + 3] for i in range(0, len(text), 3)), reason=reason)(prepared))


def llama3_script(prepared: Prepared) -> Iterator[Step]:
    text = f"{LLAMA3_CALL}; {LLAMA3_CALL}"
    return iter(speak(*text)(prepared))


@pytest.fixture(scope="module")
def fake() -> FakeGenerator:
    return FakeGenerator(script, replace(FAKE_CARD, tool_format="hermes", reasoning_format="think"))


@pytest.fixture(scope="module")
def served(fake: FakeGenerator) -> Iterator[Served]:
    llama3 = FakeGenerator(llama3_script, replace(FAKE_CARD, tool_format="llama3"))
    with serve(fake=fake, llama3=llama3, plain=FakeGenerator(script)) as served:
        yield served


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Any]:
    """Without its types: the tests send what the types forbid."""
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def ask(content: str, **fields: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": [{"role": "user", "content": content}], "tools": [WEATHER], **fields}


def streamed(client: Any, **fields: Any) -> tuple[Any, list[Any]]:
    """The stream's final answer as the client's own helper accumulates it, and its chunks."""
    with client.chat.completions.stream(**fields) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        return stream.get_final_completion().choices[0], chunks


def calls_of(message: Any) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or []]


@pytest.mark.parametrize(
    ("content", "text", "n_calls", "reason"),
    [
        ("once", "Let me look.", 1, "tool_calls"),
        ("twice", None, 2, "tool_calls"),
        ("thought", None, 1, "tool_calls"),
        ("broken", REPLIES["broken"], 0, "stop"),
        ("hello", "Hi.", 0, "stop"),
    ],
)
def test_auto(client: Any, content: str, text: str | None, n_calls: int, reason: str) -> None:
    whole = client.chat.completions.create(**ask(content)).choices[0]
    piecewise, chunks = streamed(client, **ask(content))
    for choice in (whole, piecewise):
        assert choice.message.content == text
        assert calls_of(choice.message) == [("weather", ARGUMENTS)] * n_calls
        assert choice.finish_reason == reason
        assert all(call.id.startswith("call_") and call.type == "function" for call in choice.message.tool_calls or [])
    ids = [call.id for call in whole.message.tool_calls or []]
    assert len(set(ids)) == n_calls
    fragments = [
        call.function.arguments
        for chunk in chunks
        for call in chunk.choices[0].delta.tool_calls or []
        if call.function.arguments
    ]
    assert "".join(fragments) == ARGUMENTS * n_calls
    assert len(fragments) >= 10 * n_calls
    shown = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert shown == (text or "")


def test_one_call_at_a_time(client: Any) -> None:
    choice = client.chat.completions.create(**ask("twice", parallel_tool_calls=False)).choices[0]
    assert calls_of(choice.message) == [("weather", ARGUMENTS)]
    assert calls_of(streamed(client, **ask("twice", parallel_tool_calls=False))[0].message) == [("weather", ARGUMENTS)]


def test_none(client: Any, fake: FakeGenerator) -> None:
    """The model does not see the tools; what it writes is text."""
    choice = client.chat.completions.create(**ask("once", tool_choice="none")).choices[0]
    assert choice.message.content == REPLIES["once"]
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"
    prompt = fake.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.tools is None


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_required_and_named(client: Any, fake: FakeGenerator, choice: Any) -> None:
    answer = client.chat.completions.create(**ask("once", tool_choice=choice)).choices[0]
    grammar = fake.requests[-1].grammar
    assert grammar is not None
    assert ('calls: call ("' if choice == "required" else "calls: call\n") in grammar.source
    assert calls_of(answer.message) == [("weather", ARGUMENTS)]
    assert answer.finish_reason == "tool_calls"


def test_beside_a_format(client: Any, fake: FakeGenerator) -> None:
    """The answer is calls, or follows the format; a mark within it is only text."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    for content, text, n_calls in (("as JSON", REPLIES["as JSON"], 0), ("twice", None, 2)):
        whole = client.chat.completions.create(**ask(content, response_format=form)).choices[0]
        piecewise = streamed(client, **ask(content, response_format=form))[0]
        grammar = fake.requests[-1].grammar
        assert grammar is not None
        assert grammar.param == "response_format"
        for choice in (whole, piecewise):
            assert choice.message.content == text
            assert calls_of(choice.message) == [("weather", ARGUMENTS)] * n_calls
            assert choice.finish_reason == ("tool_calls" if n_calls else "stop")


def test_a_call_that_was_cut_off_ends_by_length(client: Any) -> None:
    choice = client.chat.completions.create(**ask("once, short")).choices[0]
    assert choice.finish_reason == "length"
    ((name, arguments),) = calls_of(choice.message)
    assert name == "weather"
    assert ARGUMENTS.startswith(arguments)


def test_a_round_trip(client: Any, fake: FakeGenerator) -> None:
    """BUG-047: what came out goes back in as it is: content null, arguments a JSON string."""
    message = client.chat.completions.create(**ask("twice")).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "21"} for call in message.tool_calls]
    history = [USER, message.model_dump(exclude_none=True) | {"content": None}, *results]
    answer = client.chat.completions.create(model="fake", messages=history, tools=[WEATHER])
    assert answer.choices[0].message.content == REPLIES["21"]
    prompt = fake.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    assert [m["role"] for m in prompt.messages] == ["user", "assistant", "tool", "tool"]
    assert prompt.messages[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": ARGUMENTS}


class Weather(pydantic.BaseModel):
    city: str
    unit: Literal["C", "F"]


def test_parse_helpers(client: Any) -> None:
    tool = openai.pydantic_function_tool(Weather, name="weather")
    asked = {"model": "fake", "messages": [{"role": "user", "content": "once"}], "tools": [tool]}
    whole = client.chat.completions.parse(**asked).choices[0].message
    piecewise = streamed(client, **asked)[0].message
    for message in (whole, piecewise):
        assert message.tool_calls[0].function.parsed_arguments == Weather(city="Zürich", unit="C")


async def test_asynchronous_streams(served: Served) -> None:
    client: Any
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="-") as client:
        async with client.chat.completions.stream(**ask("twice", n=2)) as stream:
            done = [e.arguments async for e in stream if e.type == "tool_calls.function.arguments.done"]
            final = await stream.get_final_completion()
        whole = await client.chat.completions.create(**ask("twice", n=2))
    assert set(done) == {ARGUMENTS}
    for answer in (final, whole):
        assert [calls_of(choice.message) for choice in answer.choices] == [[("weather", ARGUMENTS)] * 2] * 2


def test_llama3(client: Any) -> None:
    asked = ask("x", model="llama3")
    for choice in (client.chat.completions.create(**asked).choices[0], streamed(client, **asked)[0]):
        assert calls_of(choice.message) == [("weather", ARGUMENTS)] * 2
        assert choice.message.content is None


def test_a_model_without_a_format_refuses(client: Any) -> None:
    with pytest.raises(openai.InternalServerError, match="--tool-call-parser") as caught:
        client.chat.completions.create(**ask("x", model="plain"))
    assert (caught.value.status_code, caught.value.param) == (501, "tools")


@pytest.mark.parametrize("content", ["pondering", f"x{OPENED}"])
def test_thinking(client: Any, content: str) -> None:
    """In the answer, or begun by the prompt."""
    text = REPLIES["pondering"] if content == "pondering" else "Hm.</think>Done."
    fields = {"model": "fake", "messages": [{"role": "user", "content": content}]}
    whole = client.chat.completions.create(**fields)
    assert whole.choices[0].message.reasoning_content == "Hm."
    assert whole.choices[0].message.content == "Done."
    assert whole.usage.completion_tokens_details.reasoning_tokens == len(text) - len("Done.")
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Hm."
    assert "".join(delta.content or "" for delta in deltas) == "Done."
    assert chunks[-1].usage == whole.usage


def test_logprobs_cover_every_token(client: Any) -> None:
    """Marks and arguments too, so that they always add up to the answer."""
    asked = ask("thought", logprobs=True)
    whole = client.chat.completions.create(**asked).choices[0]
    chunks = list(client.chat.completions.create(**asked, stream=True))
    streamed_tokens = [token for chunk in chunks if (lp := chunk.choices[0].logprobs) for token in lp.content]
    assert streamed_tokens == whole.logprobs.content
    assert bytes(byte for token in whole.logprobs.content for byte in token.bytes).decode() == REPLIES["thought"]


def test_arguments_are_json(client: Any) -> None:
    """BUG-047."""
    message = client.chat.completions.create(**ask("once")).choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Zürich", "unit": "C"}
