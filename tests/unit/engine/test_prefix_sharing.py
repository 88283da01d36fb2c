"""What is shared through the prefix cache, and what must not be (BUG-026, BUG-030, BUG-035)."""

from typing import Any

import pytest
from tests.unit.engine.driving import VOCAB_SIZE, Drive

from tribar.core.sampling.params import Wants
from tribar.engine.config import SchedulerConfig

PROMPT = [i % VOCAB_SIZE for i in range(33)]


def n_cached(drive: Drive, number: int, prompt: list[int] = PROMPT, **fields: Any) -> int:
    """Tokens that a request finds in the cache; it runs alone and to its end."""
    client = drive.add(number, prompt, max_tokens=1, **fields)
    drive.run()
    n: int = client.terminal.n_cached
    return n


@pytest.mark.parametrize(("n_prompt", "expected"), [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (32, 28), (33, 32)])
def test_last_token_is_always_computed(n_prompt: int, expected: int) -> None:
    drive = Drive()
    assert n_cached(drive, 0, PROMPT[:n_prompt]) == 0
    assert n_cached(drive, 1, PROMPT[:n_prompt]) == expected


def test_next_turn_finds_the_answer_of_the_last_one() -> None:
    drive = Drive()
    client = drive.add(0, PROMPT[:10], max_tokens=15)
    drive.run()
    turn = PROMPT[:10] + client.ids
    assert n_cached(drive, 1, [*turn, 1, 2, 3]) == 24


def test_namespaces_do_not_see_each_other() -> None:
    """BUG-030: another tenant's prompt is never a hit; one's own is."""
    drive = Drive()
    assert n_cached(drive, 0, namespace=b"a") == 0
    assert n_cached(drive, 1, namespace=b"b") == 0
    assert n_cached(drive, 2, namespace=b"") == 0
    assert n_cached(drive, 3, namespace=b"a") == 32


def test_public_prefix_is_shared_and_the_rest_is_not() -> None:
    """BUG-030: 18 public tokens round down to 16; what follows belongs to the namespace."""
    drive = Drive()
    assert n_cached(drive, 0, namespace=b"a", public_prefix_tokens=18) == 0
    assert n_cached(drive, 1, namespace=b"b", public_prefix_tokens=18) == 16
    assert n_cached(drive, 2, namespace=b"b", public_prefix_tokens=18) == 32
    assert n_cached(drive, 3, namespace=b"", public_prefix_tokens=0) == 0


def test_adapter_and_namespace_are_tagged_parts_of_the_key() -> None:
    """BUG-026: (adapter "x", no salt), (no adapter, salt "x") and others that concatenate alike are all different."""
    drive = Drive()
    pairs = [("x", b""), ("", b"x"), ("xy", b""), ("x", b"y"), ("", b"xy"), ("", b"")]
    for number, (adapter, namespace) in enumerate(pairs):
        assert n_cached(drive, number, adapter=adapter, namespace=namespace) == 0
    for number, (adapter, namespace) in enumerate(pairs):
        assert n_cached(drive, 100 + number, adapter=adapter, namespace=namespace) == 32


def test_public_prefix_under_an_adapter_is_another_one() -> None:
    """BUG-026."""
    drive = Drive()
    assert n_cached(drive, 0, public_prefix_tokens=33) == 0
    assert n_cached(drive, 1, public_prefix_tokens=33, adapter="x") == 0
    assert n_cached(drive, 2, public_prefix_tokens=33, adapter="x") == 32


def test_reset_forgets_everything() -> None:
    """BUG-026: a reload under the same name starts with an empty cache, also for sequences that are running."""
    drive = Drive()
    assert n_cached(drive, 0) == 0
    running = drive.add(1, PROMPT, max_tokens=20)
    drive.step()
    drive.scheduler.reset_cache()
    assert drive.scheduler.stats().n_blocks_cached == 0
    assert n_cached(drive, 2) == 0
    assert running.terminal.n_output == 20
    assert n_cached(drive, 3) == 32


def test_only_a_contiguous_prefix_hits() -> None:
    """BUG-035: blocks are evicted from the end, and a prompt whose first block differs hits nothing."""
    drive = Drive(SchedulerConfig(max_num_batched_tokens=64, max_model_len=40), n_blocks=11)
    assert n_cached(drive, 0, PROMPT[:17]) == 0
    assert n_cached(drive, 1, [28] * 29) == 0
    kept = n_cached(drive, 2, PROMPT[:17])
    assert 0 < kept < 16
    assert n_cached(drive, 3, [1, *PROMPT[1:17]]) == 0


def test_prompt_logprobs_do_not_match_but_insert() -> None:
    drive = Drive()
    assert n_cached(drive, 0, wants=Wants(prompt_logprobs=0)) == 0
    assert n_cached(drive, 1) == 32
    assert n_cached(drive, 2, wants=Wants(prompt_logprobs=1)) == 0


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [8, 16, 512])
def test_equal_prompts_prefill_their_prefix_once(budget: int, depth: int) -> None:
    """32 equal prompts at once: one computes the prefix, the others only what is never shared."""
    config = SchedulerConfig(max_num_seqs=32, max_num_batched_tokens=budget, max_model_len=64)
    drive = Drive(config, n_blocks=257, max_rows=32, depth=depth)
    for number in range(32):
        drive.add(number, PROMPT, max_tokens=1)
    drive.run()
    assert drive.runner.n_computed == 33 + 31 * 1


def test_one_who_waits_for_a_prefix_goes_on_when_its_maker_leaves() -> None:
    drive = Drive(SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=8, max_model_len=64))
    maker = drive.add(0, PROMPT, max_tokens=5)
    heir = drive.add(1, PROMPT, max_tokens=5)
    other = drive.add(2, [28] * 3, max_tokens=1)
    drive.step()
    assert drive.scheduler.stats().n_waiting == 2
    drive.abort(maker)
    drive.run()
    assert heir.terminal.n_cached == 8
    assert other.terminal
    assert drive.runner.n_computed == 33 + 4 + 3


def test_duplicates_keep_the_first_copy_and_free_the_second() -> None:
    """Both compute the same blocks because one wants log-probabilities; the tree ends up with one copy."""
    drive = Drive()
    drive.add(0, PROMPT, max_tokens=9)
    drive.add(1, PROMPT, max_tokens=9, wants=Wants(prompt_logprobs=0))
    drive.step()
    stats = drive.scheduler.stats()
    assert stats.n_blocks_used == 18
    assert stats.kv_slots_used == 33 + 31
    drive.run()
    assert drive.scheduler.stats().n_blocks_cached == 10
