from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.unit.gateway.semantic_cache.cache_rig import TTL_S, FakeAnalyst, Halting, Rig, ask, told, wish

from tribar.core.errors import Internal, InvalidRequest, NotFound, Unavailable
from tribar.core.fake_generator import FAKE_CARD, Script, Step, speak
from tribar.core.requests import CacheMode, ChatPrompt, Delta, Finish, FinishReason, Prepared, Timing, Usage
from tribar.core.sampling.params import SamplingParams
from tribar.gateway.semantic_cache.answer_cache import MAX_ANALYSES, Found
from tribar.gateway.semantic_cache.entry import Answer, Entry
from tribar.gateway.semantic_cache.freshness import Scope
from tribar.gateway.semantic_cache.generator import PAUSE_S
from tribar.gateway.semantic_cache.hits import MAX_HITS, HitId, RecentHits
from tribar.gateway.semantic_cache.partition import asked
from tribar.gateway.semantic_cache.policy import CachePolicy
from tribar.gateway.semantic_cache.thresholds import Decision, ThresholdConfig, Thresholds
from tribar.stores.memory_keyvalue import MemoryKeyValueStore

QUESTION = "how do I reset my password"
ALIKE = "how do I reset the password"


async def test_the_same_words_hit() -> None:
    """And neither analyse nor generate anything."""
    rig = Rig()
    assert await rig.ask(ask(QUESTION)) == ("miss", "An answer.")
    n_analysed = rig.analyst.n_questions
    assert await rig.ask(ask("How do I reset my password?")) == ("exact", "An answer.")
    assert (len(rig.fake.requests), rig.fake.n_finished, rig.analyst.n_questions) == (1, 1, n_analysed)
    assert rig.observer.events == ["miss", "exact"]


async def test_the_same_meaning_hits() -> None:
    rig = Rig()
    await rig.ask(ask(QUESTION))
    prepared = await rig.generator.prepare(ask(ALIKE))
    headers = told(prepared)
    assert headers["x-tribar-cache"] == "semantic"
    assert 0.7 < float(headers["x-tribar-cache-similarity"]) < 1
    assert HitId.parse(headers["x-tribar-cache-id"]) is not None
    assert rig.fake.n_finished == 1


async def test_a_question_is_analysed_once() -> None:
    """Other words for a popular question are asked again, too. Of very many, the oldest is forgotten."""
    rig = Rig()
    await rig.ask(ask(QUESTION))
    for _ in range(3):
        assert (await rig.ask(ask(ALIKE)))[0] == "semantic"
    assert rig.analyst.n_questions == 2
    for i in range(MAX_ANALYSES):
        await rig.cache.analyse(asked(ask(f"question {i}"), FAKE_CARD, ""))
    await rig.ask(ask(ALIKE))
    assert rig.analyst.n_questions == 2 + MAX_ANALYSES + 1


async def test_another_meaning_misses() -> None:
    """BUG-091: the judge has the last word, however near the vectors."""
    rig = Rig()
    await rig.ask(ask("what happened in the year 2023"))
    assert (await rig.ask(ask("what happened in the year 2024")))[0] == "miss"
    assert (await rig.ask(ask("why is the sky blue")))[0] == "miss"


async def test_one_field_differs() -> None:
    """BUG-093: neither the same words nor the same meaning is found."""
    rig = Rig()
    await rig.ask(ask(QUESTION))
    for fields in ({"max_tokens": 7}, {"tenant": "b"}, {"stop": ("x",)}):
        for question in (QUESTION, ALIKE):
            prepared = await rig.generator.prepare(ask(question, **fields))
            assert told(prepared)["x-tribar-cache"] == "miss", fields


async def test_another_history() -> None:
    """BUG-094."""
    rig = Rig()
    await rig.ask(ask("and the second one?", "name two trees", "oak, elm"))
    assert (await rig.ask(ask("and the second one?", "name two cars", "audi, bmw")))[0] == "miss"
    assert (await rig.ask(ask("and the second one?", "name two trees", "oak, elm")))[0] == "exact"


