from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tribar.modelserver.backends.base import Execution
from tribar.modelserver.scheduling.recorder import BUCKETS_S, Recorder
from tribar.telemetry.inference import InferenceMetrics, InferenceSource

MS = 1_000_000


def source(recorder: Recorder, n_pending: int) -> InferenceSource:
    return InferenceSource(
        model=recorder.statistics.name,
        version=recorder.statistics.version,
        counts=recorder.statistics,
        failures=recorder.failures,
        read_pending=lambda: n_pending,
        bounds_s=BUCKETS_S,
        queue=recorder.queue_histogram,
        compute=recorder.compute_histogram,
    )


def samples(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (
            sample.name,
            *(sample.labels[name] for name in ("model", "reason", "le") if name in sample.labels),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_scrape_tells_what_the_recorder_counted_by_tritons_names() -> None:
    registry = CollectorRegistry()
    loaded: list[InferenceSource] = []
    InferenceMetrics(registry, lambda: loaded)
    recorder = Recorder("identity", "1", clock=lambda: 20 * MS)
    execution = Execution(
        [], start_ns=7 * MS, input_end_ns=8 * MS, output_start_ns=12 * MS, end_ns=15 * MS, batch_size=3
    )
    recorder.executed(execution)
    recorder.succeeded(execution, 3, [2 * MS], 15 * MS)
    recorder.failed("REJECTED", 5 * MS)
    loaded.append(source(recorder, 4))

    found = samples(registry)
    expected = {
        "nv_inference_request_success": 1,
        "nv_inference_count": 3,
        "nv_inference_exec_count": 1,
        "nv_inference_request_duration_us": 13_000,
        "nv_inference_queue_duration_us": 5_000,
        "nv_inference_compute_input_duration_us": 1_000,
        "nv_inference_compute_infer_duration_us": 4_000,
        "nv_inference_compute_output_duration_us": 3_000,
        "nv_inference_pending_request_count": 4,
        "tribar_inference_queue_seconds_sum": 0.005,
        "tribar_inference_compute_seconds_count": 1,
    }
    assert {name: found[name, "identity"] for name in expected} == expected
    assert found["nv_inference_request_failure", "identity", "REJECTED"] == 1
    assert found["nv_inference_request_failure", "identity", "BACKEND"] == 0
    assert found["tribar_inference_queue_seconds_bucket", "identity", "0.0025"] == 0
    assert found["tribar_inference_queue_seconds_bucket", "identity", "0.005"] == 1
    assert found["tribar_inference_queue_seconds_bucket", "identity", "+Inf"] == 1

    loaded.clear()
    assert samples(registry) == {}


def test_two_versions_have_their_own_series() -> None:
    registry = CollectorRegistry()
    loaded: list[InferenceSource] = []
    InferenceMetrics(registry, lambda: loaded)
    for name in ("one", "two"):
        recorder = Recorder(name, "1", clock=lambda: MS)
        recorder.failed("OTHER", 0)
        loaded.append(source(recorder, 0))
    found = samples(registry)
    assert found["nv_inference_request_failure", "one", "OTHER"] == 1
    assert found["nv_inference_request_failure", "two", "OTHER"] == 1
