"""Grammars in the running engine: compiled beside the loop, refused alone, given up with their request."""

import asyncio
import re
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engine.engine_rig import END, LIMITS, ManualClock, endless, introduced, make_engine, running

from tribar.core.requests import AbortReason, FinishReason
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.engine.grammar import compiler
from tribar.engine.grammar.compiler import GrammarCompiler
from tribar.engine.grammar.guidance import compile_grammar
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.runtime.fake.script import logits_script
from tribar.wire.messages import Abort, Aborted, Drain, Failed, Finished, Submit

PIPELINES = {"depth 1": (1, 1), "depth 2": (2, 1), "3 tokens per step": (1, 3)}
DIGITS = "regex:guided_regex:[0-9]{3}(-[0-9]{2})?"


class Gate:
    """Holds the compiling of sources that begin with "slow" until opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._compile = compile_grammar
        self.entered, self.open = threading.Event(), threading.Event()
        monkeypatch.setattr(compiler, "compile_grammar", self)

    def __call__(self, tokenizer: Any, grammar: Any) -> Any:
        if grammar.source.startswith("slow"):
            self.entered.set()
            assert self.open.wait(30)
        return self._compile(tokenizer, grammar)


@pytest.mark.parametrize(("depth", "k"), PIPELINES.values(), ids=PIPELINES)
async def test_answers_match_and_say_how_they_ended(depth: int, k: int) -> None:
    async with running(make_engine(logits_script(300), depth=depth, max_tokens_per_step=k)) as engine:
        talker = await introduced(engine)
        grammars = {"regex:p:a{3}": "a{3}", DIGITS: r"\d{3}(-\d{2})?", 'lark:p:start: "yes" | "no"': "yes|no", "": None}
        asked = [
            (await talker.submit(i, max_tokens=20, grammar=grammar, sampling=SamplingParams(seed=i)), pattern)
            for i, (grammar, pattern) in enumerate([*grammars.items()] * 6)
        ]
        for uid, pattern in asked:
            terminal = await talker.ended(uid)
            assert isinstance(terminal, Finished)
            if pattern is not None:
                text = bytes(talker.ids[uid]).decode()
                assert re.fullmatch(pattern, text)
                assert terminal.reason is FinishReason.STOP
                assert terminal.n_output == len(text) + (terminal.stop_id is not None)
                assert terminal.stop_id in (None, END)


async def test_a_bad_grammar_fails_alone_under_its_fields_name() -> None:
    async with running(make_engine(endless)) as engine:
        talker = await introduced(engine)
        good = await talker.submit(0, max_tokens=30)
        bad = await talker.submit(1, grammar='json_schema:response_format:{"type":"foo"}')
        terminal = await talker.ended(bad)
        assert isinstance(terminal, Failed)
        assert (terminal.error, terminal.param) == ("InvalidRequest", "response_format")
        assert "Invalid type: foo" in terminal.message
        assert isinstance(await talker.ended(good), Finished)
        assert len(talker.ids[good]) == 30


async def test_a_slow_compilation_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running(make_engine(endless)) as engine:
        talker = await introduced(engine)
        slow = await talker.submit(0, grammar="regex:p:slow")
        assert await asyncio.to_thread(gate.entered.wait, 30)
        for i in range(1, 5):
            assert isinstance(await talker.ended(await talker.submit(i)), Finished)
        assert slow not in talker.terminals
        gate.open.set()
        assert isinstance(await talker.ended(slow), Finished)
        assert bytes(talker.ids[slow]) == b"slow"


async def test_a_request_may_end_while_its_grammar_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aborted, out of time, its client gone: one terminal each, nothing kept, and the engine drains."""
    gate = Gate(monkeypatch)
    clock = ManualClock()
    engine = make_engine(endless, clock=clock)
    async with running(engine):
        talker, leaver = await introduced(engine, 1), await introduced(engine, 2)
        aborted = await talker.submit(0, grammar="regex:p:slow a")
        late = await talker.submit(1, grammar="regex:p:slow b", deadline_s=1.0)
        patient = await talker.submit(2, grammar="regex:p:slow c")
        await leaver.submit(3, grammar="regex:p:slow d")
        assert await asyncio.to_thread(gate.entered.wait, 30)
        await talker.channel.send(Abort(aborted, AbortReason.CLIENT_GONE))
        await leaver.channel.close()
        clock.now_s += 2
        await talker.channel.send(Drain())
        for uid, reason in ((aborted, AbortReason.CLIENT_GONE), (late, AbortReason.DEADLINE)):
            terminal = await talker.ended(uid)
            assert isinstance(terminal, Aborted)
            assert terminal.reason is reason
        gate.open.set()
        assert isinstance(await talker.ended(patient), Finished)
        assert bytes(talker.ids[patient]) == b"slow c"
        refused = await talker.ended(await talker.submit(4, grammar="regex:p:slow c"))
        assert isinstance(refused, Failed)
        assert refused.error == "Unavailable"


