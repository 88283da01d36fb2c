"""A table of machines, models and wishes: what an engine is started with on each."""

import tracemalloc
from pathlib import Path

import pytest

from tribar.app.config import EngineConfig, ModelConfig, ServeConfig
from tribar.app.machine import MachineFacts
from tribar.app.resolve import (
    BLOCK_SIZE,
    BOOKKEEPING_BYTES,
    ENGINE_BYTES,
    FRONT_END_BYTES,
    ModelFacts,
    ResolvedConfig,
    resolve,
)
from tribar.core.errors import InvalidRequest
from tribar.engine.kv.pool import BlockPool
from tribar.engine.kv.radix import RadixTree

GIB = 1 << 30

# SmolLM2-135M: 30 layers, 3 KV heads of 64.
SMOL = ModelFacts(
    name="smollm2",
    path=Path("smollm2.gguf"),
    context_length=8192,
    n_parameters=134_515_008,
    stored_bytes=96_551_168,
    kv_numbers_per_block=BLOCK_SIZE * 30 * 2 * 3 * 64,
)
FAKE = ModelFacts(
    name="tiny",
    path=Path("tiny.fake.json"),
    context_length=4096,
    n_parameters=0,
    stored_bytes=0,
    kv_numbers_per_block=BLOCK_SIZE,
    is_fake=True,
)


def machine(cores: int, memory_gib: float, available_gib: float | None = None) -> MachineFacts:
    total = int(memory_gib * GIB)
    available = total if available_gib is None else int(available_gib * GIB)
    return MachineFacts(cores=cores, memory_bytes=total, available_bytes=available)


def config(max_model_len: int | None = None, **engine: object) -> ServeConfig:
    """Settings for the torch runner, whose weights are the larger."""
    return ServeConfig(
        model=ModelConfig(max_model_len=max_model_len),
        engine=EngineConfig(**{"runner": "torch", **engine}),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("facts", "n_seqs", "n_batched", "threads", "context"),
    [
        (machine(1, 2, 1.7), 32, 256, 1, 8192),
        (machine(2, 24), 64, 512, 2, 8192),
        (machine(4, 16, 4), 64, 1024, 4, 8192),
        (machine(64, 256), 64, 2048, 64, 8192),
        (machine(2, 1.5), 64, 512, 2, 2272),
    ],
)
def test_defaults_suit_the_machine(
    facts: MachineFacts, n_seqs: int, n_batched: int, threads: int, context: int
) -> None:
    resolved = resolve(config(), facts, SMOL)
    runner, scheduler = resolved.runner_config, resolved.scheduler_config
    assert resolved.runner == "torch"
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (n_seqs, n_batched)
    assert (runner.max_rows, runner.max_num_batched_tokens, runner.n_threads) == (n_seqs, n_batched, threads)
    assert runner.max_model_len == scheduler.max_model_len == context
    assert bool(resolved.notes) == (context < SMOL.context_length)
    check(resolved, facts)


def test_the_native_runner_is_the_choice_on_a_cpu_and_takes_less_memory() -> None:
    small = machine(2, 1.5)
    by_torch, by_itself = resolve(config(), small, SMOL), resolve(config(runner="auto"), small, SMOL)
    assert by_itself.runner == "native"
    assert by_itself.runner_config.max_model_len == SMOL.context_length
    assert by_itself.runner_config.n_blocks > 3 * by_torch.runner_config.n_blocks
    check(by_itself, small)


def test_types_that_a_runner_lacks_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="--weights int4 is not for the torch runner: choose one of auto, bf16, f"):
        resolve(config(weights="int4"), machine(2, 24), SMOL)
    with pytest.raises(InvalidRequest, match="--kv-cache-dtype int8 is not for the torch runner"):
        resolve(config(kv_cache_dtype="int8"), machine(2, 24), SMOL)
    with pytest.raises(InvalidRequest, match="--runner native computes on the cpu, not on cuda"):
        resolve(config(runner="native", device="cuda"), machine(2, 24), SMOL, accelerator=machine(1, 80))


