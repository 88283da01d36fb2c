"""Which process was promised how much of the machine."""

from tribar.core.errors import Conflict, Overloaded
from tribar.core.ports import ProcessSpec


class Ledger:
    """Promises of cores and memory by process name.

    Memory that is promised twice ends in the kernel's out-of-memory killer, so a promise beyond the machine is refused.
    Cores are shared in time: they may be promised more than once, and ``cores_promised`` says so.
    """

    def __init__(self, *, cores: int, memory_bytes: int) -> None:
        self.cores = cores
        self.memory_bytes = memory_bytes
        self._held: dict[str, ProcessSpec] = {}

    @property
    def cores_promised(self) -> int:
        """The sum of all promises; more than ``cores`` means that processes take turns."""
        return sum(spec.cores for spec in self._held.values())

    @property
    def memory_promised_bytes(self) -> int:
        """The sum of all promises."""
        return sum(spec.memory_bytes for spec in self._held.values())

    def reserve(self, spec: ProcessSpec) -> None:
        """Enter ``spec``. Raises ``Conflict`` for a name that is entered, ``Overloaded`` where memory is short."""
        if spec.name in self._held:
            raise Conflict(f"a process named {spec.name} exists already")
        free = self.memory_bytes - self.memory_promised_bytes
        if spec.memory_bytes > free:
            raise Overloaded(f"{spec.name} may need {spec.memory_bytes} bytes of memory, and {free} are left")
        self._held[spec.name] = spec

    def release(self, name: str) -> None:
        """Strike out ``name``."""
        del self._held[name]

    def check(self) -> None:
        """Assert that no more memory is promised than there is."""
        assert 0 <= self.memory_promised_bytes <= self.memory_bytes
