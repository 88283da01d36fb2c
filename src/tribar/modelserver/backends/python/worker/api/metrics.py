"""``pb_utils.MetricFamily``: a model's own metrics, exported by the server.

A family of the same name in several instances is one family; each instance adds to its counters. ``value`` is what this
instance has made of it.
"""

import threading
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar

from tribar.modelserver.backends.python.messages import Measure
from tribar.modelserver.backends.python.worker.api.errors import TritonModelException
from tribar.modelserver.backends.python.worker.session import Session


class MetricKind(Enum):
    """Prometheus' kinds."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricFamily:
    """A name, its description and its kind. ``module.install`` binds the class to the worker's session.

    Raises ``TritonModelException`` where the server exports no metrics.
    """

    session: ClassVar[Session]

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        if not self.session.has_metrics:
            raise TritonModelException(f"metric family '{name}': this server exports no metrics of models")
        self.name = name
        self.description = description
        self.kind = MetricKind(kind)

    def Metric(  # noqa: N802 - Triton's name
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> "Metric":
        """The metric with these labels. ``buckets`` are a histogram's upper bounds, which it needs."""
        if (self.kind is MetricKind.HISTOGRAM) != (buckets is not None):
            raise TritonModelException(f"metric family '{self.name}': buckets belong to histograms, which need them")
        return Metric(self, dict(labels or {}), list(buckets or ()))


class Metric:
    """One series. Made by a family. Raises ``TritonModelException`` for what its kind cannot do."""

    def __init__(self, family: MetricFamily, labels: dict[str, str], buckets: list[float]) -> None:
        self._family = family
        self._labels = labels
        self._buckets = buckets
        self._value = 0.0
        self._lock = threading.Lock()

    def value(self) -> float:
        """What this instance has made of it; not of histograms."""
        self._only_of("value", MetricKind.COUNTER, MetricKind.GAUGE)
        return self._value

    def increment(self, value: float) -> None:
        """Add; a counter only grows."""
        self._only_of("increment", MetricKind.COUNTER, MetricKind.GAUGE)
        if value < 0 and self._family.kind is MetricKind.COUNTER:
            raise TritonModelException(f"metric '{self._family.name}': a counter is never decremented")
        with self._lock:
            self._value += value
        self._send("increment", value)

    def set(self, value: float) -> None:
        """Replace a gauge's value."""
        self._only_of("set", MetricKind.GAUGE)
        with self._lock:
            self._value = float(value)
        self._send("set", value)

    def observe(self, value: float) -> None:
        """Count a value into a histogram."""
        self._only_of("observe", MetricKind.HISTOGRAM)
        self._send("observe", value)

    def _only_of(self, verb: str, *kinds: MetricKind) -> None:
        if self._family.kind not in kinds:
            raise TritonModelException(f"metric '{self._family.name}': a {self._family.kind.value} has no {verb}()")

    def _send(self, verb: str, value: float) -> None:
        family = self._family
        family.session.channel.send(
            Measure(family.kind.value, family.name, family.description, self._labels, self._buckets, verb, float(value))
        )
