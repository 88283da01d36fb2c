"""Typed reading of a model's settings, whatever file they stand in."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tribar.core.errors import BadModelFile


class Settings:
    """A mapping from a model file whose values are not to be trusted.

    ``origin`` (a path) and ``prefix`` + key name the culprit in every error, which is a ``BadModelFile``. A key with a
    default may be absent; one without must be there. ``null`` counts as absent except for ``optional_number`` and
    ``optional_integer``, where it means "none".
    """

    def __init__(
        self, origin: str, values: Mapping[str, Any], prefix: str = "", defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.origin = origin
        self._values = values
        self._prefix = prefix
        self._defaults = defaults or {}

    def with_defaults(self, defaults: Mapping[str, Any]) -> "Settings":
        """The same settings, where absent keys take the family's documented defaults (null stays null)."""
        return Settings(self.origin, self._values, self._prefix, defaults)

    def error(self, key: str, trouble: str) -> BadModelFile:
        """The error to raise about ``key``."""
        return BadModelFile(f"{self.origin}: {self._prefix}{key} {trouble}")

    def get(self, key: str) -> object:
        """The bare value, or None."""
        name = self._prefix + key
        return self._values[name] if name in self._values else self._defaults.get(key)

    def has(self, key: str) -> bool:
        """Whether the key is there (or has a default) and is not null."""
        return self.get(key) is not None

    def integer(self, key: str, *, low: int = 1, high: int, default: int | None = None) -> int:
        """An integer in [low, high]. A list of equal integers (GGUF per-layer arrays) counts as that integer."""
        value = self._required(key, default)
        if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and len(value) > 0:
            if any(other != value[0] for other in value):
                raise self.error(key, "differs from layer to layer, which is not supported")
            value = value[0]
        if not isinstance(value, int | np.integer) or value is True or value is False:
            raise self.error(key, f"must be an integer, not {_show(value)}")
        if not low <= value <= high:
            raise self.error(key, f"is {value}, outside [{low}, {high}]")
        return int(value)

    def number(self, key: str, *, low: float = 0.0, high: float = 1e12, default: float | None = None) -> float:
        """A finite number in [low, high]."""
        value = self._required(key, default)
        if not isinstance(value, int | float | np.number) or value is True or value is False:
            raise self.error(key, f"must be a number, not {_show(value)}")
        if not low <= float(value) <= high:
            raise self.error(key, f"is {value}, outside [{low:g}, {high:g}]")
        return float(value)

    def optional_number(self, key: str, *, low: float = 0.0, high: float = 1e12) -> float | None:
        """A number, or None where the key is absent or null."""
        return self.number(key, low=low, high=high) if self.has(key) else None

    def optional_integer(self, key: str, *, low: int = 0, high: int) -> int | None:
        """An integer, or None where the key is absent or null."""
        return self.integer(key, low=low, high=high) if self.has(key) else None

    def boolean(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._required(key, default)
        if not isinstance(value, bool | np.bool_):
            raise self.error(key, f"must be true or false, not {_show(value)}")
        return bool(value)

    def string(self, key: str, *, default: str | None = None) -> str:
        """A string."""
        value = self._required(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be a string, not {_show(value)}")
        return value

    def numbers(self, key: str, *, length: int) -> tuple[float, ...]:
        """A list of ``length`` positive numbers."""
        value = self._required(key, None)
        if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str) or len(value) != length:
            raise self.error(key, f"must be a list of {length} numbers")
        items = Settings(self.origin, {f"{self._prefix}{key}[{i}]": item for i, item in enumerate(value)})
        return tuple(items.number(f"{self._prefix}{key}[{i}]", low=1e-6) for i in range(length))

    def nested(self, key: str) -> "Settings":
        """The object under ``key``; empty where it is absent or null."""
        value = self.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.error(key, f"must be an object, not {_show(value)}")
        return Settings(f"{self.origin}: {self._prefix}{key}", value)

    def _required(self, key: str, default: object) -> object:
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise self.error(key, "is missing")
        return value


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
