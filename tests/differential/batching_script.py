"""Arrivals at a batching model and what a server made of them: how it grouped, ordered, refused.

A script's first request occupies the model's one instance for so long that all the others are surely in the queue when
it ends; so the outcome depends on the scheduler alone and not on how fast the machine is.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from tests.differential.cases.requests import grpc_request, tensor
from tests.differential.observe import Answer
from tests.differential.play import Addresses
from tests.differential.tensors import unpack
from tritonclient.grpc import service_pb2, service_pb2_grpc

TIMEOUT_S = 20.0
APART_MS = 100
"""Requests so far apart reach the queue in the order in which they are sent, on a busy machine too."""


@dataclass(frozen=True)
class Arrival:
    """A request that comes ``at_ms`` after the script's start and makes the model wait for ``wait_ms``."""

    at_ms: int
    wait_ms: int = 0
    n_rows: int = 1
    n_columns: int = 1
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Script:
    """Arrivals at one model."""

    model: str
    arrivals: tuple[Arrival, ...]


def burst(at_ms: int, n: int, **more: Any) -> tuple[Arrival, ...]:
    """``n`` requests at once."""
    return tuple(Arrival(at_ms, **more) for _ in range(n))


def in_turn(what: str, *values: Any) -> tuple[Arrival, ...]:
    """Requests that differ in ``what``, one after the other."""
    return tuple(Arrival(150 + APART_MS * place, **{what: value}) for place, value in enumerate(values))


def level(priority: int) -> Mapping[str, Any]:
    return {"priority": {"uint64_param": priority}}


def timeout(microseconds: int) -> Mapping[str, Any]:
    return {"timeout": {"int64_param": microseconds}}


BUSY = Arrival(0, wait_ms=500)
LONG_BUSY = Arrival(0, wait_ms=1500)
SCRIPTS: dict[str, Script] = {
    "preferred_three_at_5_ms": Script("batch_preferred", (BUSY, *burst(150, 3))),
    "preferred_four": Script("batch_preferred", (BUSY, *burst(150, 4))),
    "preferred_eight": Script("batch_preferred", (BUSY, *burst(150, 8))),
    "preferred_eleven": Script("batch_preferred", (BUSY, *burst(150, 11))),
    "preferred_rows_of_three": Script("batch_preferred", (BUSY, *burst(150, 4, n_rows=3))),
    "preferred_rows_of_eight": Script("batch_preferred", (BUSY, *burst(150, 2, n_rows=8))),
    "preferred_long_four_idle": Script("batch_preferred_long", burst(0, 4)),
    "preferred_long_two_idle": Script("batch_preferred_long", burst(0, 2)),
    "delay_three_idle": Script("batch_delay", burst(0, 3)),
    "delay_nine_idle": Script("batch_delay", burst(0, 9)),
    "no_delay_three": Script("batch_no_delay", (BUSY, *burst(150, 3))),
    "no_delay_twenty": Script("batch_no_delay", (BUSY, *burst(150, 20))),
    "no_delay_rows": Script("batch_no_delay", (LONG_BUSY, *in_turn("n_rows", 3, 4, 2, 8, 1))),
    "mixed_shapes": Script("mixed_shapes", (LONG_BUSY, *in_turn("n_columns", 1, 1, 2, 1, 2, 2))),
    "ragged": Script("ragged", (LONG_BUSY, *in_turn("n_columns", 1, 1, 2, 1, 2, 2))),
    "priorities": Script(
        "priority", (LONG_BUSY, *in_turn("parameters", level(3), level(2), {}, level(1), level(3), level(1)))
    ),
    "queue_reject_burst": Script("queue_reject", (BUSY, *burst(150, 4))),
    "queue_reject_longer": Script("queue_reject", (BUSY, *burst(150, 1, parameters=timeout(5_000_000)))),
    "queue_reject_shorter": Script("queue_reject", (BUSY, *burst(150, 1, parameters=timeout(20_000)))),
    "queue_delay_burst": Script("queue_delay", (BUSY, *burst(150, 4))),
    "queue_by_level_burst": Script(
        "queue_by_level", (LONG_BUSY, *burst(150, 2, parameters=level(2)), *burst(500, 5, parameters=level(1)))
    ),
}


def play_all(addresses: Addresses) -> dict[str, list[Answer]]:
    """What every script came to."""
    return {name: [play_script(script, addresses)] for name, script in SCRIPTS.items()}


def play_script(script: Script, addresses: Addresses) -> Answer:
    """The statistics that the script added, and each arrival's outcome.

    TURN is counted from the script's first execution.
    """
    with grpc.insecure_channel(addresses.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        before = statistics(stub, script.model)
        outcomes = arrive(stub, script)
        added = settled(stub, script.model, before, sum(outcome["code"] == "OK" for outcome in outcomes))
    first = min((outcome["turn"] for outcome in outcomes if "turn" in outcome), default=0)
    for outcome in outcomes:
        if "turn" in outcome:
            outcome["turn"] -= first
    return {"statistics": added, "outcomes": outcomes}


def arrive(stub: Any, script: Script) -> list[Answer]:
    """Each arrival's outcome, in the order of the script; those of a burst, which may overtake each other, sorted."""
    start = time.monotonic() + 0.05
    pause = threading.Event()
    sent = []
    for arrival in script.arrivals:
        pause.wait(max(0.0, start + arrival.at_ms / 1000 - time.monotonic()))
        sent.append(stub.ModelInfer.future(request_of(script.model, arrival), timeout=TIMEOUT_S))
    outcomes = [(arrival.at_ms, outcome(call)) for arrival, call in zip(script.arrivals, sent, strict=True)]
    return [told for _, told in sorted(outcomes, key=lambda pair: (pair[0], pair[1]["code"], pair[1].get("turn", 0)))]


def request_of(model: str, arrival: Arrival) -> Any:
    n_elements = arrival.n_rows * arrival.n_columns
    given = tensor("INT32", [arrival.n_rows, arrival.n_columns], [arrival.wait_ms] * n_elements)
    return ParseDict(grpc_request(model, given, parameters=arrival.parameters), service_pb2.ModelInferRequest())


def outcome(call: Any) -> Answer:
    """How many requests were executed with it and when, or its error."""
    try:
        response = call.result()
    except grpc.RpcError as error:
        return {"code": error.code().name, "error": error.details()}
    values = {
        output.name: unpack("INT32", raw)[0]
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }
    return {"code": "OK", "together": values["SIZE"], "turn": values["TURN"]}


def settled(stub: Any, model: str, before: Mapping[str, int], n_answered: int) -> dict[str, int]:
    """What was added, once it counts all the answers: a server may answer first and count then."""
    end = time.monotonic() + TIMEOUT_S
    previous: dict[str, int] = {}
    while True:
        added = difference(before, statistics(stub, model))
        if (added == previous and added.get("success", 0) == n_answered) or time.monotonic() > end:
            return added
        previous = added
        threading.Event().wait(0.02)


def statistics(stub: Any, model: str) -> dict[str, int]:
    """A model's counters."""
    (found,) = stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name=model)).model_stats
    counts = {
        "inference_count": found.inference_count,
        "execution_count": found.execution_count,
        "success": found.inference_stats.success.count,
        "fail": found.inference_stats.fail.count,
    }
    return counts | {f"batch_{batch.batch_size}": batch.compute_infer.count for batch in found.batch_stats}


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What was added."""
    added = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in added.items() if count}
