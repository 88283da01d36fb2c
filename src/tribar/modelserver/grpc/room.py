"""The memory that the messages of all calls together may take."""


class Room:
    """Counts bytes of requests while they arrive and until they are answered, and of answers until they are taken."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """What is held now."""
        return self._n_bytes

    def take(self, n_bytes: int) -> bool:
        """Hold that much more, unless there is no place for it."""
        if self._n_bytes + n_bytes > self._max_bytes:
            return False
        self._n_bytes += n_bytes
        return True

    def add(self, n_bytes: int) -> None:
        """Hold what is there already: an answer. It leaves less for requests."""
        self._n_bytes += n_bytes

    def release(self, n_bytes: int) -> None:
        """Hold that much less."""
        self._n_bytes -= n_bytes
