"""The metrics that Python models make, in the registry of the front end."""

import logging
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tribar.modelserver.backends.python.messages import Measure

MAX_FAMILIES = 200
MAX_SERIES = 1000
"""Of one family. Labels that take ever new values would fill the memory."""

_log = logging.getLogger(__name__)


class ModelMetrics:
    """Applies what workers report. What cannot be applied is logged once a family, and dropped."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._families: dict[str, Any] = {}
        self._series: dict[str, set[tuple[str, ...]]] = {}
        self._complaints: set[str] = set()

    def apply(self, measure: Measure) -> None:
        """Change a metric."""
        labels = dict(sorted(measure.labels.items()))
        try:
            if measure.name not in self._families and len(self._families) >= MAX_FAMILIES:
                self._complain(measure, f"more than {MAX_FAMILIES} families")
                return
            family = self._families.get(measure.name) or self._made(measure, tuple(labels))
            series = self._series[measure.name]
            if (values := tuple(labels.values())) not in series:
                if len(series) >= MAX_SERIES:
                    self._complain(measure, f"more than {MAX_SERIES} combinations of labels")
                    return
                series.add(values)
            metric = family.labels(**labels) if labels else family
            getattr(metric, {"increment": "inc"}.get(measure.verb, measure.verb))(measure.value)
        except (ValueError, AttributeError) as error:  # a name or label Prometheus refuses, or another kind of before
            self._complain(measure, str(error))

    def _made(self, measure: Measure, labels: tuple[str, ...]) -> Any:  # noqa: ANN401 - one of three kinds
        common = (measure.name, measure.description, labels)
        family: Counter | Gauge | Histogram
        if measure.kind == "counter":
            family = Counter(*common, registry=self._registry)
        elif measure.kind == "gauge":
            family = Gauge(*common, registry=self._registry)
        else:
            family = Histogram(*common, registry=self._registry, buckets=measure.buckets)
        self._families[measure.name] = family
        self._series[measure.name] = set()
        return family

    def _complain(self, measure: Measure, reason: str) -> None:
        if measure.name not in self._complaints and len(self._complaints) < MAX_FAMILIES:
            self._complaints.add(measure.name)
            _log.warning("the metric %s of a model is dropped: %s", measure.name, reason)
