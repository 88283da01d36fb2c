"""How many bytes of DATA may be on their way, in each direction. Source: RFC 9113, section 5.2."""

from typing import Final

MAX_WINDOW: Final = 2**31 - 1
STREAM_WINDOW: Final = 2**20
"""What a stream may be sent before anybody takes it: enough for a fast line, and for most messages as a whole."""
CONNECTION_WINDOW: Final = 2**24


class SendWindow:
    """What the peer takes. ``n_bytes`` may be negative after a setting of the peer's has changed."""

    __slots__ = ("n_bytes",)

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes

    def grow(self, n_bytes: int) -> bool:
        """Whether the window still is one: it has an upper bound."""
        self.n_bytes += n_bytes
        return self.n_bytes <= MAX_WINDOW


class ReceiveWindow:
    """What we take. Bytes that were received are held against the peer until they are given back."""

    __slots__ = ("_n_held", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._n_held = 0

    def receive(self, n_bytes: int) -> bool:
        """Whether the peer was allowed to send that."""
        self._n_held += n_bytes
        return self._n_held <= self._size

    def give_back(self) -> int:
        """By how much the peer's window is to be increased now: nothing while it has more than a half."""
        if self._n_held * 2 < self._size:
            return 0
        n_held, self._n_held = self._n_held, 0
        return n_held
