from typing import Any

import pytest

from tribar.core.errors import InvalidRequest
from tribar.runtime.text.chat_messages import join_parts, template_messages


def call(arguments: Any, name: str = "add") -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(**keys: Any) -> dict[str, Any]:
    return {"role": "assistant", **keys}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": [1, "x"]}', {"a": [1, "x"]}),
        ("null", {}),
        ("", {}),
        (" ", {}),
        (None, {}),
        ("{}", {}),
        ({"a": 1}, {"a": 1}),
        (f'{{"a": {10**30 + 1}}}', {"a": 10**30 + 1}),
    ],
)
def test_arguments_become_the_object_that_templates_expect(arguments: Any, expected: dict[str, Any]) -> None:
    """BUG-047."""
    message = template_messages([assistant(content=None, tool_calls=[call(arguments)])])[0]
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": expected}
    assert message["content"] == ""


@pytest.mark.parametrize(
    "arguments", ["{bad", '{"a":1', "[1]", "3", '"x"', [1], 3, '{"a": NaN}', "[" * 5000, '{"a": %s}' % ("1" * 5000)]
)
def test_bad_arguments_are_refused_by_name(arguments: Any) -> None:
    """BUG-047."""
    with pytest.raises(InvalidRequest) as caught:
        template_messages([{"role": "user", "content": "x"}, assistant(tool_calls=[call(arguments)])])
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize("tool_calls", [[], None])
def test_empty_tool_calls_are_absent(tool_calls: list[Any] | None) -> None:
    """BUG-047: templates test for the key."""
    assert template_messages([assistant(content="x", tool_calls=tool_calls)]) == [assistant(content="x")]


def test_nulls_are_absent() -> None:
    message = {"role": "user", "content": "x", "name": None}
    assert template_messages([message]) == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "42"}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": "42", "tool_call_id": ""}, "messages[0].tool_call_id"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, "messages[0].content[0]"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "", "content": "x"}, "messages[0].role"),
        (assistant(tool_calls=[{"id": "c1"}]), "messages[0].tool_calls[0].function"),
        (assistant(tool_calls=[call("{}", name=3)]), "messages[0].tool_calls[0].function"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_named(message: dict[str, Any], param: str) -> None:
    """BUG-022, BUG-047."""
    with pytest.raises(InvalidRequest) as caught:
        template_messages([message])
    assert caught.value.param == param


def test_no_messages_are_refused() -> None:
    """BUG-022."""
    with pytest.raises(InvalidRequest, match="messages"):
        template_messages([])


def test_the_callers_messages_stay_as_they_are() -> None:
    message = assistant(content=None, tool_calls=[call('{"a": 1}')])
    template_messages([message])
    assert message == assistant(content=None, tool_calls=[call('{"a": 1}')])


def test_parts_are_joined_by_lines() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert join_parts({"role": "user", "content": parts}) == {"role": "user", "content": "a\nb"}
    assert join_parts({"role": "user", "content": "x"}) == {"role": "user", "content": "x"}
