"""Which models wait, while they are loaded, for changes of others."""

from collections.abc import Iterator
from contextlib import contextmanager

from tribar.core.errors import InvalidRequest


class LoadWaits:
    """A graph of names. A circle in it would wait for ever: each name is changed by one at a time."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[str]] = {}

    @contextmanager
    def waiting(self, name: str, other: str) -> Iterator[None]:
        """The load of ``name`` waits for a change of ``other``.

        Raises ``InvalidRequest`` where that waits for ``name``, be it by way of further ones.
        """
        if self._reaches(other, name):
            raise InvalidRequest(f"model '{other}' cannot be changed by a model that it loads", param="model_name")
        self._awaited.setdefault(name, []).append(other)
        try:
            yield
        finally:
            self._awaited[name].remove(other)
            if not self._awaited[name]:
                del self._awaited[name]

    def _reaches(self, start: str, goal: str) -> bool:
        seen, ahead = {start}, [start]
        while ahead:
            name = ahead.pop()
            if name == goal:
                return True
            new = set(self._awaited.get(name, ())) - seen
            seen |= new
            ahead += new
        return False
