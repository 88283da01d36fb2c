import onnxruntime
import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import InvalidRequest
from tribar.modelserver.backends.onnxruntime.session_options import run_options, session_options
from tribar.modelserver.model_config import parse_config

LEVELS = onnxruntime.GraphOptimizationLevel


def config(**parameters: str) -> ModelConfig:
    made = ModelConfig(name="m")
    for key, value in parameters.items():
        made.parameters[key.replace("__", ".")].string_value = value
    return made


def test_an_instance_has_its_share_of_the_threads_and_none_spins() -> None:
    options = session_options(config(), n_threads=3)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 3)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    assert options.graph_optimization_level == LEVELS.ORT_ENABLE_ALL
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"
    assert run_options(config()) is None


def test_parameters_as_triton_documents_them() -> None:
    given = config(
        intra_op_thread_count="5",
        inter_op_thread_count="2",
        execution_mode="1",
        enable_mem_arena="0",
        enable_mem_pattern="false",
        session__intra_op__allow_spinning="1",
        session__set_denormal_as_zero="1",
        memory__enable_memory_arena_shrinkage="cpu:0",
        of_the_users_own="x",
    )
    options = session_options(given, n_threads=3)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (5, 2)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "1"
    assert options.get_session_config_entry("session.set_denormal_as_zero") == "1"
    run = run_options(given)
    assert run is not None
    assert run.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0, LEVELS.ORT_ENABLE_ALL),
        (-1, LEVELS.ORT_ENABLE_BASIC),
        (1, LEVELS.ORT_ENABLE_EXTENDED),
        (2, LEVELS.ORT_DISABLE_ALL),
    ],
)
def test_graph_levels(level: int, expected: object) -> None:
    given = parse_config(f"optimization {{ graph {{ level: {level} }} }}".encode(), file="config.pbtxt")
    assert session_options(given, n_threads=1).graph_optimization_level == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("intra_op_thread_count", "-1"),
        ("inter_op_thread_count", "two"),
        ("execution_mode", "2"),
        ("enable_mem_arena", "no"),
    ],
)
def test_wrong_values_are_named(key: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{key} is '{value}'"):
        session_options(config(**{key: value}), n_threads=1)


def test_a_wrong_level_is_named() -> None:
    given = parse_config(b"optimization { graph { level: 7 } }", file="config.pbtxt")
    with pytest.raises(InvalidRequest, match="7 is no level"):
        session_options(given, n_threads=1)
