"""A ``ChatModel`` that runs in this process."""

from collections.abc import Generator, Sequence

from tribar.app.chat import Message
from tribar.app.llm import LLM
from tribar.core.sampling.params import SamplingParams


class LocalChat:
    """Talks to ``llm``, which stays the caller's. ``max_tokens`` bounds each answer."""

    def __init__(self, llm: LLM, *, temperature: float, max_tokens: int | None) -> None:
        self._llm = llm
        self._sampling = SamplingParams(temperature=temperature)
        self._max_tokens = max_tokens

    def stream_chat(self, messages: Sequence[Message]) -> Generator[str, None, None]:
        """See ``ChatModel``."""
        for delta in self._llm.stream_chat(messages, self._sampling, max_tokens=self._max_tokens):
            yield delta.text
