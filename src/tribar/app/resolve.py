"""From what was asked, what the machine has and what the model needs to the numbers that the engine runs with. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tribar.app.config import EngineConfig, ServeConfig
from tribar.app.machine import MachineFacts
from tribar.app.option_kinds import format_size
from tribar.core.errors import InvalidRequest
from tribar.engine.config import Allocator, Batching, SchedulerConfig
from tribar.runtime.runners import RunnerConfig

BLOCK_SIZE = 16

KEPT_FRACTION = 0.1
"""Share of the memory that is never planned for: page cache, other programs, estimates that were too small."""

MIN_WAITING_TOKENS = 1 << 20
"""So many prompt tokens may wait unless the operator says otherwise: 4 MiB of ids."""

FRONT_END_BYTES = 256 << 20
ENGINE_BYTES = {"native": 128 << 20, "torch": 512 << 20, "fake": 64 << 20}
"""Resident code and scratch space of an engine beside weights and KV cache."""

ACCELERATOR_ENGINE_BYTES = 2 << 30
"""On an accelerator: its context, kernels and activations."""

WEIGHT_BYTES = {
    "native": {"int4": 0.625, "int8": 1.125, "bf16": 2.0, "f32": 4.0},
    "torch": {"bf16": 2.0, "f32": 4.0},
    "fake": {},
}
"""Bytes per weight of the types that a runner can keep weights in. Groups of 32 carry a scale and a minimum."""

PACKED_PER_STORED = 1.15
"""Native weights of type "auto" keep about the size of the file: Q4_1 and Q8_0 exactly, Q6_K grows by a seventh."""

KV_BYTES = {
    "native": {"bf16": 2.0, "f32": 4.0, "int8": 1.375},
    "torch": {"bf16": 2.0, "f32": 4.0},
    "fake": {"f32": 8.0},
}
"""Bytes per number of the KV cache; int8 has three fp32 constants per position and head, of at least 2 x 16 numbers."""

BOOKKEEPING_BYTES = 640
"""What an engine keeps of a block besides keys and values: its node of the prefix cache above all. A thousandth of the
block of a small model, but most of a scripted one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What sizes a model: read from the checkpoint's header, before any weight is.

    ``kv_numbers_per_block`` counts the K and V values of one block over all layers; ``path`` is local.
    """

    name: str
    path: Path
    context_length: int
    n_parameters: int
    stored_bytes: int
    kv_numbers_per_block: int
    is_fake: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """The engine's settings in full. ``memory_bytes`` is what the engine may come to hold, KV cache included."""

    name: str
    runner: str
    runner_config: RunnerConfig
    scheduler_config: SchedulerConfig
    kv_bytes: int
    memory_bytes: int
    notes: tuple[str, ...] = ()


