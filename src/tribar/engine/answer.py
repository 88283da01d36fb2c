"""One request's tokens becoming text."""

from tribar.core.requests import ChatPrompt, Delta, Finish, FinishReason, GenerateRequest, Prompt, Timing, Usage
from tribar.core.sampling.params import TokenLogprobs
from tribar.engine.model_text import ModelText
from tribar.runtime.text.stop_strings import StopStrings
from tribar.wire.messages import Failed, Finished, Output, Terminal


class Answer:
    """Detokenises incrementally and watches for stop strings.

    Tokens are held back until they complete text that is certain to be shown, so no Delta ever ends in half a
    character or in what may become a stop string. Stop strings are looked for token by token: after a match
    ``n_tokens`` counts up to the token that completed it, and everything later is ignored.
    """

    def __init__(self, request: GenerateRequest, text: ModelText) -> None:
        self._detokenizer = text.tokenizer.detokenizer(
            skip_special=request.skip_special_tokens, continues=_continues_text(request.prompt)
        )
        self._stops = StopStrings(request.stop, request.include_stop_text) if request.stop else None
        self._min_tokens = request.sampling.min_tokens
        self._stop_token_ids = frozenset(request.stop_token_ids)
        self.n_tokens = 0
        self.matched: str | None = None
        self._text: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._prompt_logprobs: list[TokenLogprobs | None] | None = None

    def push(self, output: Output) -> None:
        """Take in new tokens; ``matched`` tells whether a stop string is complete now."""
        if output.prompt_logprobs is not None:
            self._prompt_logprobs = [*(self._prompt_logprobs or ()), *output.prompt_logprobs]
        if self.matched is not None:
            return
        n_taken = self._read(output.ids)
        self.n_tokens += n_taken
        self._ids += output.ids[:n_taken]
        if output.logprobs is not None:
            self._logprobs += output.logprobs[:n_taken]

    def _read(self, ids: list[int]) -> int:
        """Turn ids into text up to a stop string; how many were used."""
        if self._stops is None:
            self._text.append(self._detokenizer.push(ids))
            return len(ids)
        for n_read, token_id in enumerate(ids, start=1):
            piece = self._detokenizer.push((token_id,))
            if self.n_tokens + n_read >= self._min_tokens:
                piece, self.matched = self._stops.push(piece)
            self._text.append(piece)
            if self.matched is not None:
                return n_read
        return len(ids)

    def take(self) -> Delta | None:
        """The text that is ready and the tokens behind it; None while there is no text."""
        return self._delta(None) if any(self._text) else None

    def finish(self, terminal: Terminal, n_prompt: int) -> Delta:
        """The last Delta. After a stop string the answer is complete, however the engine ended the request.

        Otherwise ``terminal`` is a Finished.
        """
        if self.matched is None:
            self._flush()
        if self.matched is not None:
            return self._delta(self._finish_of_match(terminal, n_prompt))
        assert isinstance(terminal, Finished)
        end = terminal.stop_id
        stop = end if end in self._stop_token_ids else None
        usage = Usage(terminal.n_prompt, terminal.n_output, terminal.n_cached)
        return self._delta(Finish(terminal.reason, usage, terminal.timing, stop, end, terminal.stop_logprobs))

    def _flush(self) -> None:
        """Show what was held back; an unfinished character may still complete a stop string."""
        tail = self._detokenizer.flush()
        if self._stops is not None:
            tail, self.matched = self._stops.push(tail)
            if self.matched is None:
                tail += self._stops.flush()
        self._text.append(tail)

    def _finish_of_match(self, terminal: Terminal, n_prompt: int) -> Finish:
        n_cached = terminal.n_cached if isinstance(terminal, Finished) else 0
        timing = Timing() if isinstance(terminal, Failed) else terminal.timing
        return Finish(FinishReason.STOP, Usage(n_prompt, self.n_tokens, n_cached), timing, self.matched)

    def _delta(self, finish: Finish | None) -> Delta:
        prompt_logprobs = None if self._prompt_logprobs is None else tuple(self._prompt_logprobs)
        delta = Delta("".join(self._text), tuple(self._ids), tuple(self._logprobs), prompt_logprobs, finish)
        self._text.clear()
        self._ids.clear()
        self._logprobs.clear()
        self._prompt_logprobs = None
        return delta


def _continues_text(prompt: Prompt) -> bool:
    """Whether the answer goes on in the middle of a text, where a leading space is part of it."""
    return not isinstance(prompt, ChatPrompt) or prompt.continue_final_message