def check(resolved: ResolvedConfig, facts: MachineFacts) -> None:
    """What must hold whatever the machine."""
    n_blocks, length = resolved.runner_config.n_blocks, resolved.runner_config.max_model_len
    assert (n_blocks - 1) * BLOCK_SIZE >= length
    assert n_blocks - 1 <= resolved.scheduler_config.max_num_seqs * -(-length // BLOCK_SIZE)
    assert resolved.memory_bytes + FRONT_END_BYTES <= facts.available_bytes
    assert resolved.memory_bytes + FRONT_END_BYTES <= 0.91 * facts.memory_bytes


@pytest.mark.parametrize("memory_gib", [4, 8, 24, 64])
def test_a_second_version_of_the_model_fits_beside_the_first(memory_gib: int) -> None:
    facts = machine(2, memory_gib)
    resolved = resolve(config(), facts, SMOL)
    assert 2 * resolved.memory_bytes + FRONT_END_BYTES <= 0.9 * facts.memory_bytes
    check(resolved, facts)


def test_the_pool_is_never_more_than_the_sequences_can_use() -> None:
    resolved = resolve(config(max_model_len=100, max_num_seqs=3), machine(2, 24), SMOL)
    assert resolved.runner_config.n_blocks == 1 + 3 * 7


def test_a_half_size_cache_type_holds_twice_as_much() -> None:
    sizes = {
        dtype: resolve(config(runner="native", kv_cache_dtype=dtype, kv_cache_memory_bytes=GIB), machine(2, 24), SMOL)
        for dtype in ("auto", "f32", "bf16", "int8")
    }
    assert sizes["auto"].runner_config.n_blocks == sizes["bf16"].runner_config.n_blocks
    assert sizes["bf16"].runner_config.n_blocks / sizes["f32"].runner_config.n_blocks == pytest.approx(2, rel=0.002)
    assert sizes["int8"].runner_config.n_blocks > 1.4 * sizes["bf16"].runner_config.n_blocks
    assert sizes["f32"].kv_bytes <= GIB


def test_the_blocks_of_a_scripted_model_are_counted_with_what_is_kept_of_them() -> None:
    """Else a pool of a few MiB of fingerprints would be gigabytes of prefix cache."""
    pool, tree, tag = BlockPool(4096), RadixTree(), bytes(64)
    tracemalloc.start()
    try:
        for i in range(1000):
            node = tree.root
            for block_id in pool.allocate(4):
                node = tree.extend(node, tag + bytes(60) + i.to_bytes(4), block_id)
            pool.free(tree.unlock(node))
        n_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.6 * BOOKKEEPING_BYTES < n_bytes / 4000 < BOOKKEEPING_BYTES

    resolved = resolve(config(runner="auto", kv_cache_memory_bytes=2**20), machine(2, 24), FAKE)
    assert (resolved.runner, resolved.runner_config.n_blocks) == ("fake", 2**20 // (128 + BOOKKEEPING_BYTES))


def test_what_was_asked_for_is_taken() -> None:
    asked = config(
        max_model_len=512, threads=5, max_num_seqs=7, max_num_batched_tokens=99, max_waiting=3,
        max_waiting_tokens=77, max_ttft_s=2.5, tpot_target_ms=20.0,
        kv_cache_memory_bytes=GIB, batching="static", allocator="contiguous", enable_prefix_caching=False,
        weights="bf16",
    )  # fmt: skip
    resolved = resolve(asked, machine(2, 24), SMOL)
    runner, scheduler = resolved.runner_config, resolved.scheduler_config
    assert (runner.n_threads, runner.weights, runner.max_model_len, runner.max_rows) == (5, "bf16", 512, 7)
    assert (scheduler.max_num_batched_tokens, scheduler.max_waiting, scheduler.prefix_caching) == (99, 3, False)
    assert (scheduler.batching, scheduler.allocator) == ("static", "contiguous")
    assert (scheduler.max_waiting_tokens, scheduler.max_ttft_s, scheduler.tpot_target_s) == (77, 2.5, 0.02)


def test_zero_is_no_bound_and_the_queue_holds_twice_what_runs_at_the_longest() -> None:
    resolved = resolve(config(max_ttft_s=0.0, tpot_target_ms=0.0, max_num_seqs=100), machine(2, 24), SMOL)
    scheduler = resolved.scheduler_config
    assert (scheduler.max_ttft_s, scheduler.tpot_target_s) == (None, None)
    assert scheduler.max_waiting_tokens == 2 * 100 * scheduler.max_model_len > 1 << 20
    assert resolve(config(max_num_seqs=1), machine(2, 24), SMOL).scheduler_config.max_waiting_tokens == 1 << 20


@pytest.mark.parametrize(
    ("asked", "facts", "words"),
    [
        (config(max_model_len=8193), machine(2, 24), ["--max-model-len 8193", "8192"]),
        (config(max_model_len=8000, kv_cache_memory_bytes=100 << 20), machine(2, 24), ["8000", "100 MiB", "2256"]),
        (config(kv_cache_memory_bytes=1000), machine(2, 24), ["8192", "1000 B", "holds 0 tokens"]),
        (config(kv_cache_memory_bytes=24 * GIB), machine(2, 24), ["--kv-cache-memory 24 GiB", "of memory there is"]),
        (config(), machine(1, 1), ["1.25 GiB", "922 MiB", "smaller model"]),
        (config(), machine(8, 64, 0.5), ["512 MiB", "free some"]),
        (config(runner="fake"), machine(2, 24), ["--runner fake"]),
        (config(device="cuda"), machine(2, 24), ["cuda", "--kv-cache-memory"]),
    ],
)
def test_what_cannot_be_is_refused_naming_both_numbers(
    asked: ServeConfig, facts: MachineFacts, words: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve(asked, facts, SMOL)
    assert all(word in caught.value.message for word in words), caught.value.message


def test_a_context_that_nobody_asked_for_is_cut_with_a_note() -> None:
    resolved = resolve(config(kv_cache_memory_bytes=100 << 20), machine(2, 24), SMOL)
    assert resolved.runner_config.max_model_len == 2256
    assert "8192" in resolved.notes[0]
    assert "2256" in resolved.notes[0]


def test_an_accelerator_brings_its_own_memory() -> None:
    card = machine(1, 139)
    resolved = resolve(config(device="cuda"), machine(16, 128), SMOL, card)
    assert resolved.scheduler_config.max_num_seqs == 256
    assert resolved.scheduler_config.max_num_batched_tokens == 8192
    assert resolved.memory_bytes == ENGINE_BYTES["torch"]
    assert 0.3 * card.memory_bytes < resolved.kv_bytes < 0.45 * card.memory_bytes
    given = resolve(config(device="cuda:1", kv_cache_memory_bytes=GIB), machine(16, 128), SMOL)
    assert given.kv_bytes <= GIB


def test_a_scripted_model_needs_no_runner_of_weights() -> None:
    assert resolve(ServeConfig(), machine(1, 1), FAKE).runner == "fake"
    with pytest.raises(InvalidRequest, match="no weights"):
        resolve(config(runner="torch"), machine(1, 1), FAKE)


def test_resolving_is_pure() -> None:
    asked, facts = config(), machine(2, 24)
    assert resolve(asked, facts, SMOL) == resolve(asked, facts, SMOL)
    assert asked == config()