def resolve(
    config: ServeConfig, machine: MachineFacts, model: ModelFacts, accelerator: MachineFacts | None = None
) -> ResolvedConfig:
    """The settings to run ``model`` with on ``machine``.

    ``accelerator`` holds the memory of ``config.engine.device`` where that is not the CPU. Raises ``InvalidRequest``
    naming the flag and both numbers for a context that the model or the memory cannot hold.
    """
    engine = config.engine
    on_cpu = engine.device == "cpu"
    runner = _runner(engine, model)
    threads = engine.threads or machine.cores
    max_num_seqs = engine.max_num_seqs or (min(64, 32 * machine.cores) if on_cpu else 256)
    asked_len = _asked_len(config, model)
    fixed_bytes = _fixed_bytes(engine, model, runner)
    block_bytes = _block_bytes(engine, model, runner)
    wanted_len = asked_len or model.context_length
    pool_bytes = _pool_bytes(
        engine,
        machine if on_cpu else _memory_of(accelerator, engine),
        fixed_bytes,
        (1 + _blocks(wanted_len)) * block_bytes,
    )
    n_held = max(0, pool_bytes // block_bytes - 1)  # block 0 is the null block
    max_model_len, notes = _max_model_len(asked_len, wanted_len, n_held * BLOCK_SIZE, pool_bytes)
    n_blocks = 1 + min(n_held, max_num_seqs * _blocks(max_model_len))
    max_num_batched_tokens = engine.max_num_batched_tokens or max(
        max_num_seqs, min(2048, 256 * machine.cores) if on_cpu else 8192
    )
    return ResolvedConfig(
        name=model.name,
        runner=runner,
        runner_config=RunnerConfig(
            model_path=model.path,
            n_blocks=n_blocks,
            max_model_len=max_model_len,
            max_rows=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=BLOCK_SIZE,
            device=engine.device,
            weights=engine.weights,
            kv_cache_dtype=engine.kv_cache_dtype,
            n_threads=threads,
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            max_waiting=engine.max_waiting,
            max_waiting_tokens=engine.max_waiting_tokens or max(MIN_WAITING_TOKENS, 2 * max_num_seqs * max_model_len),
            max_ttft_s=engine.max_ttft_s or None,
            tpot_target_s=engine.tpot_target_ms / 1e3 or None,
            prefix_caching=engine.enable_prefix_caching,
            batching=cast(Batching, engine.batching),
            allocator=cast(Allocator, engine.allocator),
        ),
        kv_bytes=n_blocks * block_bytes,
        memory_bytes=(fixed_bytes + n_blocks * block_bytes) if on_cpu else ENGINE_BYTES[runner],
        notes=notes,
    )


def _runner(engine: EngineConfig, model: ModelFacts) -> str:
    asked = engine.runner
    if asked == "fake" and not model.is_fake:
        raise InvalidRequest("--runner fake computes scripted .fake.json models only", param="runner")
    if asked in WEIGHT_BYTES and asked != "fake" and model.is_fake:
        raise InvalidRequest(f"a .fake.json model has no weights: leave out --runner {asked}", param="runner")
    if model.is_fake:
        return "fake"
    if asked == "native" and engine.device != "cpu":
        raise InvalidRequest(f"--runner native computes on the cpu, not on {engine.device}", param="runner")
    if asked == "auto":
        return "native" if engine.device == "cpu" else "torch"
    return asked


def _asked_len(config: ServeConfig, model: ModelFacts) -> int | None:
    asked = config.model.max_model_len
    if asked is not None and asked > model.context_length:
        raise InvalidRequest(
            f"--max-model-len {asked} is more than the {model.context_length} tokens {model.name} was made for: "
            f"ask for at most {model.context_length}",
            param="max_model_len",
        )
    return asked


def _blocks(n_tokens: int) -> int:
    return -(-n_tokens // BLOCK_SIZE)


def _weights_bytes(engine: EngineConfig, model: ModelFacts, runner: str) -> int:
    """What the weights take in memory. torch's own choice for "auto" is f32 on the CPU and bf16 elsewhere."""
    asked = engine.weights
    if asked == "auto":
        if runner == "native":
            return int(model.stored_bytes * PACKED_PER_STORED)
        asked = "f32" if engine.device == "cpu" else "bf16"
    if model.is_fake:
        return 0
    return int(model.n_parameters * _known(asked, WEIGHT_BYTES[runner], runner, "weights"))


def _block_bytes(engine: EngineConfig, model: ModelFacts, runner: str) -> int:
    """What a block takes in the memory that holds the cache; an accelerator's has none of the bookkeeping."""
    kept_bytes = BOOKKEEPING_BYTES if engine.device == "cpu" else 0
    return int(model.kv_numbers_per_block * _kv_number_bytes(engine, runner)) + kept_bytes


def _kv_number_bytes(engine: EngineConfig, runner: str) -> float:
    """Bytes per number of the KV cache. For "auto" native takes bf16, torch the type of the weights."""
    asked = engine.kv_cache_dtype
    if runner == "fake":
        asked = "f32"
    elif asked == "auto" and runner == "native":
        asked = "bf16"
    elif asked == "auto":
        asked = engine.weights if engine.weights != "auto" else "f32" if engine.device == "cpu" else "bf16"
    return _known(asked, KV_BYTES[runner], runner, "kv_cache_dtype")


def _known(asked: str, types: dict[str, float], runner: str, param: str) -> float:
    if asked not in types:
        flag = "--" + param.replace("_", "-")
        message = f"{flag} {asked} is not for the {runner} runner: choose one of auto, {', '.join(types)}"
        raise InvalidRequest(message, param=param)
    return types[asked]


def _fixed_bytes(engine: EngineConfig, model: ModelFacts, runner: str) -> int:
    """What the engine holds whatever the size of its KV cache, in the memory that the cache competes for."""
    engine_bytes = ENGINE_BYTES[runner] if engine.device == "cpu" else ACCELERATOR_ENGINE_BYTES
    return engine_bytes + _weights_bytes(engine, model, runner)


def _memory_of(accelerator: MachineFacts | None, engine: EngineConfig) -> MachineFacts:
    if accelerator is not None:
        return accelerator
    if engine.kv_cache_memory_bytes is None:
        raise InvalidRequest(
            f"the memory of {engine.device} cannot be read here: say how much the KV cache may take, "
            "for example --kv-cache-memory 4GiB",
            param="kv_cache_memory",
        )
    unbounded = 1 << 62
    return MachineFacts(cores=1, memory_bytes=unbounded, available_bytes=unbounded)


def _pool_bytes(engine: EngineConfig, memory: MachineFacts, fixed_bytes: int, longest_bytes: int) -> int:
    """Bytes that the KV cache may take.

    Half of what may be planned for belongs to a second version of the model, so that it can be loaded beside this
    one. A machine too small for that still gives one sequence of full length (``longest_bytes``) its room.
    """
    front_end_bytes = FRONT_END_BYTES if engine.device == "cpu" else 0
    programs_bytes = fixed_bytes + front_end_bytes
    if engine.kv_cache_memory_bytes is not None:
        if engine.kv_cache_memory_bytes + programs_bytes > memory.memory_bytes:
            raise InvalidRequest(
                f"--kv-cache-memory {format_size(engine.kv_cache_memory_bytes)} and {format_size(programs_bytes)} for "
                f"the model and the programs are more than the {format_size(memory.memory_bytes)} of memory there is",
                param="kv_cache_memory",
            )
        return engine.kv_cache_memory_bytes
    plannable = int(min(memory.available_bytes, memory.memory_bytes * (1 - KEPT_FRACTION)))
    alone = plannable - programs_bytes
    if alone <= 0:
        raise InvalidRequest(
            f"the model and the programs take about {format_size(programs_bytes)}, but only {format_size(plannable)} "
            "of memory may be used: free some, or serve a smaller model",
            param="model",
        )
    shared = (plannable - front_end_bytes) // 2 - fixed_bytes
    return max(shared, min(alone, longest_bytes))


def _max_model_len(asked: int | None, wanted: int, held: int, pool_bytes: int) -> tuple[int, tuple[str, ...]]:
    """The context length, and what the operator should know about it. ``held`` is how many tokens the pool takes."""
    if held >= wanted:
        return wanted, ()
    pool = format_size(pool_bytes)
    if asked is not None or held < BLOCK_SIZE:
        raise InvalidRequest(
            f"a context of {wanted} tokens does not fit: the KV cache of {pool} holds {held} tokens. "
            "Lower --max-model-len or raise --kv-cache-memory",
            param="max_model_len",
        )
    return held, (f"context cut from {wanted} to {held} tokens: that is what a KV cache of {pool} holds",)
