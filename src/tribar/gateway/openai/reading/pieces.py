"""What the text of an answer is made of once it has been read: thinking, content, and calls of tools."""

import secrets
from dataclasses import dataclass
from typing import Protocol

WHITESPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """Call ``index`` (from 0) of the function ``name`` begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments of call ``index``, as the model wrote them."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """Call ``index`` is over; a call without this piece was cut off."""

    index: int


Piece = Content | Reasoning | CallStart | CallArguments | CallEnd


class AnswerParser(Protocol):
    """Reads one answer as it arrives. However the text is cut, all pieces together say the same."""

    def push(self, text: str) -> list[Piece]:
        """What is certain now that ``text`` has been added."""
        ...

    def finish(self) -> list[Piece]:
        """What was held back; nothing is pushed afterwards."""
        ...


class HeldSpace:
    """Whitespace that is held back until it is known what follows. However it arrives, it is looked at once."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def split(self, text: str) -> tuple[str, str]:
        """The whitespace that was held, and ``text`` without what is held from now on; both empty where that is all."""
        kept = text.rstrip(WHITESPACE)
        held = self.take() if kept else ""
        self._held.append(text[len(kept) :])
        return held, kept

    def take(self) -> str:
        """What is held, and hold nothing any more."""
        held = "".join(self._held)
        self._held.clear()
        return held


class PieceList:
    """Gathers pieces: joins neighbours, numbers calls, and drops what is beyond ``max_calls``.

    Whitespace beside calls is no content: it is held back and dropped where a call or the end follows, unless there
    was no call at all, so that a plain answer stays as it is.
    """

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._n_calls = 0
        self._has_content = False
        self._space = HeldSpace()
        self._pieces: list[Piece] = []

    def content(self, text: str) -> None:
        """Text outside of calls."""
        space, kept = self._space.split(text)
        if not kept:
            return
        follows_call_only = self._n_calls > 0 and not self._has_content
        self._has_content = True
        self._add_content(kept.lstrip(WHITESPACE) if follows_call_only else space + kept)

    def start_call(self, name: str) -> None:
        """A call begins."""
        self._n_calls += 1
        if self._n_calls <= self._max_calls:
            self._pieces.append(CallStart(self._n_calls - 1, f"call_{secrets.token_hex(12)}", name))

    def arguments(self, text: str) -> None:
        """More of the arguments of the call that began last."""
        if not text or self._n_calls > self._max_calls:
            return
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, CallArguments):
            self._pieces[-1] = CallArguments(last.index, last.text + text)
        else:
            self._pieces.append(CallArguments(self._n_calls - 1, text))

    def end_call(self) -> None:
        """The call that began last is whole."""
        if self._n_calls <= self._max_calls:
            self._pieces.append(CallEnd(self._n_calls - 1))

    def finish(self) -> None:
        """Nothing follows."""
        space = self._space.take()
        if space and not self._n_calls:
            self._add_content(space)

    def take(self) -> list[Piece]:
        """The pieces since the last time."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def _add_content(self, text: str) -> None:
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, Content):
            self._pieces[-1] = Content(last.text + text)
        else:
            self._pieces.append(Content(text))


def n_held(text: str, marker: str) -> int:
    """How many characters at the end of ``text`` may become ``marker`` with what follows."""
    for n in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:n]):
            return n
    return 0
