import numpy as np
from tests.unit.engine.client_rig import END, request

from tribar.core.ids import Uid
from tribar.core.requests import GenerateRequest, Grammar, GrammarKind, Prepared
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.engine.submission import submission
from tribar.wire.messages import Submit

UID = Uid(1, 2)


def made(asked: GenerateRequest) -> Submit:
    return submission(UID, Prepared(asked, 2, (97, 70_000)), frozenset({END}), b"ns", n_public=1)


def test_everything_asked_for_is_in_the_message() -> None:
    asked = request(
        max_tokens=5,
        wants=Wants(logprobs=3),
        tenant="t",
        priority=2,
        deadline_s=1.5,
        trace_id="x",
        sampling=SamplingParams(seed=7),
        grammar=Grammar(GrammarKind.REGEX, "a:b", "guided_regex"),
    )
    submit = made(asked)
    assert np.frombuffer(submit.ids, "<i4").tolist() == [97, 70_000]
    assert (submit.uid, submit.max_tokens, submit.wants, submit.namespace) == (UID, 5, Wants(logprobs=3), b"ns")
    assert (submit.tenant, submit.priority, submit.deadline_s, submit.trace_id) == ("t", 2, 1.5, "x")
    assert submit.public_prefix_tokens == 1
    assert submit.sampling == SamplingParams(seed=7)
    assert submit.grammar == "regex:guided_regex:a:b"


def test_end_tokens_stop_unless_they_are_ignored() -> None:
    assert made(request(max_tokens=1, stop_token_ids=(3,))).stop_ids == (3, END)
    assert made(request(max_tokens=1, stop_token_ids=(3,), ignore_eos=True)).stop_ids == (3,)


def test_ending_tokens_are_suppressed_only_for_min_tokens() -> None:
    sampling = SamplingParams(min_tokens=2, suppressed=(9,))
    assert made(request(max_tokens=5, sampling=sampling, stop_token_ids=(3,))).sampling.suppressed == (3, 9, END)
    sampling = SamplingParams(suppressed=(9,))
    assert made(request(max_tokens=5, sampling=sampling, stop_token_ids=(3,))).sampling.suppressed == (9,)


def test_a_request_without_a_seed_gets_its_own() -> None:
    seeds = {made(request(max_tokens=1)).sampling.seed for _ in range(50)}
    assert len(seeds) == 50
    assert all(seed is not None and 0 <= seed < 2**63 for seed in seeds)
    assert made(request(max_tokens=1, sampling=SamplingParams(seed=0))).sampling.seed == 0
