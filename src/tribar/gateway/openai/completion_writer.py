"""Answers of ``/v1/completions``: ``text_completion``, whole or in chunks."""

from collections.abc import Sequence
from typing import Any

import orjson

from tribar.core.requests import Delta, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.gateway.answer import Choice, finish_of
from tribar.gateway.call import AnswerHead
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.openai.chunks import ChunkFrame, answer_object, json_text, usage_object
from tribar.gateway.openai.logprobs import Scored, TokenNames, completion_logprobs, n_characters, prompt_logprobs

_KIND = "text_completion"

PromptLogprobs = Sequence[TokenLogprobs | None]


class CompletionWriter:
    """Implements ``AnswerWriter``. The last chunk of a choice carries the finish reason and no text.

    With ``echo`` the prompt is the first chunk of a choice, with its own log-probabilities.
    """

    def __init__(self, head: AnswerHead[OpenAiCall]) -> None:
        self._head = head
        self._shows = head.call.shows
        self._n_top = head.call.requests[0].wants.logprobs or 0
        self._has_logprobs = head.call.requests[0].wants.logprobs is not None
        self._names = TokenNames(head.vocabulary, self._shows.tokens_as_ids)
        self._frame = ChunkFrame(head, _KIND)
        self._offsets = [0] * len(head.prepared)
        self._opened: set[int] = set()

    def chunk(self, index: int, delta: Delta) -> bytes:
        """See ``AnswerWriter``."""
        events = self._opening(index, delta.prompt_logprobs or ())
        self._frame.count(index, delta)
        if delta.text or delta.logprobs:
            logprobs = self._logprobs(index, [(entry.token_id, entry) for entry in delta.logprobs])
            piece = {"text": json_text(delta.text), "logprobs": logprobs, "finish_reason": None}
            events += self._frame.event(index, piece | self._shows.ids(delta.token_ids))
        if delta.finish is not None:
            last = {"text": "", "logprobs": None, "finish_reason": delta.finish.reason}
            rest = () if delta.text or delta.logprobs else delta.token_ids
            events += self._frame.event(index, last | self._shows.ids(rest))
        return events

    def tail(self, usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        return self._frame.tail(usage)

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """See ``AnswerWriter``."""
        answer = answer_object(self._head, _KIND)
        written = [self._whole_choice(index, choice) for index, choice in enumerate(choices)]
        return orjson.dumps(answer | {"choices": written, "usage": usage_object(usage)})

    def _whole_choice(self, index: int, choice: Choice) -> dict[str, Any]:
        echoed, scored = self._echo(index, choice.prompt_logprobs)
        scored += [(entry.token_id, entry) for entry in choice.logprobs]
        written = {
            "index": index,
            "text": echoed + choice.text,
            "logprobs": self._logprobs(index, scored),
            "finish_reason": finish_of(choice.finish).reason,
        }
        if self._shows.prompt_logprobs is not None:
            entries = prompt_logprobs(choice.prompt_logprobs, self._head.vocabulary, self._shows.prompt_logprobs)
            written["prompt_logprobs"] = entries
        if self._shows.token_ids:
            written["prompt_token_ids"] = self._head.prompt_ids(index)
        return written | self._shows.ids(choice.token_ids)

    def _opening(self, index: int, entries: PromptLogprobs) -> bytes:
        """The chunk before the output of a choice: the echoed prompt and its ids, where asked for."""
        if index in self._opened:
            return b""
        self._opened.add(index)
        if not self._shows.echo and not self._shows.token_ids:
            return b""
        echoed, scored = self._echo(index, entries)
        piece: dict[str, Any] = {
            "text": json_text(echoed),
            "logprobs": self._logprobs(index, scored),
            "finish_reason": None,
        }
        if self._shows.token_ids:
            piece |= {"token_ids": [], "prompt_token_ids": self._head.prompt_ids(index)}
        return self._frame.event(index, piece)

    def _echo(self, index: int, entries: PromptLogprobs) -> tuple[str, list[Scored]]:
        """The prompt that comes before the output, with its tokens; both empty where it is not to be shown.

        Offsets are counted back from the prompt's end: what is not in the text (BOS, a space that the tokenizer puts
        in front) comes before its start.
        """
        if not self._shows.echo:
            return "", []
        text = self._head.prompt_text(index)
        if not self._has_logprobs:
            return text, []
        ids = self._head.prompt_ids(index)
        vocabulary = self._head.vocabulary
        self._offsets[index] = len(text) - sum(n_characters(vocabulary.token(token_id)) for token_id in ids)
        return text, list(zip(ids, entries, strict=True))

    def _logprobs(self, index: int, scored: Sequence[Scored]) -> dict[str, Any] | None:
        if not scored:
            return None
        written, self._offsets[index] = completion_logprobs(scored, self._names, self._offsets[index], self._n_top)
        return written
