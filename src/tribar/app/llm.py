"""``tribar.LLM``: the engine inside a Python program, for batches and single answers."""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tribar.app.accelerator import read_accelerator
from tribar.app.config import ServeConfig
from tribar.app.local_engine import LocalEngine
from tribar.app.machine import read_machine
from tribar.app.model import open_model
from tribar.app.resolve import resolve
from tribar.app.settings import config_from_keywords
from tribar.core.errors import Internal
from tribar.core.requests import (
    ChatPrompt,
    Delta,
    FinishReason,
    GenerateRequest,
    IdsPrompt,
    ModelCard,
    Prompt,
    TextPrompt,
    Timing,
    Usage,
)
from tribar.core.sampling.params import SamplingParams, TokenLogprobs
from tribar.runtime.sources import DEFAULT_MODEL, Progress
from tribar.runtime.sources.progress import silent

Message = Mapping[str, Any]

PATIENT: Mapping[str, object] = {"max_ttft": 0, "tpot_target_ms": 0}
"""Defaults of ``LLM`` that differ from a server's: a program waits for its whole batch and wants it done soon."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished answer. ``logprobs`` is parallel to ``token_ids`` where it was asked for, else empty."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    timing: Timing
    logprobs: tuple[TokenLogprobs, ...] = ()


class LLM:
    """A model loaded into this process. Use it as a context manager, or call ``close``.

    ::

        with tribar.LLM("model.gguf") as llm:
            print(llm.generate("Once upon a time", max_tokens=32)[0].text)

    ``options`` are those of ``tribar serve``'s model and engine, in Python spelling (``max_num_seqs=8``,
    ``kv_cache_memory="1GiB"``), with the defaults of ``PATIENT``. Raises a ``TribarError`` for options or models that
    cannot be used.

    Every method that generates takes ``sampling_params`` (default: what ``SamplingParams()`` says) and, as keywords,
    the further fields of ``GenerateRequest``: ``max_tokens`` (default: the room that is left), ``stop``,
    ``stop_token_ids``, ``ignore_eos``, ``grammar``, ``wants``, ...
    """

    def __init__(self, model: str = DEFAULT_MODEL, **options: object) -> None:
        self._start(config_from_keywords({"model": model, **PATIENT, **options}), silent)

    @classmethod
    def from_config(cls, config: ServeConfig, *, progress: Progress = silent) -> Self:
        """The same from composed settings; ``progress(done_bytes, total_bytes)`` follows a download."""
        llm = cls.__new__(cls)
        llm._start(config, progress)
        return llm

    def _start(self, config: ServeConfig, progress: Progress) -> None:
        opened = open_model(config.model, progress)
        accelerator = read_accelerator(config.engine.device, os.environ)
        resolved = resolve(config, read_machine(), opened.facts, accelerator)
        self._engine = LocalEngine(opened, resolved)
        self._text = opened.text
        self._card = self._engine.client.card()
        self._finalizer = weakref.finalize(self, self._engine.close)

    @property
    def card(self) -> ModelCard:
        """The model's name, sizes and limits."""
        return self._card

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        sampling_params: SamplingParams | None = None,
        *,
        on_done: Callable[[int], None] | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> list[Generation]:
        """One answer for each prompt, in order. A prompt is a text or a sequence of token ids.

        ``on_done(n)`` is called, from another thread, when ``n`` of them are finished. The first error is raised and
        ends the others.
        """
        requests = [self._request(prompt, sampling_params, fields) for prompt in _prompts(prompts)]
        return self._engine.call(self._generate_all(requests, on_done))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> list[Generation]:
        """The next turn of one conversation (a list of messages), or of several."""
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else messages
        prompts = [ChatPrompt(conversation) for conversation in conversations]  # type: ignore[arg-type]
        requests = [self._request(prompt, sampling_params, fields) for prompt in prompts]
        return self._engine.call(self._generate_all(requests, None))

    def stream(
        self,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> Generator[Delta, None, None]:
        """One answer piece by piece. A slow reader gets fewer, larger pieces; closing the generator stops it."""
        return self._stream(self._request(_prompt(prompt), sampling_params, fields))

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> Generator[Delta, None, None]:
        """The next turn of a conversation, piece by piece."""
        return self._stream(self._request(ChatPrompt(messages), sampling_params, fields))

    def encode(self, prompt: str | Sequence[Message]) -> tuple[int, ...]:
        """The token ids that a text, or a conversation, is given to the model as."""
        return self._text.encode_prompt(TextPrompt(prompt) if isinstance(prompt, str) else ChatPrompt(prompt))

    def close(self) -> None:
        """Free the model. Idempotent; also called when the object or the program goes away."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, prompt: Prompt, sampling: SamplingParams | None, fields: Mapping[str, Any]) -> GenerateRequest:
        return GenerateRequest(model=self.card.name, prompt=prompt, sampling=sampling or SamplingParams(), **fields)

    def _stream(self, request: GenerateRequest) -> Generator[Delta, None, None]:
        client = self._engine.client
        deltas = client.generate(self._engine.call(client.prepare(request)))
        try:
            while (delta := self._engine.call(_next(deltas))) is not None:
                yield delta
        finally:
            if not self._engine.is_closed:
                self._engine.call(deltas.aclose())

    async def _generate_all(
        self, requests: Sequence[GenerateRequest], on_done: Callable[[int], None] | None
    ) -> list[Generation]:
        """Enough at a time to keep the engine's batch full, not so many that its queue overflows."""
        room = asyncio.Semaphore(2 * self.card.max_num_seqs)
        n_done = 0

        async def one(request: GenerateRequest) -> Generation:
            nonlocal n_done
            async with room:
                generation = await self._generate(request)
            n_done += 1
            if on_done is not None:
                on_done(n_done)
            return generation

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(request)) for request in requests]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _generate(self, request: GenerateRequest) -> Generation:
        client = self._engine.client
        deltas = [delta async for delta in client.generate(await client.prepare(request))]
        finish = deltas[-1].finish if deltas else None
        if finish is None:
            raise Internal("the engine's answer has no end")
        return Generation(
            text="".join(delta.text for delta in deltas),
            token_ids=tuple(token for delta in deltas for token in delta.token_ids),
            finish_reason=finish.reason,
            usage=finish.usage,
            timing=finish.timing,
            logprobs=tuple(entry for delta in deltas for entry in delta.logprobs),
        )


async def _next(deltas: AsyncGenerator[Delta, None]) -> Delta | None:
    return await anext(deltas, None)


def _prompts(prompts: str | Sequence[Any]) -> list[Prompt]:
    """One prompt or several: a list of ints is one prompt, a list of anything else several."""
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [_prompt(prompts)]
    return [_prompt(prompt) for prompt in prompts]


def _prompt(prompt: str | Sequence[int]) -> Prompt:
    return TextPrompt(prompt) if isinstance(prompt, str) else IdsPrompt(tuple(int(token) for token in prompt))
