"""``tools``, ``tool_choice`` and ``parallel_tool_calls``: bodies -> requests."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tribar.core.errors import InvalidRequest, TooLarge, TribarError, Unsupported
from tribar.core.fake_generator import FAKE_CARD
from tribar.core.requests import ChatPrompt, GrammarKind, ModelCard
from tribar.gateway.json_body import decode
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.openai.chat import ChatBody, chat_call
from tribar.gateway.openai.reading.choice_reader import Reading
from tribar.gateway.openai.tools import MAX_TOOL_BYTES, MAX_TOOLS

DECODER = msgspec.json.Decoder(ChatBody)
CARD = replace(FAKE_CARD, tool_format="hermes", reasoning_format="think")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def tool(name: str = "add", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def chat(card: ModelCard = CARD, **fields: Any) -> OpenAiCall:
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]} | fields
    return chat_call(decode(msgspec.json.encode(body), DECODER, 64), card, trace_id="t")


def prompt_of(call: OpenAiCall) -> ChatPrompt:
    prompt = call.requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


BAD: list[tuple[str, dict[str, Any]]] = [
    ("tools[0].type", {"tools": [{"type": "custom", "function": {"name": "a"}}]}),
    ("tools[0].type", {"tools": [{"function": {"name": "a"}}]}),
    ("tools[0].function", {"tools": [{"type": "function"}]}),
    ("tools[1].function.name", {"tools": [tool(), {"type": "function", "function": {}}]}),
    ("tools[0].function.name", {"tools": [tool("")]}),
    ("tools[0].function.name", {"tools": [tool("a b")]}),
    ("tools[0].function.name", {"tools": [tool("é")]}),
    ("tools[0].function.name", {"tools": [tool("add\n")]}),
    ("tools[0].function.name", {"tools": [tool("x" * 65)]}),
    ("tools[1].function.name", {"tools": [tool(), tool()]}),
    ("tools[0].function.parameters", {"tools": [tool(parameters=[])]}),
    ("tools[0].function.parameters", {"tools": [tool(parameters={"type": "array"})]}),
    ("tools[0].function.parameters", {"tools": [tool(parameters={"properties": {}})]}),
    ("tools[0].function.strict", {"tools": [tool(strict="yes")]}),
    ("tools[0].function.returns", {"tools": [tool(returns={})]}),
    ("tools", {"tools": [tool(f"f{i}") for i in range(MAX_TOOLS + 1)]}),
    ("tools", {"tools": {}}),
    ("tools", {"tools": [tool(description="x" * MAX_TOOL_BYTES)]}),
    ("tool_choice", {"tools": [tool()], "tool_choice": "any"}),
    ("tool_choice.type", {"tools": [tool()], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}),
    ("tool_choice.name", {"tools": [tool()], "tool_choice": {"type": "function", "name": "add"}}),
    ("tool_choice.function.name", {"tools": [tool()], "tool_choice": named("sub")}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tools": [], "tool_choice": named("add")}),
    ("parallel_tool_calls", {"tools": [tool()], "parallel_tool_calls": "no"}),
    ("functions", {"functions": [{"name": "add"}]}),
    ("function_call", {"tools": [tool()], "function_call": {"name": "add"}}),
]


@pytest.mark.parametrize(("param", "fields"), BAD)
def test_what_is_wrong_is_named(param: str, fields: dict[str, Any]) -> None:
    with pytest.raises(TribarError) as caught:
        chat(**fields)
    assert caught.value.status in {400, 413, 501}
    assert caught.value.param is not None
    assert caught.value.param == param or caught.value.param.startswith(f"{param}.")


def test_the_size_is_bounded() -> None:
    with pytest.raises(TooLarge):
        chat(tools=[tool(f"f{i}", description="x" * (MAX_TOOL_BYTES // 64)) for i in range(64)])
    assert len(prompt_of(chat(tools=[tool(f"f{i}") for i in range(MAX_TOOLS)])).tools or ()) == MAX_TOOLS


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": None, "tool_choice": "auto", "parallel_tool_calls": False},
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
        {"tools": [tool()], "tool_choice": "none"},
    ],
)
def test_without_tools_nothing_is_looked_for(fields: dict[str, Any]) -> None:
    """With ``none`` the model does not see the tools, so it has nothing to call."""
    assert chat(**fields) == chat()
    assert chat().reading == Reading(reasoning_format="think")
    assert chat(replace(CARD, tool_format=""), **fields) == chat()


@pytest.mark.parametrize("choice", [None, "auto", "required", named("add")])
def test_a_model_without_a_format_says_what_to_do(choice: Any) -> None:
    with pytest.raises(Unsupported, match="--tool-call-parser") as caught:
        chat(replace(CARD, tool_format=""), tools=[tool()], tool_choice=choice)
    assert caught.value.param == "tools"


def test_what_templates_see() -> None:
    tools = [tool("a", description="d", parameters=SCHEMA, strict=True), tool("b", description=None, parameters={})]
    assert prompt_of(chat(tools=tools)).tools == [
        {"type": "function", "function": {"name": "a", "description": "d", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "b", "parameters": {"type": "object", "properties": {}}}},
    ]


@pytest.mark.parametrize("choice", [None, "auto"])
def test_auto(choice: str | None) -> None:
    tools = [tool("a"), tool("b")]
    call = chat(tools=tools, tool_choice=choice)
    assert call.requests[0].grammar is None
    assert call.reading == Reading("hermes", frozenset({"a", "b"}), MAX_TOOLS, "think")
    assert chat(tools=tools, parallel_tool_calls=True) == call
    assert chat(tools=tools, parallel_tool_calls=False).reading.max_calls == 1


def test_required_and_named() -> None:
    """The answer begins with a call, so there is no thinking to read."""
    tools = [tool("a", parameters=SCHEMA), tool("b")]
    required = chat(tools=tools, tool_choice="required")
    one = chat(tools=tools, tool_choice="required", parallel_tool_calls=False)
    only_b = chat(tools=tools, tool_choice=named("b"))
    assert [call.reading.max_calls for call in (required, one, only_b)] == [MAX_TOOLS, 1, 1]
    assert {call.reading.reasoning_format for call in (required, one, only_b)} == {""}
    assert only_b.reading.tool_names == {"b"}
    grammars = [call.requests[0].grammar for call in (required, one, only_b)]
    sources = [grammar.source for grammar in grammars if grammar is not None and grammar.kind is GrammarKind.LARK]
    assert ['"\\n" call)*' in source for source in sources] == [True, False, False]
    assert ['\\"a\\"' in source for source in sources] == [True, True, False]
    assert all(prompt_of(call).tools == prompt_of(chat(tools=tools)).tools for call in (required, only_b))


def test_numbers_of_any_size_are_fine_in_schemas() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": -(10**30)}}}
    grammar = chat(tools=[tool(parameters=schema)], tool_choice="required").requests[0].grammar
    assert grammar is not None
    assert str(-(10**30)) in grammar.source


def test_the_thinking_of_earlier_turns() -> None:
    turn = {"role": "assistant", "content": "b", "reasoning_content": "a"}
    messages = [{"role": "user", "content": "x"}, turn]
    assert prompt_of(chat(messages=messages)).messages[1] == turn
    empty = [messages[0], {**turn, "reasoning_content": ""}]
    assert prompt_of(chat(messages=empty)).messages[1] == {"role": "assistant", "content": "b"}
    with pytest.raises(InvalidRequest) as caught:
        chat(messages=[{"role": "user", "content": "x", "reasoning_content": "a"}])
    assert caught.value.param == "messages[0].reasoning_content"


FORMAT = {"type": "json_object"}


@pytest.mark.parametrize("choice", [None, "auto"])
def test_tools_beside_a_format(choice: str | None) -> None:
    """One grammar of both, and no thinking in front of it."""
    call = chat(tools=[tool("a"), tool("b")], tool_choice=choice, response_format=FORMAT)
    names = frozenset({"a", "b"})
    assert call.reading == Reading("hermes", names, MAX_TOOLS, "", is_calls_or_answer=True)
    assert prompt_of(call) == prompt_of(chat(tools=[tool("a"), tool("b")]))
    grammar = call.requests[0].grammar
    assert grammar is not None
    assert (grammar.kind, grammar.param) == (GrammarKind.LARK, "response_format")
    one = chat(tools=[tool("a"), tool("b")], response_format=FORMAT, parallel_tool_calls=False)
    assert one.reading.max_calls == 1
    assert ["call)*" in made.source for made in (grammar, one.requests[0].grammar or grammar)] == [True, False]


@pytest.mark.parametrize("fields", [{"tools": [tool()], "tool_choice": "none"}, {"tools": []}])
def test_without_a_call_to_make_the_format_is_all(fields: dict[str, Any]) -> None:
    assert chat(**fields, response_format=FORMAT) == chat(response_format=FORMAT)


@pytest.mark.parametrize("source", ['start: "a"', 'root ::= "a"'])
@pytest.mark.parametrize("fields", [{"guided_grammar": None}, {"structured_outputs": {"grammar": None}}])
def test_grammars_cannot_be_joined_with_calls(source: str, fields: dict[str, Any]) -> None:
    """Law 4: neither is dropped silently."""
    given: dict[str, Any] = {n: source if value is None else {"grammar": source} for n, value in fields.items()}
    with pytest.raises(Unsupported, match="together are not supported") as refused:
        chat(tools=[tool()], **given)
    assert refused.value.param in {"guided_grammar", "structured_outputs.grammar"}
    assert chat(tools=[tool()], tool_choice="none", **given).requests[0].grammar is not None


@pytest.mark.parametrize("schema", ["{", "[1]", "12", "false", '{"x-guidance": 1}'])
def test_a_schema_that_cannot_be_joined_is_named(schema: str) -> None:
    with pytest.raises(InvalidRequest, match="schema is not") as refused:
        chat(tools=[tool()], guided_json=schema)
    assert refused.value.param == "guided_json"


@pytest.mark.parametrize("choice", ["required", named("add")])
def test_a_demanded_call_leaves_no_room_for_a_format(choice: Any) -> None:
    with pytest.raises(InvalidRequest, match="cannot follow response_format") as refused:
        chat(tools=[tool()], tool_choice=choice, response_format=FORMAT)
    assert refused.value.param == "tool_choice"


def test_what_follows_a_grammar_is_content() -> None:
    """Also where the chat template has begun a block of thinking: the first token belongs to the format already."""
    thinking = replace(CARD, reasoning_format="think")
    assert chat(thinking).reading.reasoning_format == "think"
    assert chat(thinking, response_format=FORMAT).reading.is_plain
