"""Tokenising without holding up the event loop."""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor

from tribar.core.errors import Overloaded
from tribar.core.requests import ChatPrompt, Prompt, TextPrompt
from tribar.engine.model_text import ModelText

INLINE_CHARACTERS = 4096
"""Up to here tokenising takes well under a millisecond and a thread would only add latency."""

TURN_CHARACTERS = 32
"""A turn takes as long to render, whatever it says, as so many characters take to be tokenised."""

MAX_PENDING = 256
"""Long prompts that may wait for a thread."""


class PromptEncoder:
    """Encodes short prompts at once and long ones in a small thread pool (the tokenizer releases the GIL)."""

    def __init__(self, text: ModelText, n_threads: int = 2) -> None:
        self._text = text
        self._executor = ThreadPoolExecutor(n_threads, thread_name_prefix="encode-prompt")
        self._n_pending = 0

    async def encode(self, prompt: Prompt, max_tokens: int | None) -> tuple[int, ...]:
        """The prompt's ids. Raises ``InvalidRequest``, and ``Overloaded`` when too many long prompts wait.

        What is certain to have more than ``max_tokens`` is refused without the work; the ids may still be more.
        """
        if _is_short(prompt):
            return self._text.encode_prompt(prompt, max_tokens)
        if self._n_pending >= MAX_PENDING:
            raise Overloaded(f"{MAX_PENDING} long prompts are waiting to be tokenised", retry_after_s=1.0)
        self._n_pending += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, self._text.encode_prompt, prompt, max_tokens)
        finally:
            self._n_pending -= 1

    def close(self) -> None:
        """Let the threads end; prompts that still wait for one are cancelled."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _is_short(prompt: Prompt) -> bool:
    match prompt:
        case TextPrompt(text):
            return len(text) <= INLINE_CHARACTERS
        case ChatPrompt():
            return not prompt.tools and _n_characters(prompt) <= INLINE_CHARACTERS
        case _:
            return True


def _n_characters(prompt: ChatPrompt) -> float:
    """What the template gets to see, turns included; endless where there are nested parts, not worth measuring."""
    n_characters = 0.0
    for values in (prompt.template_kwargs, *prompt.messages):
        n_characters += TURN_CHARACTERS
        for value in values.values():
            if isinstance(value, str):
                n_characters += len(value)
            elif not isinstance(value, bool | int | float | None):
                return math.inf
    return n_characters
