from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.scheduling.instance_groups import placements, resized, thread_shares


def config(text: str) -> Any:
    return text_format.Parse(f'name: "m" {text}', ModelConfig())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('instance_group { count: 1 kind: KIND_CPU name: "m" }', ["m CPU 0"]),
        ('instance_group { count: 2 kind: KIND_CPU name: "a" }', ["a_0 CPU 0", "a_1 CPU 0"]),
        (
            'instance_group { count: 1 kind: KIND_CPU name: "a" } instance_group { count: 2 kind: KIND_CPU name: "b" }',
            ["a CPU 0", "b_0 CPU 0", "b_1 CPU 0"],
        ),
        (
            'instance_group { count: 2 kind: KIND_GPU gpus: [0, 1] name: "g" }',
            ["g_0 GPU 0", "g_1 GPU 0", "g_0 GPU 1", "g_1 GPU 1"],
        ),
        ('instance_group { kind: KIND_MODEL count: 1 name: "x" }', ["x MODEL 0"]),
    ],
)
def test_where_instances_run(text: str, expected: list[str]) -> None:
    found = placements(config(text))
    assert [f"{placement.name} {placement.device} {placement.device_id}" for placement in found] == expected


def test_more_instances_than_configured_repeat_the_devices() -> None:
    base = placements(config('instance_group { count: 2 kind: KIND_GPU gpus: [0, 1] name: "m_0" }'))
    assert [(resized(base, index).name, resized(base, index).device_id) for index in (3, 4, 6)] == [
        ("m_0_1", 1),
        ("m_0_0_4", 0),
        ("m_0_0_6", 1),
    ]


def test_threads_are_split_between_instances() -> None:
    assert thread_shares(8, 3) == [3, 3, 2]
    assert thread_shares(2, 3) == [1, 1, 1]
