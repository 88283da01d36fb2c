"""The stop watch of one request."""

from tribar.core.errors import TribarError
from tribar.core.ports import Clock
from tribar.core.requests import AbortReason, Finish, Timing, Usage
from tribar.engine.observer import EngineObserver, RequestReport


class RequestWatch:
    """Starts at construction and tells the observer about the first token and the end.

    Only the first end counts, so whoever comes last may report one without asking whether there was one.
    """

    def __init__(self, observer: EngineObserver, clock: Clock, n_prompt: int) -> None:
        self._observer = observer
        self._clock = clock
        self._n_prompt = n_prompt
        self._n_tokens = 0
        self._started_s = clock()
        self._ttft_s: float | None = None
        self._is_reported = False

    def tokens(self, n_tokens: int) -> None:
        """``n_tokens`` have arrived so far."""
        self._n_tokens = n_tokens
        if n_tokens > 0 and self._ttft_s is None:
            self._ttft_s = self._clock() - self._started_s
            self._observer.on_first_token(self._ttft_s)

    def finish(self, finish: Finish) -> None:
        """It ended by itself."""
        self._report(finish.reason.value, finish.usage, finish.timing)

    def fail(self, reason: AbortReason | TribarError, timing: Timing) -> None:
        """It was aborted or failed; ``timing`` is what the engine said about it, if anything."""
        word = reason.value if isinstance(reason, AbortReason) else type(reason).__name__
        self._report(word, Usage(self._n_prompt, self._n_tokens), timing)

    def _report(self, reason: str, usage: Usage, timing: Timing) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        e2e_s = self._clock() - self._started_s
        self._observer.on_finish(RequestReport(reason, usage, timing, e2e_s, self._ttft_s))
