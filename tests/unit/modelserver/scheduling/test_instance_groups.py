from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import Unsupported
from tribar.modelserver.scheduling.instance_groups import placements, resized, thread_shares


def config(text: str) -> Any:
    return text_format.Parse(f'name: "m" {text}', ModelConfig())


@pytest.mark.parametrize(
    ("text", "n_gpus", "expected"),
    [
        ("", 0, ["m_0 CPU"]),
        ("", 2, ["m_0 GPU", "m_0 GPU"]),
        ("instance_group { count: 2 kind: KIND_CPU }", 2, ["m_0_0 CPU", "m_0_1 CPU"]),
        (
            'instance_group { count: 1 kind: KIND_CPU name: "a" } instance_group { count: 2 }',
            0,
            ["a CPU", "m_1_0 CPU", "m_1_1 CPU"],
        ),
        ("instance_group { count: 2 kind: KIND_GPU gpus: [1] }", 2, ["m_0_0 GPU", "m_0_1 GPU"]),
        ("instance_group { kind: KIND_MODEL count: 1 }", 1, ["m_0 MODEL"]),
    ],
)
def test_where_instances_run(text: str, n_gpus: int, expected: list[str]) -> None:
    found = placements(config(text), n_gpus)
    assert [f"{placement.name} {placement.device}" for placement in found] == expected


@pytest.mark.parametrize("text", ["kind: KIND_GPU", "kind: KIND_GPU gpus: [3]", "gpus: [0]"])
def test_a_gpu_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(Unsupported, match=r"instance group 'm_0' asks for a GPU .* use KIND_CPU or KIND_AUTO"):
        placements(config(f"instance_group {{ count: 1 {text} }}"), 0)


def test_more_instances_than_configured_repeat_the_devices() -> None:
    base = placements(config("instance_group { count: 2 kind: KIND_GPU gpus: [0, 1] }"), 2)
    assert [(resized(base, index).name, resized(base, index).device_id) for index in (3, 4, 6)] == [
        ("m_0_1", 1),
        ("m_0_0_4", 0),
        ("m_0_0_6", 1),
    ]


def test_threads_are_split_between_instances() -> None:
    assert thread_shares(8, 3) == [3, 3, 2]
    assert thread_shares(2, 3) == [1, 1, 1]
