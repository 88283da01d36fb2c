"""Thinking between ``<think>`` and ``</think>`` at the start of an answer (DeepSeek R1, Qwen 3 and their kin)."""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from tribar.gateway.openai.reading.pieces import WHITESPACE, AnswerParser, HeldSpace, Piece, Reasoning, n_held

OPEN = "<think>"
CLOSE = "</think>"

_PROMPT_TAIL = 64
"""Bytes at the end of a prompt in which an opened block is looked for."""


class _At(Enum):
    START = auto()
    THINKING = auto()
    AFTER = auto()
    ANSWER = auto()


class ThinkParser:
    """Implements ``AnswerParser``: wraps the parser of what follows the thinking.

    ``is_open``: the prompt has opened the block already. Marks are looked for at the start only, and whitespace
    around the thinking is dropped. A block that is never closed is thinking to the end.
    """

    def __init__(self, answer: AnswerParser, *, is_open: bool) -> None:
        self._answer = answer
        self._buffer = ""
        self._lead: list[str] = []
        self._space = HeldSpace()
        self._has_thought = False
        self._at = _At.THINKING if is_open else _At.START
        self._steps: dict[_At, Callable[[], tuple[list[Piece], bool]]] = {
            _At.START: self._read_start,
            _At.THINKING: self._read_thinking,
            _At.AFTER: self._read_after,
            _At.ANSWER: self._read_answer,
        }

    def push(self, text: str) -> list[Piece]:
        """See ``AnswerParser``."""
        self._buffer += text
        pieces: list[Piece] = []
        goes_on = True
        while self._buffer and goes_on:
            more, goes_on = self._steps[self._at]()
            pieces += more
        return pieces

    def finish(self) -> list[Piece]:
        """See ``AnswerParser``."""
        rest, self._buffer = self._buffer, ""
        if self._at is _At.THINKING:
            return [*self._thought(rest), *self._answer.finish()]
        if self._at is _At.START:
            rest = "".join([*self._lead, rest])
        return [*self._answer.push(rest), *self._answer.finish()]

    def _read_start(self) -> tuple[list[Piece], bool]:
        """Whitespace in front is set aside, to be looked at once: it belongs to an answer without thinking."""
        text = self._buffer.lstrip(WHITESPACE)
        self._lead.append(self._buffer[: len(self._buffer) - len(text)])
        self._buffer = text
        if text.startswith(OPEN):
            self._buffer, self._at = text[len(OPEN) :], _At.THINKING
        elif OPEN.startswith(text):
            return [], False
        else:
            self._buffer, self._at = "".join([*self._lead, text]), _At.ANSWER
        return [], True

    def _read_thinking(self) -> tuple[list[Piece], bool]:
        text, found, after = self._buffer.partition(CLOSE)
        if found:
            self._buffer, self._at = after, _At.AFTER
            return self._thought(text), True
        n_certain = len(text) - n_held(text, CLOSE)
        self._buffer = text[n_certain:]
        return self._thought(text[:n_certain]), False

    def _thought(self, text: str) -> list[Piece]:
        """Whitespace is held back until more thinking follows it."""
        space, kept = self._space.split(text)
        if not kept:
            return []
        shown = space + kept if self._has_thought else kept.lstrip(WHITESPACE)
        self._has_thought = True
        return [Reasoning(shown)]

    def _read_after(self) -> tuple[list[Piece], bool]:
        self._buffer = self._buffer.lstrip(WHITESPACE)
        if self._buffer:
            self._at = _At.ANSWER
        return [], True

    def _read_answer(self) -> tuple[list[Piece], bool]:
        text, self._buffer = self._buffer, ""
        return self._answer.push(text), False


def opens_thinking(prompt_ids: Sequence[int] | None, token_bytes: Sequence[bytes]) -> bool:
    """Whether a prompt ends with an open block, as the chat templates of models that always think end it."""
    if prompt_ids is None or not token_bytes:
        return False
    tail = b"".join(_bytes_at(token_bytes, token_id) for token_id in prompt_ids[-_PROMPT_TAIL:])
    return tail.rstrip().endswith(OPEN.encode())


class ThinkingTokens:
    """Counts the tokens of the thinking, marks included, from their bytes; 0 where the vocabulary is not known."""

    def __init__(self, token_bytes: Sequence[bytes], *, is_open: bool) -> None:
        self.n_tokens = 0
        self._token_bytes = token_bytes
        self._is_open = is_open
        self._is_over = not token_bytes
        self._n_seen = 0
        self._tail = b""

    def push(self, ids: Sequence[int]) -> None:
        """Take in the tokens that follow."""
        for token_id in ids:
            if self._is_over:
                return
            self._read(_bytes_at(self._token_bytes, token_id))

    def _read(self, data: bytes) -> None:
        self._n_seen += 1
        self._tail += data
        if not self._is_open:
            self._tail = self._tail.lstrip()
            self._is_open = self._tail.startswith(OPEN.encode())
            self._is_over = not self._is_open and not OPEN.encode().startswith(self._tail)
        if self._is_open:
            self.n_tokens = self._n_seen
            self._is_over = CLOSE.encode() in self._tail
            self._tail = self._tail[-len(CLOSE) :]


def _bytes_at(token_bytes: Sequence[bytes], token_id: int) -> bytes:
    return token_bytes[token_id] if token_id < len(token_bytes) else b""
