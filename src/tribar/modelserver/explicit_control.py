"""Loading and unloading as callers ask for it, from outside or from within a model."""

from collections.abc import Mapping

from tribar.core.errors import TribarError, Unavailable
from tribar.modelserver.lifecycle import ModelLifecycle
from tribar.modelserver.repository.control import ControlMode
from tribar.modelserver.service import LoadParameter


class ExplicitControl:
    """A ``ModelControl``. ``chain`` are the models that load each other down to the one that has this control.

    What a model loads while it is loaded itself takes no slot of its own, and may not wait for a model of its chain:
    either would wait for itself.
    """

    def __init__(self, lifecycle: ModelLifecycle, mode: ControlMode, chain: tuple[str, ...] = ()) -> None:
        self._lifecycle = lifecycle
        self._mode = mode
        self._chain = chain

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Whether this version can infer."""
        try:
            self._lifecycle.find(name, version)
        except TribarError:
            return False
        return True

    async def load(self, name: str, parameters: Mapping[str, LoadParameter] | None = None) -> None:
        """As ``Service.load``."""
        self._check()
        await self._lifecycle.load(name, parameters or {}, self._chain)

    async def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """As ``Service.unload``. Nothing depends on a model yet, so ``unload_dependents`` makes no difference."""
        self._check()
        await self._lifecycle.unload(name, self._chain)

    def _check(self) -> None:
        if self._mode is not ControlMode.EXPLICIT:
            raise Unavailable(
                f"explicit model load / unload is not allowed under model control mode '{self._mode}'; "
                "start with --model-control-mode explicit"
            )
