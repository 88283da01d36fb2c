from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.runtime.text.vocabularies import CHATML, SPECIAL

from tribar.core.errors import BadModelFile, InvalidRequest
from tribar.core.requests import ChatPrompt
from tribar.runtime.text.chat_template import ChatTemplate
from tribar.runtime.text.control_shield import ControlShield

SHIELD = ControlShield(SPECIAL)
USER = {"role": "user", "content": "hi"}
PARTS = (
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}"
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}{{ m.content }}{% endfor %}"
)


def render(source: str, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
    rendered = ChatTemplate(source).render(ChatPrompt(messages, **options), SHIELD)
    return rendered.covered.restore(rendered.text)


def test_what_a_template_sees() -> None:
    source = "{{ messages[0].role }} {{ tools }} {{ documents }} {{ add_generation_prompt }} {{ bos_token }} {{ mood }}"
    template = ChatTemplate(source, special_tokens={"bos_token": "<s>"})
    prompt = ChatPrompt([USER], template_kwargs={"mood": "good"})
    assert template.render(prompt, SHIELD).text == "user None None True <s> good"


def test_tools_may_have_their_own_template() -> None:
    template = ChatTemplate("plain", tool_source="{{ tools[0].name }}")
    assert template.render(ChatPrompt([USER]), SHIELD).text == "plain"
    assert template.render(ChatPrompt([USER], tools=[]), SHIELD).text == "plain"
    assert template.render(ChatPrompt([USER], tools=[{"name": "add"}]), SHIELD).text == "add"


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        (["system", "user"], "System role not supported"),
        (["user", "user"], "must alternate"),
        (["assistant"], "must alternate"),
    ],
)
def test_the_templates_own_message_reaches_the_caller(roles: list[str], words: str) -> None:
    """BUG-045."""
    with pytest.raises(InvalidRequest, match=words) as caught:
        render(NO_SYSTEM, [{"role": role, "content": "x"} for role in roles])
    assert caught.value.param == "messages"


def test_error_messages_show_what_the_caller_wrote() -> None:
    with pytest.raises(InvalidRequest, match="no <s> here"):
        render("{{ raise_exception('no ' + messages[0].content + ' here') }}", [{"role": "user", "content": "<s>"}])


def test_one_failing_template_does_not_stop_the_next() -> None:
    """BUG-042."""
    template = ChatTemplate("{% if messages[0].role == 'critic' %}{{ raise_exception('no critics') }}{% endif %}ok")

    def outcome(role: str) -> str:
        try:
            return template.render(ChatPrompt([{"role": role, "content": "x"}]), SHIELD).text
        except InvalidRequest as error:
            return error.message

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(outcome, ["critic"] * 20 + ["user"]))
    assert all("no critics" in text for text in outcomes[:-1])
    assert outcomes[-1] == "ok"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 1 }}",
        "{{ undefined.attribute }}",
        "{{ messages[7].content }}",
        "{{ lipsum.__globals__ }}",
        "{{ cycler.__init__ }}",
        "{% for i in range(10**10) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_whatever_a_template_raises_is_a_bad_request(source: str) -> None:
    """BUG-042, BUG-049."""
    with pytest.raises(InvalidRequest, match="chat template"):
        render(source, [USER])


def test_rendering_is_bounded() -> None:
    """BUG-049."""
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = ChatTemplate("{% if messages[0].content == 'go' %}" + endless + "{% endif %}", time_limit_s=0.05)
    with pytest.raises(InvalidRequest, match="out of time"):
        template.render(ChatPrompt([{"role": "user", "content": "go"}]), SHIELD)
    with pytest.raises(InvalidRequest, match="more than 9 characters"):
        ChatTemplate("{{ messages[0].content }}", max_chars=9).render(
            ChatPrompt([{"role": "user", "content": "0123456789"}]), SHIELD
        )


@pytest.mark.parametrize(
    "source",
    ["{% for %}", "{{", "{% endif %}", "{{ x|nothing }}", "{% break %}", "x" * (1 << 20) + "x", "{{" + "(" * 9999],
)
def test_broken_templates_fail_at_load(source: str) -> None:
    with pytest.raises(BadModelFile, match="chat template"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "name", ["messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"]
)
def test_template_arguments_cannot_replace_the_conversation(name: str) -> None:
    """BUG-049: nor bring their own template."""
    with pytest.raises(InvalidRequest, match=name):
        render("x", [USER], template_kwargs={name: "x"})


def test_parts_go_to_templates_that_read_them_and_lines_to_the_others() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}]
    assert render(PARTS, messages) == "[user]ab"
    assert render(CHATML, messages, add_generation_prompt=False) == "<|im_start|>user\na\nb<|im_end|>\n"
    strings_only = "{% for m in messages %}{{ m.content if m.content is string }}{% endfor %}"
    assert render(strings_only, messages) == "a\nb"


@pytest.mark.parametrize("prefill", ["The answer is ", "  spaced  \n", "", "x", "<|im_end|>", "hi"])
@pytest.mark.parametrize("source", [CHATML, CHATML.replace("message['content']", "message['content'] | trim"), PARTS])
def test_a_prefill_ends_the_prompt_as_it_is(source: str, prefill: str) -> None:
    """BUG-048: no end of turn and no header after it, spaces at its end kept, also when it is empty."""
    messages = [USER, {"role": "assistant", "content": prefill}]
    text = render(source, messages, add_generation_prompt=False, continue_final_message=True)
    header = "[assistant]" if source is PARTS else "<|im_start|>assistant\n"
    kept = prefill.lstrip() if "trim" in source else prefill
    assert text.endswith(header + kept)
    assert text.count(header) == 1


def test_a_prefill_in_parts() -> None:
    """BUG-048."""
    messages: list[dict[str, Any]] = [USER, {"role": "assistant", "content": [{"type": "text", "text": "So "}]}]
    text = render(PARTS, messages, add_generation_prompt=False, continue_final_message=True)
    assert text == "[user]hi[assistant]So "
    assert messages[1]["content"] == [{"type": "text", "text": "So "}]


@pytest.mark.parametrize(
    ("source", "messages", "add_generation_prompt"),
    [
        (CHATML, [USER, {"role": "assistant", "content": "x"}], True),
        (CHATML, [USER], False),
        ("{{ messages[0].content }}", [USER, {"role": "assistant", "content": "x"}], False),
        (
            CHATML,
            [USER, {"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}],
            False,
        ),
    ],
)
def test_prefills_that_cannot_be(source: str, messages: list[dict[str, Any]], add_generation_prompt: bool) -> None:
    """BUG-048: both flags at once; no assistant message to continue; a template that drops it."""
    with pytest.raises(InvalidRequest) as caught:
        render(source, messages, add_generation_prompt=add_generation_prompt, continue_final_message=True)
    assert caught.value.param == "continue_final_message"
