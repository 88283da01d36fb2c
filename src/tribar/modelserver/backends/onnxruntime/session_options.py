"""onnxruntime's session options, from the fields of a configuration that Triton's backend documents."""

from collections.abc import Mapping
from typing import Final

import onnxruntime
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.model_config.refusal import refusal

_ARENA_SHRINKAGE: Final = "memory.enable_memory_arena_shrinkage"
_ERRORS_ONLY: Final = 3
_BOOLEANS: Final = {"1": True, "true": True, "0": False, "false": False}


def session_options(config: ModelConfig, *, n_threads: int) -> onnxruntime.SessionOptions:
    """Options of a session that computes with ``n_threads``, unless ``intra_op_thread_count`` says otherwise.

    ========================== =============================================================================
    optimization.graph.level   -1 basic, 1 extended, 2 none; 0 or not set: all
    intra_op_thread_count      threads inside an operator; 0: ``n_threads``
    inter_op_thread_count      threads for operators side by side, with execution_mode 1; 0: ``n_threads``
    execution_mode             0 one operator after the other, 1 side by side
    enable_mem_arena           1 keep memory between runs (the default), 0 give it back
    enable_mem_pattern         1 plan the memory of a run ahead (the default), 0 not
    session.*                  onnxruntime's own keys
    ========================== =============================================================================

    Its threads do not spin while they wait: other instances and the front end need the cores.
    Raises ``InvalidRequest`` naming the parameter.
    """
    options = onnxruntime.SessionOptions()
    options.logid = config.name
    options.log_severity_level = _ERRORS_ONLY
    options.graph_optimization_level = _graph_level(config)
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    options.intra_op_num_threads = _integer(config, parameters, "intra_op_thread_count") or n_threads
    options.inter_op_num_threads = _integer(config, parameters, "inter_op_thread_count") or n_threads
    mode = _integer(config, parameters, "execution_mode")
    if mode not in {0, 1}:
        raise _wrong(config, "execution_mode", parameters["execution_mode"], "0 (sequential) or 1 (parallel)")
    modes = onnxruntime.ExecutionMode
    options.execution_mode = modes.ORT_PARALLEL if mode else modes.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = _boolean(config, parameters, "enable_mem_arena", default=True)
    options.enable_mem_pattern = _boolean(config, parameters, "enable_mem_pattern", default=True)
    entries = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
    entries |= {key: value for key, value in parameters.items() if key.startswith("session.")}
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return options


def run_options(config: ModelConfig) -> onnxruntime.RunOptions | None:
    """Options of each run, None for onnxruntime's defaults: ``memory.enable_memory_arena_shrinkage``."""
    if _ARENA_SHRINKAGE not in config.parameters:
        return None
    options = onnxruntime.RunOptions()
    options.add_run_config_entry(_ARENA_SHRINKAGE, config.parameters[_ARENA_SHRINKAGE].string_value)
    return options


def _graph_level(config: ModelConfig) -> onnxruntime.GraphOptimizationLevel:
    levels = onnxruntime.GraphOptimizationLevel
    known = {
        0: levels.ORT_ENABLE_ALL,
        -1: levels.ORT_ENABLE_BASIC,
        1: levels.ORT_ENABLE_EXTENDED,
        2: levels.ORT_DISABLE_ALL,
    }
    level = config.optimization.graph.level
    if level not in known:
        reason = f"{level} is no level; use -1 (basic), 0 (all), 1 (extended) or 2 (none)"
        raise refusal(config.name, "optimization.graph.level", reason)
    return known[level]


def _integer(config: ModelConfig, parameters: Mapping[str, str], key: str) -> int:
    text = parameters.get(key, "0")
    if not (text.isascii() and text.isdigit()):
        raise _wrong(config, key, text, "a number of 0 or more")
    return int(text)


def _boolean(config: ModelConfig, parameters: Mapping[str, str], key: str, *, default: bool) -> bool:
    if key not in parameters:
        return default
    value = _BOOLEANS.get(parameters[key].lower())
    if value is None:
        raise _wrong(config, key, parameters[key], "0 or 1")
    return value


def _wrong(config: ModelConfig, key: str, given: str, expected: str) -> Exception:
    return refusal(config.name, "parameters", f"{key} is '{given}'; use {expected}")
