"""What a scheduler refuses, and what it cuts (BUG-019, BUG-023 a)."""

from typing import Any

import pytest
from tests.unit.engine.driving import VOCAB_SIZE, Drive, make_submit

from tribar.core.errors import Conflict, InvalidRequest, Overloaded, TribarError, Unavailable, Unsupported
from tribar.core.requests import AbortReason
from tribar.core.sampling.params import Wants
from tribar.engine.config import SchedulerConfig


def drive_with(max_model_len: int = 32, n_blocks: int = 65, max_waiting: int = 4096) -> Drive:
    config = SchedulerConfig(max_num_batched_tokens=64, max_model_len=max_model_len, max_waiting=max_waiting)
    return Drive(config, n_blocks=n_blocks, max_model_len=256)


@pytest.mark.parametrize("n_prompt", [32, 33, 10_000])
def test_prompt_without_room_for_output_is_refused_by_name(n_prompt: int) -> None:
    """BUG-019: the message names the prompt's length and the limit, and later requests are fine."""
    drive = drive_with(max_model_len=32)
    with pytest.raises(InvalidRequest, match=rf"{n_prompt} tokens.*32 tokens") as caught:
        drive.scheduler.add(make_submit(0, [1] * n_prompt), 0.0)
    assert caught.value.param == "prompt"
    assert drive.scheduler.is_idle
    client = drive.add(1, [1] * 31, max_tokens=5)
    drive.run()
    assert len(client.ids) == 1


def test_max_tokens_beyond_the_room_ends_by_length() -> None:
    """BUG-019: 30 tokens of prompt and max_tokens 10 in 32."""
    drive = drive_with(max_model_len=32)
    client = drive.add(0, [1] * 30, max_tokens=10)
    drive.run()
    assert client.terminal.reason == "length"
    assert client.terminal.n_output == 2


def test_prompt_larger_than_the_whole_pool_is_refused_up_front() -> None:
    """BUG-023 (a): a pool of 32 blocks of 4, a prompt of 200 tokens, max_model_len 256."""
    drive = drive_with(max_model_len=256, n_blocks=33)
    with pytest.raises(InvalidRequest, match=r"200 tokens.*128 tokens.*KV pool"):
        drive.scheduler.add(make_submit(0, [1] * 200), 0.0)
    client = drive.add(1, [1] * 127, max_tokens=50)
    drive.run()
    assert client.terminal.n_output == 1


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "param"),
    [([], 1, "prompt"), ([VOCAB_SIZE], 1, "prompt"), ([-1], 1, "prompt"), ([1], -1, "max_tokens")],
)
def test_nonsense_is_refused_by_name(prompt: list[int], max_tokens: int, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        drive_with().scheduler.add(make_submit(0, prompt, max_tokens), 0.0)
    assert caught.value.param == param


def test_full_queue_is_overloaded_and_recovers() -> None:
    drive = drive_with(max_waiting=2)
    drive.add(0, [1])
    drive.add(1, [1])
    with pytest.raises(Overloaded) as caught:
        drive.scheduler.add(make_submit(2, [1]), 0.0)
    assert caught.value.retry_after_s
    drive.run()
    drive.add(3, [1])
    drive.run()


def test_draining_refuses_new_and_finishes_old() -> None:
    drive = drive_with()
    client = drive.add(0, [1, 2], max_tokens=3)
    drive.scheduler.drain()
    with pytest.raises(Unavailable):
        drive.scheduler.add(make_submit(1, [1]), 0.0)
    drive.run()
    assert client.terminal.n_output == 3


def test_uid_in_use_is_a_conflict() -> None:
    drive = drive_with()
    drive.add(0, [1])
    with pytest.raises(Conflict):
        drive.scheduler.add(make_submit(0, [1]), 0.0)
    drive.run()


def test_abort_of_an_unknown_uid_is_ignored() -> None:
    drive = drive_with()
    client = drive.add(0, [1])
    drive.run()
    assert drive.scheduler.abort(client.submit.uid, AbortReason.CLIENT_GONE, 0, 0.0) is None


@pytest.mark.parametrize(
    "config",
    [SchedulerConfig(max_num_seqs=0), SchedulerConfig(max_num_batched_tokens=0), SchedulerConfig(max_model_len=1)],
)
def test_settings_under_which_nothing_could_run_are_refused(config: SchedulerConfig) -> None:
    with pytest.raises(InvalidRequest):
        Drive(config)


def test_several_tokens_a_step_need_depth_one() -> None:
    with pytest.raises(TribarError, match="depth 1"):
        Drive(depth=2, max_tokens_per_step=2)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"grammar": "regex:guided_regex:[0-9]"}, "guided_regex"),
        ({"adapter": "x"}, "adapters"),
        ({"wants": Wants(hidden=True)}, "hidden"),
        ({"wants": Wants(logprobs=0)}, "logprobs"),
        ({"wants": Wants(prompt_logprobs=0)}, "prompt_logprobs"),
    ],
    ids=str,
)
def test_what_the_runner_cannot_do_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """Law 4. In a step it would fail everyone, or nobody would notice that it was not done."""
    drive = Drive(capabilities=frozenset())
    with pytest.raises(Unsupported) as caught:
        drive.add(0, [1], **fields)
    assert caught.value.param == param
    drive.add(1, [1])
    drive.run()
