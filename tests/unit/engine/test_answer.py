import random
from typing import cast

from tests.unit.engine.client_rig import END, TIMING, byte_text, finished, request

from tribar.core.ids import Uid
from tribar.core.requests import AbortReason, Delta, Finish, FinishReason, GenerateRequest, Timing, Usage
from tribar.core.sampling.params import SamplingParams, TokenLogprobs
from tribar.engine.answer import Answer
from tribar.wire.messages import Aborted, Failed, Output, Terminal

UID = Uid(0, 0)


def played(asked: GenerateRequest, ids: list[int], cuts: list[int], with_logprobs: bool = False) -> list[Delta]:
    """The Deltas of an answer whose ids arrive cut at ``cuts``."""
    answer = Answer(asked, byte_text())
    deltas = []
    for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        piece = ids[start:end]
        answer.push(Output(UID, piece, [TokenLogprobs(i, -1.0) for i in piece] if with_logprobs else None))
        if (delta := answer.take()) is not None:
            deltas.append(delta)
    return [*deltas, answer.finish(finished(len(ids) + 1), 2)]


def random_cuts(rng: random.Random, n: int) -> list[int]:
    return sorted(rng.sample(range(n + 1), rng.randrange(min(n + 1, 6))))


def test_no_delta_holds_half_a_character() -> None:
    """BUG-001: emoji, a rare ideograph and a joined emoji, cut anywhere."""
    said = "a\U0001fae0\u9f9c\U0001f469\u200d\U0001f52c!"
    ids = list(said.encode())
    for seed in range(200):
        deltas = played(request(), ids, random_cuts(random.Random(seed), len(ids)))
        assert "".join(delta.text for delta in deltas) == said
        assert not any("\ufffd" in delta.text for delta in deltas)
        assert [i for delta in deltas for i in delta.token_ids] == ids
        assert all(delta.text for delta in deltas[:-1])


def test_an_unfinished_character_becomes_a_replacement_only_at_the_end() -> None:
    deltas = played(request(), [97, 0xF0, 0x9F], [1, 2])
    assert [(delta.text, delta.token_ids) for delta in deltas] == [("a", (97,)), ("\ufffd", (0xF0, 0x9F))]


def test_stop_strings_cut_right_before_the_earliest_match_however_the_tokens_arrive() -> None:
    """BUG-003: against plain search in the whole text, over random texts, stops and cuts."""
    for seed in range(500):
        rng = random.Random(seed)
        said = "".join(rng.choice("ab") for _ in range(rng.randrange(1, 25)))
        stops = tuple("".join(rng.choice("ab") for _ in range(rng.randrange(1, 5))) for _ in range(rng.randrange(1, 4)))
        ids = list(said.encode())
        deltas = played(request(stop=stops), ids, random_cuts(rng, len(ids)), with_logprobs=True)
        ends = [said.find(stop) + len(stop) for stop in stops if stop in said]
        finish = cast(Finish, deltas[-1].finish)
        text = "".join(delta.text for delta in deltas)
        n_tokens = min(ends, default=len(ids))
        assert [i for delta in deltas for i in delta.token_ids] == ids[:n_tokens]
        assert [each.token_id for delta in deltas for each in delta.logprobs] == ids[:n_tokens]
        if ends:
            matched = max((stop for stop in stops if said[:n_tokens].endswith(stop)), key=len)
            assert (text, finish.stop) == (said[: n_tokens - len(matched)], matched)
            assert (finish.reason, finish.usage) == (FinishReason.STOP, Usage(2, n_tokens, 1))
        else:
            assert (text, finish.stop, finish.usage) == (said, None, Usage(2, len(ids) + 1, 1))


def test_a_stop_string_over_several_tokens_does_not_leak() -> None:
    """BUG-003: the two cases of the report."""
    deltas = played(request(stop=("own fox",)), list(b"the brown fox jumps"), list(range(1, 19)))
    assert "".join(delta.text for delta in deltas) == "the br"
    deltas = played(request(stop=("DEFGHIJ",)), list(b"ABCDEFGHIJKL"), list(range(1, 12)))
    assert [delta.text for delta in deltas] == ["A", "B", "C", ""]
    deltas = played(request(stop=("own fox",), include_stop_text=True), list(b"the brown fox jumps"), [])
    assert "".join(delta.text for delta in deltas) == "the brown fox"


def test_text_held_back_for_a_stop_string_is_shown_at_the_end() -> None:
    deltas = played(request(stop=("abc",)), list(b"xab"), [1, 2])
    assert [delta.text for delta in deltas] == ["x", "ab"]


def test_stop_strings_are_not_looked_for_below_min_tokens() -> None:
    for said, shown, n_tokens in [("aabab", "aab", 4), ("aaaa", "aa", 3)]:
        deltas = played(request(stop=("a",), sampling=SamplingParams(min_tokens=3)), list(said.encode()), [])
        assert "".join(delta.text for delta in deltas) == shown
        assert cast(Finish, deltas[-1].finish).usage.completion_tokens == n_tokens


def test_nothing_after_a_match_counts_whatever_the_terminal() -> None:
    cases: list[tuple[Terminal, Timing]] = [
        (finished(9), TIMING),
        (Failed("Internal", "non-finite logits"), Timing()),
        (Aborted(AbortReason.DEADLINE, 2, 9, TIMING), TIMING),
    ]
    for terminal, timing in cases:
        answer = Answer(request(stop=("b",)), byte_text())
        answer.push(Output(UID, list(b"abc")))
        answer.push(Output(UID, list(b"def")))
        assert (answer.matched, answer.n_tokens) == ("b", 2)
        finish = answer.finish(terminal, 2).finish
        assert finish is not None
        assert (finish.reason, finish.stop, finish.usage.completion_tokens) == (FinishReason.STOP, "b", 2)
        assert finish.timing == timing


def test_special_tokens_are_shown_only_when_asked_for() -> None:
    for skip, text in [(True, "ab"), (False, "a<|end|>b")]:
        deltas = played(request(skip_special_tokens=skip), [97, END, 98], [])
        assert "".join(delta.text for delta in deltas) == text
        assert [i for delta in deltas for i in delta.token_ids] == [97, END, 98]


def test_the_stop_token_is_reported_when_the_request_named_it() -> None:
    for stop_token_ids, stop in [((END,), END), ((), None)]:
        answer = Answer(request(stop_token_ids=stop_token_ids), byte_text())
        finish = answer.finish(finished(1), 2).finish
        assert finish == Finish(FinishReason.STOP, Usage(2, 1, 1), TIMING, stop, END)


def test_prompt_logprobs_come_whole_with_the_first_delta() -> None:
    answer = Answer(request(), byte_text())
    scored = TokenLogprobs(98, -0.5)
    answer.push(Output(UID, [], prompt_logprobs=[None]))
    assert answer.take() is None
    answer.push(Output(UID, [], prompt_logprobs=[scored]))
    answer.push(Output(UID, [97]))
    delta = answer.take()
    assert delta is not None
    assert delta.prompt_logprobs == (None, scored)
    answer.push(Output(UID, [97]))
    second = answer.take()
    assert second is not None
    assert second.prompt_logprobs is None
