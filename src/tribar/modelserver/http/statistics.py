"""Statistics as JSON, in the layout of Triton's statistics extension."""

from dataclasses import fields
from typing import Any, Final

from tribar.modelserver.statistics import BatchStatistics, Duration, ModelStatistics, ResponseStatistics

_INFERENCE: Final = (
    "success",
    "fail",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "cache_hit",
    "cache_miss",
)


def statistics_json(statistics: ModelStatistics) -> dict[str, Any]:
    """One version's."""
    return {
        "name": statistics.name,
        "version": statistics.version,
        "last_inference": statistics.last_inference_ms,
        "inference_count": statistics.inference_count,
        "execution_count": statistics.execution_count,
        "inference_stats": {name: _duration(getattr(statistics, name)) for name in _INFERENCE},
        "response_stats": {index: _durations(found) for index, found in statistics.responses.items()},
        "batch_stats": [{"batch_size": size} | _durations(found) for size, found in sorted(statistics.batches.items())],
        "memory_usage": [],
    }


def _durations(found: BatchStatistics | ResponseStatistics) -> dict[str, Any]:
    return {field.name: _duration(getattr(found, field.name)) for field in fields(found)}


def _duration(duration: Duration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}
