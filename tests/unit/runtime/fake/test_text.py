"""The byte tokenizer and template of fake models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribar.core.errors import InvalidRequest
from tribar.core.requests import ChatPrompt, IdsPrompt, TextPrompt
from tribar.runtime.fake.text import ByteText, load_fake_text

PICTURE = ChatPrompt([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ByteText:
    path = tmp_path_factory.mktemp("models") / "m.fake.json"
    path.write_text('{"specials": ["<|end|>", "<|user|>"], "vocab_size": 260}', encoding="utf-8")
    return load_fake_text(path)


@given(st.text())
def test_text_round_trips(text: ByteText, typed: str) -> None:
    assert text.tokenizer.decode(text.tokenizer.encode(typed)) == typed


def test_the_table_covers_the_vocabulary(text: ByteText) -> None:
    table = text.tokenizer.token_bytes
    assert text.tokenizer.vocab_size == len(table) == 260
    assert (table[65], table[255], table[256], table[257], table[259]) == (b"A", b"\xff", b"<|end|>", b"<|user|>", b"")
    assert text.tokenizer.special_ids == {256, 257}
    assert text.end_ids == {256}


def test_typed_special_tokens_are_plain_text(text: ByteText) -> None:
    """BUG-046."""
    ids = text.encode_prompt(TextPrompt("<|end|>"))
    assert max(ids) < 256
    assert text.tokenizer.decode([*ids, 256]) == "<|end|>"
    assert text.tokenizer.decode([256, 72], skip_special=False) == "<|end|>H"


def test_a_conversation_is_lines(text: ByteText) -> None:
    messages: list[dict[str, str]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ""},
    ]
    assert bytes(text.encode_prompt(ChatPrompt(messages))) == b"system: Be brief.\nuser: \nassistant: "
    assert bytes(text.encode_prompt(ChatPrompt(messages, add_generation_prompt=False))).endswith(b"user: \n")
    prefilled = ChatPrompt([*messages, {"role": "assistant", "content": "So"}], continue_final_message=True)
    assert bytes(text.encode_prompt(prefilled)).endswith(b"\nassistant: So")


def test_tools_are_described(text: ByteText) -> None:
    """No template ignores them silently."""
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    prompt = ChatPrompt([{"role": "user", "content": "hi"}], [tool])
    assert b'<tools>\n{"type": "function", "function": {"name": "add"' in bytes(text.encode_prompt(prompt))


@pytest.mark.parametrize(
    "prompt",
    [TextPrompt(""), IdsPrompt(()), IdsPrompt((-1,)), IdsPrompt((260,)), ChatPrompt([]), PICTURE],
)
def test_unusable_prompts_are_refused(text: ByteText, prompt: TextPrompt | IdsPrompt | ChatPrompt) -> None:
    """BUG-022."""
    with pytest.raises(InvalidRequest) as caught:
        text.encode_prompt(prompt)
    assert caught.value.param is not None
