"""Every backend by the name that configurations use. Imported when a model asks for it, so an extra may be missing."""

import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final

from tribar.core.errors import Unsupported
from tribar.modelserver.backends.base import Backend, MakeBackend

ENTRY_POINT_GROUP: Final = "tribar.backends"
"""Packages add theirs here; the entry point is a ``MakeBackend``."""

_BUILT_IN: Final = {
    "onnxruntime": ("tribar.modelserver.backends.onnxruntime", "OnnxRuntimeBackend"),
    "python": ("tribar.modelserver.backends.python", "PythonBackend"),
    "pytorch": ("tribar.modelserver.backends.torch", "TorchBackend"),
}


class BackendRegistry(Mapping[str, Backend]):
    """Makes each backend once, when it is first asked for. Looking up raises ``Unsupported`` where it cannot be used.

    ``special`` are made in place of others of their names. Safe in several threads.
    """

    def __init__(self, special: Mapping[str, MakeBackend] = MappingProxyType({})) -> None:
        self._special = special
        self._plugins: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        self._made: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Backend:
        with self._lock:
            if name not in self._made:
                self._made[name] = self._factory(name)()
            return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**_BUILT_IN, **self._plugins})

    def __len__(self) -> int:
        return len({**_BUILT_IN, **self._plugins})

    def _factory(self, name: str) -> MakeBackend:
        try:
            if name in self._special:
                return self._special[name]
            if name in self._plugins:
                factory: MakeBackend = self._plugins[name].load()
                return factory
            module, attribute = _BUILT_IN[name]
            found: MakeBackend = getattr(import_module(module), attribute)
        except ImportError as error:
            extras = "models,torch" if name == "pytorch" else "models"
            raise Unsupported(
                f"backend '{name}' cannot be imported ({error}); install what it needs (pip install 'tribar[{extras}]')"
            ) from error
        return found
