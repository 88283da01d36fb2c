"""Reading one choice: its deltas as pieces, its finish reason, and how many tokens went into thinking."""

from collections.abc import Sequence
from dataclasses import dataclass

from tribar.core.requests import Delta, Finish, FinishReason
from tribar.gateway.openai.reading.calls_or_answer import CallsOrAnswerParser
from tribar.gateway.openai.reading.formats import TOOL_FORMATS
from tribar.gateway.openai.reading.only_calls import OnlyCallsParser
from tribar.gateway.openai.reading.pieces import AnswerParser, CallEnd, CallStart, Piece
from tribar.gateway.openai.reading.plain import PlainParser
from tribar.gateway.openai.reading.thinking import ThinkingTokens, ThinkParser


@dataclass(frozen=True, slots=True)
class Reading:
    """What the text of an answer may hold beside content; by default nothing.

    ``tool_format`` is a key of ``TOOL_FORMATS`` or empty, ``reasoning_format`` is ``think`` or empty. Calls beyond
    ``max_calls`` are dropped. ``has_only_calls``: the answer was held to calls. ``is_calls_or_answer``: it was held to
    calls or, in their place, to something else, as ``calls_or_answer`` writes the grammar.
    """

    tool_format: str = ""
    tool_names: frozenset[str] = frozenset()
    max_calls: int = 0
    reasoning_format: str = ""
    has_only_calls: bool = False
    is_calls_or_answer: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether every text is content."""
        return not self.tool_format and not self.reasoning_format

    def parser(self, *, is_thinking: bool) -> AnswerParser:
        """A fresh parser. ``is_thinking``: the prompt has begun the thinking."""
        answer: AnswerParser = PlainParser()
        if self.tool_format:
            tool_format = TOOL_FORMATS[self.tool_format]
            answer = tool_format.make_parser(self.tool_names, self.max_calls)
            if self.has_only_calls or self.is_calls_or_answer:
                answer = OnlyCallsParser(answer)
            if self.is_calls_or_answer:
                answer = CallsOrAnswerParser(answer, ["".join(tool_format.head(name)) for name in self.tool_names])
        return ThinkParser(answer, is_open=is_thinking) if self.reasoning_format else answer


class ChoiceReader:
    """One choice, delta by delta; a whole answer is one delta."""

    def __init__(self, reading: Reading, token_bytes: Sequence[bytes], *, is_thinking: bool = False) -> None:
        self._parser = reading.parser(is_thinking=is_thinking)
        self._thinking = ThinkingTokens(token_bytes, is_open=is_thinking) if reading.reasoning_format else None
        self._n_started = self._n_ended = 0

    @property
    def n_reasoning_tokens(self) -> int:
        """Tokens of the thinking so far."""
        return 0 if self._thinking is None else self._thinking.n_tokens

    def read(self, delta: Delta) -> list[Piece]:
        """The pieces that ``delta`` makes certain, all that are left with the last one."""
        if self._thinking is not None:
            self._thinking.push(delta.token_ids)
        pieces = self._parser.push(delta.text)
        if delta.finish is not None:
            pieces += self._parser.finish()
        for piece in pieces:
            self._n_started += isinstance(piece, CallStart)
            self._n_ended += isinstance(piece, CallEnd)
        return pieces

    def finish_reason(self, finish: Finish) -> str:
        """``tool_calls`` where a call was made, unless the length cut it off."""
        is_cut = finish.reason is FinishReason.LENGTH and self._n_ended < self._n_started
        return "tool_calls" if self._n_started and not is_cut else finish.reason.value
