"""How far a model may be ahead of the reader of its responses."""

from typing import Final

MAX_RESPONSES: Final = 1024
MAX_BYTES: Final = 16 << 20


class Unread:
    """What of one request's responses was sent, and not taken by its reader as far as the front end has told."""

    __slots__ = ("n_bytes", "n_responses")

    def __init__(self) -> None:
        self.n_responses = 0
        self.n_bytes = 0

    def has_room(self, n_bytes: int) -> bool:
        """Whether another response may be sent; one that is larger than all may be together goes alone."""
        is_small = self.n_responses < MAX_RESPONSES and self.n_bytes + n_bytes <= MAX_BYTES
        return is_small or self.n_responses == 0

    def is_below(self, n_responses: int) -> bool:
        """Whether some have been taken since there were so many."""
        return self.n_responses < n_responses

    def sent(self, n_bytes: int) -> None:
        """One more."""
        self.n_responses += 1
        self.n_bytes += n_bytes

    def taken(self, n_responses: int, n_bytes: int) -> None:
        """The reader has these, or nobody ever will."""
        self.n_responses -= n_responses
        self.n_bytes -= n_bytes
