"""Stop strings in streamed text: nothing of a stop string leaks, whatever the pieces."""

from collections.abc import Sequence


class _Matcher:
    """Knuth-Morris-Pratt automaton of one pattern: ``n_matched`` is the longest prefix the text so far ends with."""

    __slots__ = ("_failure", "n_matched", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.n_matched = 0
        self._failure = [0] * len(pattern)
        border = 0
        for i in range(1, len(pattern)):
            while border and pattern[i] != pattern[border]:
                border = self._failure[border - 1]
            border += pattern[i] == pattern[border]
            self._failure[i] = border

    def step(self, character: str) -> bool:
        """Advance by one character; True when the whole pattern has just been seen."""
        n_matched = self.n_matched
        while n_matched and self.pattern[n_matched] != character:
            n_matched = self._failure[n_matched - 1]
        n_matched += self.pattern[n_matched] == character
        self.n_matched = n_matched
        return n_matched == len(self.pattern)


class StopStrings:
    """Watches one sequence's text for its stop strings.

    The match that is complete first wins, and among those complete at the same character the longest: the result
    does not depend on how the text is cut into pushes. Text that may be the start of a stop string is held back.
    Cost: amortised constant per character and stop, whatever the stops' length (Knuth, Morris, Pratt 1977).

    ``include`` emits the stop string itself too (never anything after it).
    """

    __slots__ = ("_held", "_include", "_matchers", "matched", "n_cut")

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        if any(not stop for stop in stops):
            raise ValueError("an empty stop string would match everywhere")
        self._matchers = [_Matcher(stop) for stop in stops]
        self._include = include
        self._held = ""
        self.matched: str | None = None
        """The stop string that ended the text, once there is one."""
        self.n_cut = 0
        """How many characters pushed so far were withheld for good: the stop string and what came after it."""

    def push(self, text: str) -> tuple[str, str | None]:
        """Add text; returns what is safe to emit and the stop string that has been matched, if any.

        After a match everything pushed is cut.
        """
        if self.matched is not None:
            self.n_cut += len(text)
            return "", self.matched
        for i, character in enumerate(text):
            complete = [m.pattern for m in self._matchers if m.step(character)]
            if complete:
                return self._finish(text, i + 1, max(complete, key=len))
        pending = self._held + text
        n_safe = len(pending) - max((m.n_matched for m in self._matchers), default=0)
        self._held = pending[n_safe:]
        return pending[:n_safe], None

    def flush(self) -> str:
        """The held back text, which turned out to be no stop string. Call once, at the end."""
        held, self._held = self._held, ""
        return held

    def _finish(self, text: str, end: int, stop: str) -> tuple[str, str]:
        """``text[:end]`` completes ``stop``, whose first characters may still be held."""
        seen = self._held + text[:end]
        safe = seen if self._include else seen[: len(seen) - len(stop)]
        self.n_cut = len(seen) - len(safe) + len(text) - end
        self.matched = stop
        self._held = ""
        return safe, stop
