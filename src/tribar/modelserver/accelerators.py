"""What the machine computes with beside its cores."""

from dataclasses import dataclass

from tribar.modelserver.backends.base import Backend


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The machine's. ``gpus`` are the ids by which CUDA knows them in this process: 0, 1, ..."""

    gpus: tuple[int, ...] = ()

    def gpus_of(self, backend: Backend) -> tuple[int, ...]:
        """Those that models of ``backend`` can be placed on: all or none. May look for drivers, so not on the loop."""
        return self.gpus if self.gpus and backend.can_use_gpu() else ()