async def test_another_version_of_the_model() -> None:
    rig = Rig()
    await rig.ask(ask(QUESTION))
    after = Rig(store=rig.store, version="2")
    assert (await after.ask(ask(QUESTION)))[0] == "miss"


@pytest.mark.parametrize("cross_language", [False, True])
async def test_languages(cross_language: bool) -> None:
    """Trigrams see "iphone iphone iphone" in both questions; only the language is another."""
    rig = Rig(policy=CachePolicy(ttl_s=TTL_S, cross_language=cross_language))
    await rig.ask(ask("iphone iphone iphone"))
    found = await rig.ask(ask("iphone iphone iphone 吗"))
    assert found[0] == ("semantic" if cross_language else "miss")


@pytest.mark.parametrize("request_", [ask(QUESTION, n=2), ask(QUESTION, sampling=SamplingParams(temperature=1.0))])
async def test_bypass(request_: object) -> None:
    """BUG-093, BUG-096: nothing is looked up and nothing stored; the header says why."""
    rig = Rig()
    await rig.ask(ask(QUESTION))
    assert isinstance(request_, type(ask(QUESTION)))
    for _ in range(2):
        prepared = await rig.generator.prepare(request_)
        assert told(prepared)["x-tribar-cache"] == "bypass"
        assert told(prepared)["x-tribar-cache-reason"] in {"choices", "sampled"}
        await rig.deltas(prepared)
    assert len(rig.store) == 2, "the entry and its tenant's mark"  # type: ignore[arg-type]


@pytest.mark.parametrize("is_semantic", [False, True])
async def test_questions_that_are_not_worth_keeping(is_semantic: bool) -> None:
    rig = Rig(is_semantic=is_semantic)
    for _ in range(2):
        prepared = await rig.generator.prepare(ask("what is the weather today"))
        assert told(prepared) == {"x-tribar-cache": "bypass", "x-tribar-cache-reason": "volatile"}
        await rig.deltas(prepared)
    assert rig.fake.n_finished == 2


async def test_a_follow_up_without_its_conversation() -> None:
    """BUG-094: what it leans on was not sent, so its answer is nobody else's; with the turns before, it is."""
    rig = Rig(is_semantic=False)
    assert (await rig.ask(ask("make it shorter")))[0] == "bypass"
    assert (await rig.ask(ask("make it shorter", "write a poem", "a rose")))[0] == "miss"


async def test_wishes() -> None:
    def count(prepared: Prepared) -> Iterable[Step]:
        return speak(str(len(rig.fake.requests)))(prepared)

    rig = Rig(count)
    assert await rig.ask(ask(QUESTION)) == ("miss", "1")
    assert await rig.ask(ask(ALIKE, cache=wish(mode=CacheMode.EXACT))) == ("miss", "2")
    assert await rig.ask(ask(QUESTION, cache=wish(mode=CacheMode.BYPASS))) == ("bypass", "3")
    assert await rig.ask(ask(QUESTION)) == ("exact", "1")
    assert await rig.ask(ask(QUESTION, cache=wish(mode=CacheMode.REFRESH))) == ("miss", "4")
    assert await rig.ask(ask(QUESTION)) == ("exact", "4")


def finishing(reason: FinishReason, text: str = "x") -> Script:
    return lambda _: [Delta(text, (1,)), Delta(finish=Finish(reason, Usage(1, 1), Timing()))]


@pytest.mark.parametrize(
    "script",
    [finishing(FinishReason.LENGTH), finishing(FinishReason.STOP, "x" * 2000), lambda _: [Delta("x"), Internal("no")]],
    ids=["length", "too-large", "error"],
)
async def test_what_is_not_stored(script: Script) -> None:
    """BUG-096."""
    rig = Rig(script, policy=CachePolicy(ttl_s=TTL_S, max_answer_bytes=1000))
    for _ in range(2):
        prepared = await rig.generator.prepare(ask(QUESTION))
        assert told(prepared)["x-tribar-cache"] == "miss"
        try:
            await rig.deltas(prepared)
        except Internal:
            await rig.settle()
        del prepared
    assert len(rig.index) == 0