async def test_a_refused_request_costs_no_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one beyond the queue, nor one that can never run, nor one that comes while the engine drains."""
    gate = Gate(monkeypatch)
    asked = []
    request = GrammarCompiler.request

    def spy(self: GrammarCompiler, submit: Submit) -> Any:
        asked.append(submit.uid)
        return request(self, submit)

    monkeypatch.setattr(GrammarCompiler, "request", spy)
    async with running(make_engine(endless, replace(LIMITS, max_waiting=1))) as engine:
        talker = await introduced(engine)
        never = await talker.submit(0, prompt="", grammar=DIGITS)
        first = await talker.submit(1, grammar="regex:p:slow")
        beyond = await talker.submit(2, grammar=DIGITS)
        await talker.channel.send(Drain())
        late = await talker.submit(3, grammar=DIGITS)
        for uid, error in ((never, "InvalidRequest"), (beyond, "Overloaded"), (late, "Unavailable")):
            terminal = await talker.ended(uid)
            assert isinstance(terminal, Failed)
            assert terminal.error == error
        gate.open.set()
        assert isinstance(await talker.ended(first), Finished)
    assert asked == [first]


async def test_a_flood_of_grammars_is_refused_and_others_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running(make_engine(endless)) as engine:
        talker = await introduced(engine)
        flood = [await talker.submit(i, grammar=f"regex:p:slow {i}", tenant="flood") for i in range(9)]
        terminal = await talker.ended(flood.pop())
        assert isinstance(terminal, Failed)
        assert (terminal.error, terminal.param, terminal.retry_after_s) == ("RateLimited", "p", 1.0)
        other = await talker.submit(9, grammar="regex:p:b{3}", tenant="other")
        gate.open.set()
        for uid in [*flood, other]:
            assert isinstance(await talker.ended(uid), Finished)


async def test_a_panic_while_a_grammar_is_followed_fails_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is our fault, and the engine goes on."""

    class PanicException(BaseException):
        pass

    class Broken:
        def deep_copy(self) -> None:
            raise PanicException

    monkeypatch.setattr(compiler, "compile_grammar", lambda *_: Broken())
    async with running(make_engine(endless)) as engine:
        talker = await introduced(engine)
        other = await talker.submit(0, max_tokens=30)
        terminal = await talker.ended(await talker.submit(1, grammar=DIGITS))
        assert isinstance(terminal, Failed)
        assert (terminal.error, terminal.param) == ("Internal", "guided_regex")
        assert isinstance(await talker.ended(other), Finished)
    assert engine.error is None


async def test_those_who_wait_for_a_grammar_count_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running(make_engine(endless, replace(LIMITS, max_waiting=2))) as engine:
        talker = await introduced(engine)
        uids = [await talker.submit(i, grammar=f"regex:p:slow {i}") for i in range(3)]
        refused = await talker.ended(uids[2])
        assert isinstance(refused, Failed)
        assert refused.error == "Overloaded"
        gate.open.set()
        for uid in uids[:2]:
            assert isinstance(await talker.ended(uid), Finished)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"sampling": SamplingParams(seed=1, min_tokens=9, suppressed=(END,))}, b"aaa"),
        ({"stop_ids": ()}, b"aaa"),
        ({"wants": Wants(logprobs=1)}, b"aaa"),
        ({"max_tokens": 2}, b"aa"),
        ({"stop_ids": (END, ord("a"))}, b""),
    ],
    ids=["min_tokens", "ignore_eos", "logprobs", "max_tokens", "stop id"],
)
async def test_the_end_of_the_grammar_is_the_end(fields: dict[str, Any], text: bytes) -> None:
    """Whatever asks for more; what asks for less is obeyed."""
    async with running(make_engine(endless)) as engine:
        talker = await introduced(engine)
        uid = await talker.submit(0, grammar="regex:p:a{3}", **fields)
        terminal = await talker.ended(uid)
        assert isinstance(terminal, Finished)
        assert bytes(talker.ids[uid]) == text
        assert terminal.reason is (FinishReason.LENGTH if "max_tokens" in fields else FinishReason.STOP)


async def test_a_grammar_that_gets_too_costly_fails_its_request_alone() -> None:
    async with running(make_engine(endless)) as engine:
        talker = await introduced(engine)
        source = "lark:guided_grammar:start: e\ne: e e e | e e | /[a-z]/"
        costly = await talker.submit(0, max_tokens=4000, grammar=source)
        terminal = await talker.ended(costly)
        assert isinstance(terminal, Failed)
        assert (terminal.error, terminal.param) == ("InvalidRequest", "guided_grammar")
        assert isinstance(await talker.ended(await talker.submit(1)), Finished)


async def test_an_engine_without_grammars_says_so() -> None:
    async with running(make_engine(endless, vocabulary=Vocabulary())) as engine:
        assert "grammars" not in engine.card.capabilities
        talker = await introduced(engine)
        terminal = await talker.ended(await talker.submit(0, grammar=DIGITS))
        assert isinstance(terminal, Failed)
        assert (terminal.error, terminal.param) == ("Unsupported", "guided_regex")


async def test_stopping_does_not_wait_for_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running(make_engine(endless)) as engine:
        talker = await introduced(engine)
        uid = await talker.submit(0, grammar="regex:p:slow")
        assert await asyncio.to_thread(gate.entered.wait, 30)
        await engine.stopped()
        gate.open.set()
        terminal = await talker.ended(uid)
        assert isinstance(terminal, Aborted)
        assert terminal.reason is AbortReason.DRAIN
