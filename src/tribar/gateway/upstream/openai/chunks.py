"""The chunks of a streamed answer -> text, as the gateway's own readers expect it, and how it ended.

What a server has told apart, thinking and calls of tools, is written back in the form in which models write it
(``<think>``, ``<tool_call>``): whatever answers, the same readers take it apart for the caller.
"""

from typing import Any

import msgspec

from tribar.core.errors import TribarError, Unavailable
from tribar.core.requests import FinishReason, Usage
from tribar.gateway.upstream.openai.errors import stream_error

DONE = b"[DONE]"

_FINISHES = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    function: _Function | None = None


class _ChatDelta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[_ToolCall] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    delta: _ChatDelta | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | None = None


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None


_decoder = msgspec.json.Decoder(_Chunk)


class ChunkReader:
    """Reads one answer. ``shows_thinking``: whoever reads the text knows thinking from content."""

    def __init__(self, *, shows_thinking: bool) -> None:
        self.finish_reason: FinishReason | None = None
        self.usage: Usage | None = None
        self.stop: str | int | None = None
        self.n_pieces = 0
        """Chunks with text: about as many as tokens."""
        self._shows_thinking = shows_thinking
        self._is_thinking = False
        self._call: int | None = None
        self._has_arguments = False

    def read(self, data: bytes) -> str:
        """The text of one chunk. Raises the error that it holds, and ``Unavailable`` for what is no chunk."""
        try:
            chunk = _decoder.decode(data)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the stream holds what is no chunk of an answer: {error}") from error
        if chunk.error is not None or chunk.object == "error":
            raise _error_in(data)
        if chunk.usage is not None:
            self._count(chunk.usage)
        text = "".join(map(self._choice, chunk.choices[:1]))
        self.n_pieces += bool(text)
        return text

    def close(self) -> str:
        """What ends the text."""
        return self._end_thinking() + self._end_call()

    def _choice(self, choice: _Choice) -> str:
        text = choice.text or ""
        if choice.delta is not None:
            text += self._delta(choice.delta)
        if choice.finish_reason:
            self.finish_reason = _FINISHES.get(choice.finish_reason)
            if self.finish_reason is None:
                raise Unavailable(f"the answer was ended with the reason {choice.finish_reason[:50]!r}")
            self.stop = choice.stop_reason if choice.stop_reason is not None else choice.matched_stop
        return text

    def _delta(self, delta: _ChatDelta) -> str:
        parts = []
        thought = delta.reasoning_content or (delta.reasoning if isinstance(delta.reasoning, str) else "")
        if thought and self._shows_thinking:
            parts.append(("" if self._is_thinking else "<think>\n") + thought)
            self._is_thinking = True
        content = delta.content or delta.refusal
        if content:
            parts += [self._end_thinking(), self._end_call(), content]
        for call in delta.tool_calls or ():
            parts += [self._end_thinking(), self._tool_call(call)]
        return "".join(parts)

    def _tool_call(self, call: _ToolCall) -> str:
        function = call.function or _Function()
        index = call.index if call.index is not None else (self._call or 0) + bool(function.name)
        text = ""
        if function.name and index != self._call:
            name = msgspec.json.encode(function.name).decode()
            text = f'{self._end_call()}<tool_call>\n{{"name": {name}, "arguments": '
            self._call, self._has_arguments = index, False
        arguments = function.arguments or ""
        self._has_arguments = self._has_arguments or bool(arguments)
        return text + arguments

    def _end_thinking(self) -> str:
        if not self._is_thinking:
            return ""
        self._is_thinking = False
        return "\n</think>\n\n"

    def _end_call(self) -> str:
        if self._call is None:
            return ""
        self._call = None
        return ("" if self._has_arguments else "{}") + "}\n</tool_call>\n"

    def _count(self, usage: _Usage) -> None:
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details is not None else None
        self.usage = Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached or 0)


def _error_in(data: bytes) -> TribarError:
    return stream_error(msgspec.json.decode(data))