@pytest.mark.parametrize(
    ("said", "is_kept"), [('<tool_call>{"name":"f","arguments":{}}</tool_call>', False), ("5", True)]
)
async def test_calls_of_tools_are_not_stored(said: str, is_kept: bool) -> None:
    """BUG-096, BUG-097: a text that answers a request with tools is."""
    rig = Rig(speak(said))
    rig.fake._card = replace(FAKE_CARD, tool_format="hermes")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    prompt = ask(QUESTION).prompt
    assert isinstance(prompt, ChatPrompt)
    request = ask(QUESTION, prompt=replace(prompt, tools=tools))
    await rig.ask(request)
    assert await rig.ask(request) == ("exact" if is_kept else "miss", said)


async def test_replay_is_like_the_answer() -> None:
    """BUG-097: text, tokens, stop, usage; all of the prompt counts as cached."""
    pieces = [Delta(f"词{i} ", (i, i + 1)) for i in range(40)]
    usage = Usage(prompt_tokens=9, completion_tokens=80, cached_tokens=3)
    last = Delta(finish=Finish(FinishReason.STOP, usage, Timing(1, 1, 1), stop="##", end=2))
    rig = Rig(lambda _: [*pieces, last])
    first = await rig.deltas(await rig.generator.prepare(ask(QUESTION)))
    prepared = await rig.generator.prepare(ask(QUESTION))
    again = await rig.deltas(prepared)
    assert "".join(delta.text for delta in again) == "".join(delta.text for delta in first)
    assert [i for delta in again for i in delta.token_ids] == [i for delta in pieces for i in delta.token_ids]
    assert 2 < len(again) <= 1 + 80 / 16, "in pieces, but not in as many"
    finish = again[-1].finish
    assert finish == Finish(FinishReason.STOP, Usage(9, 80, 9), Timing(), stop="##", end=2)
    assert prepared.n_tokens == 9


async def test_time_to_live() -> None:
    """BUG-098: 59 s, 60 s, 61 s with a fake clock; also for a question in other words."""
    for later_s, expected in ((59, ("exact", "semantic")), (60, ("miss", "miss")), (61, ("miss", "miss"))):
        for question, result in zip((QUESTION, ALIKE), expected, strict=True):
            rig = Rig()
            await rig.ask(ask(QUESTION))
            rig.clock.now_s += later_s
            assert (await rig.ask(ask(question)))[0] == result, later_s


@pytest.mark.parametrize(("scope", "name"), [(Scope.TAG, "t"), (Scope.DOCUMENT, "d"), (Scope.TENANT, "")], ids=str)
async def test_invalidation(scope: Scope, name: str) -> None:
    """BUG-098: the next lookup misses, in every process on the same store, and of no other tenant."""
    rig = Rig()
    other = Rig(store=rig.store)
    marked = wish(tags=("t", "u"), documents=("d", "e"))
    await rig.ask(ask(QUESTION, cache=marked))
    await rig.ask(ask(QUESTION, cache=marked, tenant="b"))
    await other.cache.restore()
    assert (await other.ask(ask(ALIKE)))[0] == "semantic"
    assert await rig.administration.invalidate("a", scope, name)
    assert (await other.ask(ask(ALIKE, cache=wish(mode=CacheMode.EXACT))))[0] == "miss"
    assert (await rig.ask(ask(QUESTION, tenant="b")))[0] == "exact"
    rig = Rig(store=rig.store)
    assert (await rig.ask(ask(QUESTION)))[0] == "miss"
    assert not await rig.administration.invalidate("a", Scope.TAG, "never used")


