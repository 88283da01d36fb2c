"""Which requests are traced, and the way of their timestamps to the file."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from tribar.core.errors import Overloaded, TooLarge
from tribar.modelserver.tracing.trace_file import TraceFile
from tribar.modelserver.tracing.trace_settings import DEFAULTS, TIMESTAMPS, TraceValue, checked

MAX_WAITING: Final = 4096
"""Traces that the disk has not taken yet; more are lost."""
MAX_MODELS: Final = 4096
"""With settings of their own."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Budget:
    """Traces that are still to be made; -1 never ends."""

    n_left: int


@dataclass(slots=True)
class _Sampler:
    """Takes one request in ``rate``, as long as there is a budget. Models without settings of their own share one."""

    rate: int
    budget: _Budget
    n_seen: int = 0

    def takes(self) -> bool:
        self.n_seen += 1
        if self.n_seen % self.rate or self.budget.n_left == 0:
            return False
        if self.budget.n_left > 0:
            self.budget.n_left -= 1
        return True


class Traces:
    """The trace settings, and what follows of them. All calls on the event loop; the file is written beside it.

    ``is_on`` is whether any request of any model may be traced.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Without ``file`` no level but OFF is accepted."""
        self.is_on = False
        self._path = file
        self._file = None if file is None else TraceFile(file)
        self._settings: dict[str, dict[str, TraceValue]] = {"": {}}
        self._budgets: dict[str, _Budget] = {"": _Budget(-1)}
        self._samplers: dict[str, _Sampler | None] = {"": None}
        self._waiting: list[bytes] = []
        self._writing: asyncio.Task[None] | None = None
        self._last_id = 0
        self._n_lost = 0

    def settings(self, model: str = "") -> dict[str, TraceValue]:
        """Those of ``model`` before the server's ("") before the defaults. ``trace_count`` is what is left of it."""
        found = {**DEFAULTS, **self._settings[""], **self._settings.get(model, {})}
        return found | {"trace_file": str(self._path or ""), "trace_count": str(self._budget(model).n_left)}

    def update(self, changes: Mapping[str, TraceValue | None], model: str = "") -> None:
        """Change some settings, all or none; None goes back to what is behind the setting.

        Raises as ``checked``, and ``Overloaded`` where too many models have settings of their own.
        """
        values = {
            name: checked(name, value, model=model, has_file=self._file is not None) for name, value in changes.items()
        }
        if model not in self._settings and len(self._settings) > MAX_MODELS:
            raise Overloaded(f"{MAX_MODELS} models have trace settings of their own already: clear some")
        settings = {**self._settings.get(model, {}), **values}
        self._settings[model] = {name: value for name, value in settings.items() if value is not None}
        if "trace_count" in values:
            self._set_budget(model, values["trace_count"])
        if model and not self._settings[model]:
            del self._settings[model]
        self._samplers = {name: self._sampler(name) for name in self._settings}
        self.is_on = any(sampler is not None for sampler in self._samplers.values())

    def takes(self, model: str) -> bool:
        """Whether the request of ``model`` that has just ended is to be traced. Ask once for each."""
        sampler = self._samplers[model] if model in self._samplers else self._samplers[""]
        return sampler is not None and sampler.takes()

    def add(self, model: str, version: str, request_id: str, timestamps: Sequence[tuple[str, int]]) -> None:
        """Write a request's trace when it is its turn. ``timestamps`` are names and nanoseconds, in their order."""
        if len(self._waiting) >= MAX_WAITING:
            self._n_lost += 1
            return
        self._last_id += 1
        head: dict[str, object] = {"id": self._last_id, "model_name": model, "model_version": int(version)}
        if request_id:
            head["request_id"] = request_id
        stamps = {"id": self._last_id, "timestamps": [{"name": name, "ns": ns} for name, ns in timestamps]}
        self._waiting.append(orjson.dumps(head) + b",\n" + orjson.dumps(stamps))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Trace nothing more, and finish the file. Idempotent."""
        self.is_on = False
        self._samplers = {"": None}
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        assert self._file is not None
        try:
            while self._waiting:
                traces, self._waiting = self._waiting, []
                await asyncio.to_thread(self._file.write, traces, int(str(self.settings()["log_frequency"])))
        except (OSError, TooLarge) as error:
            _log.error("tracing is off until its settings are changed: %s", error)
            self.is_on = False
            self._waiting = []
        finally:
            self._writing = None
            if self._n_lost:
                _log.warning("%d traces were lost: the disk is too slow for this trace_rate", self._n_lost)
                self._n_lost = 0

    def _budget(self, model: str) -> _Budget:
        return self._budgets.get(model) or self._budgets[""]

    def _set_budget(self, model: str, count: TraceValue | None) -> None:
        if count is not None:
            self._budgets[model] = _Budget(int(str(count)))
        elif model:
            self._budgets.pop(model, None)
        else:
            self._budgets[model] = _Budget(-1)

    def _sampler(self, model: str) -> _Sampler | None:
        settings = self.settings(model)
        rate = int(str(settings["trace_rate"]))
        is_on = settings["trace_level"] == [TIMESTAMPS] and rate > 0
        return _Sampler(rate, self._budget(model)) if is_on else None
