import random

import pytest

from tribar.core.ids import Uid
from tribar.core.requests import FinishReason, ModelCard, Timing
from tribar.core.sampling.params import TokenLogprobs
from tribar.wire import outbox as outbox_module
from tribar.wire.codec import MAX_FRAME_BYTES, FrameEncoder
from tribar.wire.messages import Failed, Finished, Output, Ready, Stats, StepOutput
from tribar.wire.outbox import FRAME_ENTRIES, Outbox, weight

FINISHED = Finished(FinishReason.STOP, 1, 1, 0, Timing())
CARD = ModelCard(name="m", architecture="a", max_model_len=1, vocab_size=1)


def drain(outbox: Outbox) -> list[Output]:
    outputs: list[Output] = []
    while (message := outbox.take()) is not None:
        if isinstance(message, StepOutput):
            assert message.outputs
            outputs += message.outputs
    return outputs


def test_the_latest_ready_and_stats_replace_older_ones() -> None:
    outbox = Outbox()
    assert not outbox
    for step in range(100):
        outbox.put(Ready(CARD, step))
        outbox.put(Stats(n_steps=step))
    assert outbox
    assert outbox.take() == Ready(CARD, 99)
    assert outbox.take() == Stats(n_steps=99)
    assert outbox.take() is None
    assert not outbox


def test_random_traffic_is_merged_without_loss_or_mixing() -> None:
    """The merged stream of each uid equals the plain concatenation, whatever was taken in between."""
    for seed in range(100):
        rng = random.Random(seed)
        outbox = Outbox()
        expected: dict[Uid, list[int]] = {}
        ended: set[Uid] = set()
        got: dict[Uid, list[int]] = {}
        got_logprobs: dict[Uid, list[int]] = {}
        terminals: list[Uid] = []

        def receive(outputs: list[Output], got=got, got_logprobs=got_logprobs, terminals=terminals) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
            for output in outputs:
                assert output.uid not in terminals
                got.setdefault(output.uid, []).extend(output.ids)
                got_logprobs.setdefault(output.uid, []).extend(each.token_id for each in output.logprobs or [])
                if output.terminal is not None:
                    terminals.append(output.uid)

        for _ in range(rng.randrange(200)):
            uids = [uid for uid in (Uid(0, n) for n in range(8)) if uid not in ended and rng.random() < 0.5]
            outputs = []
            for uid in uids:
                ids = [rng.randrange(100) for _ in range(rng.randrange(4))]
                terminal = FINISHED if rng.random() < 0.05 else None
                if terminal:
                    ended.add(uid)
                expected.setdefault(uid, []).extend(ids)
                outputs.append(Output(uid, ids, [TokenLogprobs(i, -1.0) for i in ids], terminal=terminal))
            outbox.put(StepOutput(outputs))
            assert outbox.n_outputs <= 8
            if rng.random() < 0.1 and (message := outbox.take()):
                assert isinstance(message, StepOutput)
                receive(message.outputs)
        receive(drain(outbox))
        assert got == expected
        assert got_logprobs == expected
        assert set(terminals) == ended


def test_a_uid_used_again_after_its_end_stays_apart() -> None:
    outbox = Outbox()
    failed = Failed("InvalidRequest", "used twice")
    outbox.put(StepOutput([Output(Uid(0, 0), [1]), Output(Uid(0, 0), [], terminal=failed)]))
    outbox.put(StepOutput([Output(Uid(0, 0), [2], terminal=FINISHED)]))
    assert drain(outbox) == [Output(Uid(0, 0), [1], terminal=failed), Output(Uid(0, 0), [2], terminal=FINISHED)]


def test_the_heaviest_output_is_cut_into_frames_far_below_the_limit() -> None:
    n_tokens, k = 100_000, 20
    top_ids, top_logprobs = tuple(range(100_000, 100_000 + k)), (-1.25,) * k
    outbox = Outbox()
    logprobs = [TokenLogprobs(i, -0.1, top_ids, top_logprobs) for i in range(n_tokens)]
    prompt_logprobs = [None, *logprobs[:50_000]]
    outbox.put(StepOutput([Output(Uid(0, 0), list(range(n_tokens)), list(logprobs), list(prompt_logprobs), FINISHED)]))
    assert outbox._n_entries == weight(Output(Uid(0, 0), list(range(n_tokens)), logprobs, [None, *logprobs[:50_000]]))
    ids: list[int] = []
    got: list[TokenLogprobs] = []
    got_prompt: list[TokenLogprobs | None] = []
    terminals = []
    encoder = FrameEncoder()
    while (message := outbox.take()) is not None:
        assert isinstance(message, StepOutput)
        assert len(encoder.encode(message)) < MAX_FRAME_BYTES // 8
        [output] = message.outputs
        assert not (output.ids and len(got_prompt) + len(output.prompt_logprobs or ()) < len(prompt_logprobs))
        ids += output.ids
        got += output.logprobs or []
        got_prompt += output.prompt_logprobs or []
        terminals.append(output.terminal)
    assert ids == list(range(n_tokens))
    assert got == logprobs
    assert got_prompt == prompt_logprobs
    assert terminals == [None] * (len(terminals) - 1) + [FINISHED]
    assert outbox._n_entries == 0


def test_a_frame_holds_many_small_outputs_up_to_the_budget() -> None:
    outbox = Outbox()
    n_requests = FRAME_ENTRIES
    for counter in range(n_requests):
        outbox.put(StepOutput([Output(Uid(0, counter), [1])]))
    first = outbox.take()
    assert isinstance(first, StepOutput)
    assert len(first.outputs) == FRAME_ENTRIES // 2
    assert len(drain(outbox)) == n_requests - FRAME_ENTRIES // 2


def test_full_is_counted_in_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MAX_PENDING_ENTRIES", 1000)
    outbox = Outbox()
    half = 500
    outbox.put(StepOutput([Output(Uid(0, 0), [0] * half)]))
    fullness = [outbox.is_full]
    outbox.put(StepOutput([Output(Uid(0, 0), [0] * half)]))
    fullness.append(outbox.is_full)
    drain(outbox)
    assert [*fullness, outbox.is_full] == [False, True, False]