async def test_invalidated_while_it_is_generated() -> None:
    """BUG-098: what was asked before is out of date when it comes: not stored as fresh, and nobody joins it."""
    script = Halting()
    rig = Rig(script)
    before = await rig.generator.prepare(ask(QUESTION, cache=wish(tags=("t",))))
    stream = rig.generator.generate(before)
    await anext(stream)
    await rig.administration.invalidate("a", Scope.TAG, "t")
    after = await rig.generator.prepare(ask(QUESTION, cache=wish(tags=("t",))))
    assert told(after)["x-tribar-cache"] == "miss"
    script.go.set()
    await rig.deltas(after)
    assert [delta async for delta in stream][-1].finish is not None
    await rig.settle()
    assert rig.fake.n_finished == 2
    assert (await rig.ask(ask(QUESTION, cache=wish(tags=("t",)))))[0] == "exact", "the second one"


async def test_a_tag_that_was_not_noted() -> None:
    """Its invalidation would not reach the stored answer, so that does not serve who names it."""
    rig = Rig()
    await rig.ask(ask(QUESTION, cache=wish(tags=("t",))))
    assert (await rig.ask(ask(QUESTION, cache=wish(tags=("u",)))))[0] == "miss"
    assert (await rig.ask(ask(ALIKE, cache=wish(tags=("t",)))))[0] == "miss", "the last answer has no t"
    assert (await rig.ask(ask(QUESTION)))[0] == "exact"


async def test_lost_marks_cost_entries_only() -> None:
    rig = Rig()
    await rig.ask(ask(QUESTION))
    await rig.store.delete([key async for key in rig.store.keys("mark:")])
    assert (await rig.ask(ask(QUESTION)))[0] == "miss"


async def test_a_wrong_hit_is_not_given_again() -> None:
    """Those near it demand more; the budget of errors, which is everybody's, is nobody's to spend."""
    thresholds = Thresholds(ThresholdConfig(n_cold=0, unconfirmed_share=0.001, check_share=0.001))
    rig = Rig(thresholds=thresholds)
    near = "how do I reset my passwords"
    await rig.ask(ask(near, cache=wish(mode=CacheMode.REFRESH)))
    await rig.ask(ask(QUESTION, cache=wish(mode=CacheMode.REFRESH)))
    hit_id = HitId.parse(told(await rig.generator.prepare(ask(ALIKE)))["x-tribar-cache-id"])
    assert hit_id is not None
    entry = await rig.administration.entry("a", hit_id)
    assert (entry.question, entry.answer.text) == (QUESTION, "An answer.")
    await rig.administration.report("a", hit_id, is_right=True)
    await rig.administration.report("a", hit_id, is_right=False)
    assert rig.observer.events[-2:] == ["client right", "client wrong"]
    assert thresholds.wrong_estimate == 0.0
    thresholds.check()
    assert (await rig.ask(ask(ALIKE)))[0] == "miss", "the one near it demands more"
    assert (await rig.ask(ask(near)))[0] == "exact"
    with pytest.raises(NotFound):
        await rig.administration.report("a", hit_id, is_right=False)


async def test_recent_hits_are_bounded() -> None:
    """Law 12; and no answer is held by them."""
    hits = RecentHits()
    decision = Decision("k", 0.9, 0, is_served=True, is_checked=False, chance=0.0)
    entry = Entry("a", "m", "q", Answer((), None, None, 1, 1, ()), 0.0, {})
    ids = [hits.add(Found("0" * 32, entry, 0.9, decision)) for _ in range(MAX_HITS + 1)]
    assert hits.pop(ids[0]) is None
    assert hits.pop(ids[1]) == (decision, ())
    assert hits.pop(ids[1]) is None


