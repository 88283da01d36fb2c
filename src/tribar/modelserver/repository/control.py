"""Who decides which models are loaded."""

from dataclasses import dataclass
from enum import StrEnum


class ControlMode(StrEnum):
    """Triton's ``--model-control-mode``."""

    NONE = "none"
    """Everything in the repository, once, at the start."""
    EXPLICIT = "explicit"
    """What the start-up list and load requests name."""
    POLL = "poll"
    """Everything in the repository, which is looked at again and again."""


ALL_MODELS = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """``startup_models`` count under explicit control only; ``*`` among them means all.

    ``is_strict``: the server is ready only once every model that was asked for serves.
    """

    mode: ControlMode = ControlMode.NONE
    startup_models: tuple[str, ...] = ()
    poll_interval_s: float = 15.0
    is_strict: bool = True

    @property
    def loads_everything(self) -> bool:
        """Whether the start loads all that the repository has."""
        return self.mode is not ControlMode.EXPLICIT or ALL_MODELS in self.startup_models
