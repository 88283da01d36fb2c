"""Where tensors should lie and what is traced: accepted, since models pass them on, and without effect here."""

from enum import IntEnum


class MemoryType(IntEnum):
    """Triton's kinds of memory."""

    CPU = 0
    GPU = 2


class PreferredMemory:
    """Where a model wants the outputs of a request of its own. The host's memory is all there is."""

    def __init__(self, preferred_memory_type: MemoryType = MemoryType.CPU, preferred_device_id: int = 0) -> None:
        self._type = MemoryType(preferred_memory_type)
        self._device_id = preferred_device_id


class InferenceTrace:
    """The trace of a request."""

    def get_context(self) -> str:
        """The context of a distributed trace; none is kept here."""
        return ""
