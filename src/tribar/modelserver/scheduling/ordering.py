"""Responses in the order in which their requests began to run (``preserve_ordering``)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Turn:
    """A request's place in the line, and its answers that wait for it."""

    held: list[Callable[[], None]] = field(default_factory=list)
    is_complete: bool = False


class ResponseOrder:
    """The line. It is as long as there are requests that run or wait for an earlier one's answer."""

    def __init__(self) -> None:
        self._turns: deque[Turn] = deque()

    def join(self) -> Turn:
        """The next place."""
        turn = Turn()
        self._turns.append(turn)
        return turn

    def give(self, turn: Turn, answer: Callable[[], None] | None, *, is_final: bool) -> None:
        """Call ``answer`` when everything before it has been given: now, if it is this request's turn."""
        if answer is not None:
            turn.held.append(answer)
        turn.is_complete |= is_final
        while self._turns:
            first = self._turns[0]
            held, first.held = first.held, []
            for call in held:
                call()
            if not first.is_complete:
                return
            # an answer may have led back here, and the turn may be over already
            if self._turns and self._turns[0] is first and not first.held:
                self._turns.popleft()