async def test_another_tenants_answer_does_not_exist() -> None:
    """Law 11, for administration."""
    rig = Rig()
    await rig.ask(ask(QUESTION))
    hit_id = HitId.parse(told(await rig.generator.prepare(ask(QUESTION)))["x-tribar-cache-id"])
    assert hit_id is not None
    with pytest.raises(NotFound):
        await rig.administration.entry("b", hit_id)
    with pytest.raises(NotFound):
        await rig.administration.report("b", hit_id, is_right=False)
    with pytest.raises(NotFound):
        await rig.administration.drop("b", hit_id)
    assert not await rig.administration.invalidate("b", Scope.TENANT)
    assert (await rig.ask(ask(QUESTION)))[0] == "exact"
    await rig.administration.drop("a", hit_id)
    assert (await rig.ask(ask(QUESTION)))[0] == "miss"


async def test_another_embedding_model() -> None:
    """BUG-099: of the same dimension or another, its vectors are never compared with those of the first."""
    first = Rig()
    await first.ask(ask(QUESTION))
    for analyst in (FakeAnalyst("e2", 64), FakeAnalyst("e2", 32)):
        second = Rig(store=first.store, analyst=analyst)
        assert await second.cache.restore() == 0
        assert told(await second.generator.prepare(ask(ALIKE)))["x-tribar-cache"] == "miss"
        assert (await second.ask(ask(QUESTION)))[0] == "exact", "the words are the same in every model"
    again = Rig(store=first.store)
    await again.cache.restore()
    assert (await again.ask(ask(ALIKE)))[0] == "semantic"


async def test_entries_that_are_gone_leave_the_index() -> None:
    """Beyond the first search: as many dead neighbours as candidates do not hide a living one."""
    rig = Rig()
    for i in range(5):
        await rig.ask(ask(f"{QUESTION} {'x' * i}"))
    await rig.store.delete([key async for key in rig.store.keys("answer:")])
    await rig.ask(ask(QUESTION + " now please", cache=wish(mode=CacheMode.REFRESH)))
    assert (await rig.ask(ask(QUESTION + " now")))[0] == "semantic"
    assert len(rig.index) == 1


class _Away(MemoryKeyValueStore):
    """Fails while ``is_away``."""

    is_away = False

    async def get(self, keys: object) -> list[bytes | None]:
        if self.is_away:
            raise Unavailable("nobody there")
        return list(await super().get(keys))  # type: ignore[arg-type]


async def test_a_store_that_is_away_costs_hits_only() -> None:
    """And not every request waits for it."""
    store = _Away(1 << 20, 100)
    rig = Rig(store=store)
    await rig.ask(ask(QUESTION))
    store.is_away = True
    prepared = await rig.generator.prepare(ask(QUESTION))
    assert told(prepared) == {"x-tribar-cache": "bypass", "x-tribar-cache-reason": "unavailable"}
    store.is_away = False
    assert (await rig.ask(ask(QUESTION)))[0] == "bypass"
    rig.clock.now_s += PAUSE_S
    assert (await rig.ask(ask(QUESTION)))[0] == "exact"


async def test_a_prompt_that_cannot_be_prepared() -> None:
    rig = Rig()
    with pytest.raises(InvalidRequest, match="context"):
        await rig.generator.prepare(ask(QUESTION, max_tokens=70_000))
    assert (await rig.ask(ask(QUESTION)))[0] == "miss"


@pytest.mark.parametrize("n_probes", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_probes_of_another_tenant(n_probes: int) -> None:
    """Law 11: none is answered with what was stored for the first."""
    rig = Rig()
    questions = [f"{QUESTION} number {i}" for i in range(100)]
    for question in questions:
        await rig.ask(ask(question))
    n_finished = rig.fake.n_finished
    for i in range(n_probes):
        prepared = await rig.generator.prepare(ask(questions[i % 100], tenant=f"t{i // 100}"))
        assert told(prepared)["x-tribar-cache"] == "miss"
    assert rig.fake.n_finished == n_finished
    assert (await rig.ask(ask(questions[0])))[0] == "exact"
