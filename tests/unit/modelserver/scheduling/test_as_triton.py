"""What a real Triton 2.51 made of these arrivals at a Python model with one instance (recorded from one).

The first request of most scripts occupies the instance until all the others are surely in the queue.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from google.protobuf import text_format
from tests.unit.modelserver.scheduling.rig import Rig, SleepInstance, signature, tensor
from tests.unit.modelserver.scheduling.virtual_loop import VirtualLoop, run_virtually
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import TribarError
from tribar.core.tensors import DataType
from tribar.modelserver.batcher import BatchingPolicy
from tribar.modelserver.scheduling.policy import batching_policy
from tribar.modelserver.signature import TensorSpec

EXPIRED = "Request timeout expired"
FULL = "Exceeds maximum queue size"


@dataclass(frozen=True)
class Request:
    at_ms: int
    rows: int = 1
    columns: int = 1
    priority: int = 0
    timeout_us: int = 0


@dataclass(frozen=True)
class Script:
    """``batches`` are the batch sizes in order; ``refused`` has the error of a request by its place in the script."""

    config: str
    requests: list[Request]
    batches: list[int]
    refused: dict[int, str] = field(default_factory=dict)
    is_ragged: bool = False
    busy_ms: int = 500


def burst(at_ms: int, n_requests: int, **fields: Any) -> list[Request]:
    return [Request(at_ms, **fields)] * n_requests


def in_turn(at_ms: int, name: str, *values: int) -> list[Request]:
    return [Request(at_ms + 30 * place, **{name: value}) for place, value in enumerate(values)]


BUSY = Request(0)
PREFERRED = "preferred_batch_size: [4, 8] max_queue_delay_microseconds: 5000"
LONG = "preferred_batch_size: [4] max_queue_delay_microseconds: 300000"
DELAY = "max_queue_delay_microseconds: 300000"
QUEUE = "default_timeout_microseconds: 100000 max_queue_size: 2"

SCRIPTS = {
    "three": Script(PREFERRED, [BUSY, *burst(150, 3)], [1, 3]),
    "four": Script(PREFERRED, [BUSY, *burst(150, 4)], [1, 4]),
    "five, late": Script(PREFERRED, [BUSY, *burst(150, 5)], [1, 5]),
    "eight": Script(PREFERRED, [BUSY, *burst(150, 8)], [1, 8]),
    "eleven": Script(PREFERRED, [BUSY, *burst(150, 11)], [1, 8, 3]),
    "threes": Script(PREFERRED, [BUSY, *burst(150, 4, rows=3)], [1, 6, 6]),
    "full ones": Script(PREFERRED, [BUSY, *burst(150, 2, rows=8)], [1, 8, 8]),
    "five, idle": Script(LONG, burst(0, 5), [4, 1], busy_ms=0),
    "four, idle": Script(LONG, burst(0, 4), [4], busy_ms=0),
    "two, idle": Script(LONG, burst(0, 2), [2], busy_ms=0),
    "delay, three": Script(DELAY, burst(0, 3), [3], busy_ms=0),
    "delay, nine": Script(DELAY, burst(0, 9), [8, 1], busy_ms=0),
    "no delay, three": Script("", [BUSY, *burst(150, 3)], [1, 3]),
    "no delay, twenty": Script("", [BUSY, *burst(150, 20)], [1, 8, 8, 4]),
    "no delay, rows": Script("", [BUSY, *in_turn(150, "rows", 3, 4, 2, 8, 1)], [1, 7, 2, 8, 1]),
    "shapes": Script(DELAY, [BUSY, *in_turn(150, "columns", 1, 1, 2, 1, 2, 2)], [3, 1, 1, 2]),
    "ragged": Script(DELAY, [BUSY, *in_turn(150, "columns", 1, 1, 2, 1, 2, 2)], [7], is_ragged=True),
    "refused": Script(
        f"default_queue_policy {{ {QUEUE} allow_timeout_override: true }}",
        [BUSY, *in_turn(100, "priority", 0, 0, 0, 0)],
        [1],
        {1: EXPIRED, 2: EXPIRED, 3: FULL, 4: FULL},
        busy_ms=600,
    ),
    "overridden": Script(
        f"default_queue_policy {{ {QUEUE} allow_timeout_override: true }}",
        [BUSY, *in_turn(100, "timeout_us", 5_000_000, 20_000)],
        [1],
        {1: EXPIRED, 2: EXPIRED},
        busy_ms=600,
    ),
    "delayed": Script(
        f"default_queue_policy {{ {QUEUE} timeout_action: DELAY }}",
        [BUSY, *in_turn(100, "priority", 0, 0, 0, 0)],
        [1, 1, 1],
        {3: FULL, 4: FULL},
        busy_ms=600,
    ),
    "by level": Script(
        """priority_levels: 2 default_priority_level: 1 default_queue_policy { max_queue_size: 4 }
        priority_queue_policy { key: 2 value { default_timeout_microseconds: 50000 max_queue_size: 1 } }""",
        [BUSY, *in_turn(100, "priority", 2, 2, 1, 1, 1, 1, 1)],
        [1] * 5,
        {1: EXPIRED, 2: FULL, 7: FULL},
        busy_ms=700,
    ),
}
ONE_BY_ONE = {"refused", "overridden", "delayed", "by level"}


def policy(script: Script, max_batch_size: int) -> BatchingPolicy:
    text = f"max_batch_size: {max_batch_size} dynamic_batching {{ {script.config} }}"
    return batching_policy(text_format.Parse(text, ModelConfig()))


@pytest.mark.parametrize("name", SCRIPTS)
def test_grouped_and_refused_as_by_triton(name: str) -> None:
    """BUG-061 and BUG-063; batch_stats equal the real Triton's on the same arrivals."""
    script = SCRIPTS[name]

    async def body(loop: VirtualLoop) -> None:
        first = [True]

        def seconds(size: int) -> float:
            was_first, first[0] = first[0], False
            return script.busy_ms / 1000 if was_first else 0.0001

        inputs = {"INPUT": TensorSpec("INPUT", DataType.FP32, (-1,), is_ragged=script.is_ragged)}
        batcher = policy(script, 1 if name in ONE_BY_ONE else 8)
        rig = Rig(loop, batcher, [SleepInstance(seconds)], model=signature(inputs=inputs))
        refused: dict[int, str] = {}

        def send(place: int, request: Request) -> None:
            values = tensor([[0.0] * request.columns] * request.rows)
            try:
                outcome = rig.send(inputs=[values], priority=request.priority, timeout_us=request.timeout_us)
                outcome.name = str(place)
            except TribarError as error:
                refused[place] = error.message.removeprefix("[request id: ").partition("] ")[2]

        for place, request in enumerate(script.requests):
            rig.at(request.at_ms, partial(send, place, request))
        await rig.until(1000)
        await rig.drain()
        refused |= {int(outcome.name): outcome.error for outcome in rig.outcomes if outcome.error is not None}
        assert rig.instances[0].sizes == script.batches
        assert refused == script.refused
        counts = {size: batch.compute_infer.count for size, batch in rig.recorder.statistics.batches.items()}
        assert counts == {size: script.batches.count(size) for size in script.batches}
        assert rig.recorder.statistics.fail.count == list(script.refused.values()).count(EXPIRED)

    run_virtually(body)


def test_priorities_as_by_triton() -> None:
    """BUG-064."""

    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, BatchingPolicy(n_levels=3, default_level=2), [SleepInstance(lambda size: 0.5)])
        rig.send()
        await rig.until(150)
        for priority in (3, 2, 0, 1, 3, 1):
            rig.send(priority=priority)
        await rig.drain()
        turns = {int(name): turn for turn, (name,) in enumerate(rig.batches)}
        assert [turns[place] for place in range(7)] == [0, 5, 3, 4, 1, 6, 2]

    run_virtually(body)
