"""One sequence: what ends it, its cache keys, its times."""

from typing import Any

import pytest
from tests.unit.engine.driving import make_submit

from tribar.core.requests import Timing
from tribar.core.sampling.params import Wants
from tribar.engine.sequence import Sequence, State, from_submit


def make_sequence(prompt: list[int], max_tokens: int = 4, max_model_len: int = 100, **fields: Any) -> Sequence:
    return from_submit(make_submit(0, prompt, max_tokens, **fields), 1, 10.0, max_model_len)


def test_submit_becomes_a_waiting_sequence() -> None:
    sequence = make_sequence([5, 2**31 - 1, 0], priority=7)
    assert list(sequence.ids) == [5, 2**31 - 1, 0]
    assert (sequence.n_prompt, sequence.n_total, sequence.n_output) == (3, 3, 0)
    assert sequence.order == (7, 1)
    assert not sequence.is_finished
    assert [state for state in State if state >= State.FINISHED] == [State.FINISHED, State.ABORTED, State.FAILED]


@pytest.mark.parametrize(
    ("tokens", "n_visible", "reason", "n_output"),
    [
        ([1], 1, None, 1),
        ([1, 2, 3], 3, None, 3),
        ([1, 9, 3], 1, "stop", 2),
        ([9], 0, "stop", 1),
        ([1, 2, 3, 4], 4, "length", 4),
        ([1, 2, 3, 9], 3, "stop", 4),
        ([1, 2, 3, 4, 9], 4, "length", 4),
    ],
)
def test_tokens_are_accepted_up_to_the_end(
    tokens: list[int], n_visible: int, reason: str | None, n_output: int
) -> None:
    """The stop token is counted but not shown; a stop token at the last place is a stop."""
    sequence = make_sequence([7, 7], max_tokens=4, stop_ids=(9,))
    assert sequence.accept(tokens) == n_visible
    assert sequence.finish_reason == reason
    assert sequence.stop_id == (9 if reason == "stop" else None)
    assert sequence.n_output == n_output


def test_longest_length_cuts_max_tokens() -> None:
    assert make_sequence([1] * 30, max_tokens=10**9, max_model_len=32).max_total == 32


def test_block_keys_tell_public_from_private_blocks() -> None:
    sequence = make_sequence([1, 1, 1, 1, 1, 1], public_prefix_tokens=5, namespace=b"n")
    other = make_sequence([1, 1, 1, 1, 1, 1], public_prefix_tokens=5, namespace=b"m")
    assert sequence.block_key(0, 2) == sequence.block_key(1, 2) == other.block_key(1, 2)
    assert sequence.block_key(2, 2) != sequence.block_key(1, 2)
    assert sequence.block_key(2, 2) != other.block_key(2, 2)


@pytest.mark.parametrize(("n_scored", "may_match"), [(0, False), (2, False), (3, True)])
def test_prompt_logprobs_forbid_matching_until_they_are_delivered(n_scored: int, may_match: bool) -> None:
    sequence = make_sequence([1, 2, 3], wants=Wants(prompt_logprobs=0))
    sequence.n_scored = n_scored
    assert sequence.may_match is may_match


def test_without_prompt_logprobs_matching_is_free() -> None:
    assert make_sequence([1, 2, 3]).may_match


def test_time_before_a_mark_counts_where_the_sequence_was() -> None:
    sequence = make_sequence([1])
    assert sequence.timing(13.0) == Timing(3.0, 0.0, 0.0, 0)
    sequence.started_s = 11.0
    assert sequence.timing(13.0) == Timing(1.0, 2.0, 0.0, 0)
    sequence.first_token_s = 12.5
    assert sequence.timing(13.0) == Timing(1.0, 1.5, 0.5, 0)
