import asyncio
import threading

import pytest
from tests.unit.engine.client_rig import byte_text

from tribar.core.errors import InvalidRequest, Overloaded
from tribar.core.requests import ChatPrompt, IdsPrompt, Prompt, TextPrompt
from tribar.engine import prompt_encoder
from tribar.engine.prompt_encoder import INLINE_CHARACTERS, PromptEncoder
from tribar.runtime.fake.text import ByteTokenizer

LONG = "x" * (INLINE_CHARACTERS + 1)


class ThreadNoting:
    """Says which thread encoded; waits for ``go`` first when that is another one."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.threads: list[threading.Thread] = []

    @property
    def tokenizer(self) -> ByteTokenizer:
        return byte_text().tokenizer

    @property
    def end_ids(self) -> frozenset[int]:
        return frozenset()

    def encode_prompt(self, prompt: Prompt, max_tokens: int | None = None) -> tuple[int, ...]:
        self.threads.append(threading.current_thread())
        if threading.current_thread() is not threading.main_thread():
            self.go.wait()
        return (1,)


async def test_short_prompts_are_encoded_at_once_and_long_ones_in_a_thread() -> None:
    """BUG-086: whatever makes them long."""
    text = ThreadNoting()
    text.go.set()
    encoder = PromptEncoder(text)
    short: list[Prompt] = [
        TextPrompt(LONG[1:]),
        ChatPrompt([{"role": "user", "content": "x" * 2000}, {"role": "assistant", "content": None}]),
        ChatPrompt([{"role": "user", "content": "x"}], template_kwargs={"enable_thinking": False, "effort": "low"}),
        IdsPrompt((1,) * 10_000),
    ]
    long: list[Prompt] = [
        TextPrompt(LONG),
        ChatPrompt([{"role": "user", "content": "x" * 2100}] * 2),
        ChatPrompt([{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
        ChatPrompt([{"role": "user", "content": "x"}], tools=[{"type": "function"}]),
        ChatPrompt([{"role": "user", "content": "x"}], template_kwargs={"effort": LONG}),
        ChatPrompt([{"role": "user", "content": "x"}], template_kwargs={"efforts": ["x"]}),
        ChatPrompt([{"role": "user", "content": ""}] * 128),
    ]
    for prompt in [*short, *long]:
        assert await encoder.encode(prompt, 8) == (1,)
    is_main = [thread is threading.main_thread() for thread in text.threads]
    assert is_main == [True] * len(short) + [False] * len(long)
    encoder.close()


async def test_the_event_loop_is_free_meanwhile_and_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_encoder, "MAX_PENDING", 4)
    text = ThreadNoting()
    encoder = PromptEncoder(text)
    tasks = [asyncio.create_task(encoder.encode(TextPrompt(LONG), 8)) for _ in range(4)]
    await asyncio.wait(tasks, timeout=0)
    with pytest.raises(Overloaded) as caught:
        await encoder.encode(TextPrompt(LONG), 8)
    assert caught.value.retry_after_s is not None
    assert await encoder.encode(TextPrompt("short"), 8) == (1,)
    text.go.set()
    assert await asyncio.gather(*tasks) == [(1,)] * 4
    assert await encoder.encode(TextPrompt(LONG), 8) == (1,)
    encoder.close()


async def test_errors_of_the_tokenizer_come_through() -> None:
    encoder = PromptEncoder(byte_text())
    with pytest.raises(InvalidRequest):
        await encoder.encode(TextPrompt(""), 8)
    encoder.close()
