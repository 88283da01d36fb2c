"""Random requests, aborts, deadlines, errors and preemptions against a simulated runner (BUG-025, Laws 3 and 7)."""

from random import Random
from typing import Any

import pytest
from tests.unit.engine.driving import VOCAB_SIZE, Client, Drive

from tribar.core.errors import Overloaded, RateLimited
from tribar.core.requests import AbortReason
from tribar.core.sampling.params import Wants
from tribar.engine.config import Allocator, Batching, SchedulerConfig

REASONS = [AbortReason.CLIENT_GONE, AbortReason.STOP_STRING, AbortReason.SLOW_READER]


def random_drive(rng: Random, batching: Batching, allocator: Allocator, depth: int, k: int) -> Drive:
    block_size = rng.choice([1, 2, 4])
    config = SchedulerConfig(
        max_num_seqs=rng.randint(1, 6),
        max_num_batched_tokens=rng.randint(1, 24),
        max_model_len=rng.randint(8, 40),
        max_waiting=rng.choice([4, 100]),
        max_waiting_tokens=rng.choice([40, 1000]),
        max_ttft_s=rng.choice([None, 5.0]),
        tpot_target_s=rng.choice([None, 0.02]),
        prefix_caching=rng.random() < 0.8,
        batching=batching,
        allocator=allocator,
        dynamic_preferred_size=rng.randint(1, 4),
        dynamic_delay_s=rng.choice([0.0, 0.5]),
    )
    return Drive(
        config,
        seed=rng.randrange(2**30),
        error_rate=rng.choice([0.0, 0.01]),
        n_blocks=1 + rng.randint(12, 60) // block_size,
        block_size=block_size,
        max_rows=rng.randint(1, 6),
        depth=depth,
        max_tokens_per_step=k,
        max_model_len=40,
    )


def add_random(rng: Random, drive: Drive, number: int, stems: list[list[int]]) -> Client | None:
    """Prompts share stems, so that prefixes are shared, diverge in blocks, and are asked for again. None: refused."""
    longest = drive.scheduler.limits.max_model_len - 1
    stem = rng.choice(stems)
    prompt = stem[: rng.randint(0, len(stem))] + [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(0, 6))]
    stem_like = prompt[:longest] or [1]
    fields: dict[str, Any] = {
        "client": rng.randint(1, 2),
        "stop_ids": tuple(rng.sample(range(VOCAB_SIZE), rng.choice([0, 1, 3]))),
        "namespace": rng.choice([b"", b"a"]),
        "public_prefix_tokens": rng.choice([0, 0, 7]),
        "adapter": rng.choice(["", "", "x"]),
        "priority": rng.choice([0, 0, 0, 1, -1]),
        "deadline_s": rng.choice([None, None, None, 3.0]),
        "tenant": rng.choice("aaaabc"),
        "wants": Wants(prompt_logprobs=rng.choice([None, None, None, 0])),
    }
    try:
        return drive.add(number, stem_like, rng.randint(0, 20), **fields)
    except (Overloaded, RateLimited):
        return None


def one_event(rng: Random, drive: Drive, stems: list[list[int]]) -> None:
    dice = rng.random()
    if dice < 0.25 and len(drive.scheduler._waiting) < 20:
        client = add_random(rng, drive, len(drive.clients), stems)
        if client is not None and rng.random() < 0.3:
            stems[rng.randrange(len(stems))] = client.prompt
    elif dice < 0.30 and drive.clients:
        client = rng.choice(list(drive.clients.values()))
        drive.abort(client, rng.choice(REASONS), n_output=len(client.ids))
    elif dice < 0.32:
        drive.now_s += rng.random()
        drive.expire()
    elif dice < 0.325:
        drive.scheduler.reset_cache()
    elif dice < 0.65:
        drive.plan()
    elif drive.plans:
        drive.now_s += rng.choice([0.0, 0.01 * rng.random()])
        drive.commit()
    drive.scheduler.check()


@pytest.mark.parametrize(("depth", "k"), [(1, 1), (2, 1), (3, 1), (1, 3)])
@pytest.mark.parametrize("allocator", ["paged", "contiguous"])
@pytest.mark.parametrize("batching", ["continuous", "dynamic", "static"])
def test_any_mixture_ends_with_everything_free(batching: Batching, allocator: Allocator, depth: int, k: int) -> None:
    """BUG-025: no leak, no double free, no shared writable block, no foreign token, whatever happens."""
    for seed in range(8):
        rng = Random(f"{batching} {allocator} {depth} {k} {seed}")
        drive = random_drive(rng, batching, allocator, depth, k)
        stems = [[rng.randrange(VOCAB_SIZE) for _ in range(30)] for _ in range(3)]
        for _ in range(300):
            one_event(rng, drive, stems)
        drive.run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(400))
def test_any_mixture_long(seed: int) -> None:
    rng = Random(seed)
    batching: Batching = rng.choice(["continuous", "continuous", "dynamic", "static"])
    depth, k = rng.choice([(1, 1), (2, 1), (3, 1), (1, 2), (1, 4)])
    drive = random_drive(rng, batching, rng.choice(["paged", "paged", "contiguous"]), depth, k)
    stems = [[rng.randrange(VOCAB_SIZE) for _ in range(30)] for _ in range(3)]
    for _ in range(1500):
        one_event(rng, drive, stems)
    drive.run()
