"""The verdict: paraphrases hit, hard differences do not. With the default embedder and the shipped prior."""

import pytest
from tests.unit.gateway.semantic_cache.pairs import analysis, verdict

from tribar.gateway.semantic_cache.judge import judge, why_not_stored
from tribar.gateway.semantic_cache.verdict import Features


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("怎么退款？", "退款流程是什么？"),
        ("苹果手机怎么截屏？", "iPhone 如何截图？"),
        ("How do I turn on dark mode?", "how to enable dark mode"),
        ("how to descale a kettle", "HOW TO DESCALE A KETTLE?!"),
        ("怎麼申請護照", "怎么申请护照"),
        ("How can I freeze the first row in Excel?", "excel freeze first row"),
        ("what is the captial of Canada", "what is the capital of Canada"),
    ],
)
def test_paraphrases_hit(a: str, b: str) -> None:
    found = verdict(a, b)
    assert found.is_hit, found


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("turn on dark mode", "turn off dark mode"),
        ("is aspirin safe for children", "is aspirin not safe for children"),
        ("does gold beat silver", "does silver beat gold"),
        ("可以带充电宝上飞机吗", "不可以带充电宝上飞机吗"),
        ("打开深色模式", "关闭深色模式"),
        ("is gold heavier than silver", "is silver heavier than gold"),
        ("铁比铜重吗", "铜比铁重吗"),
        ("from Paris to Rome by train", "from Rome to Paris by train"),
        ("foods I can eat with gout", "foods I can't eat with gout"),
    ],
)
def test_negation_and_reversal_miss(a: str, b: str) -> None:
    """BUG-090"""
    found = verdict(a, b)
    assert not found.is_hit
    assert found.reason


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ("who won the cup in 2023", "who won the cup in 2024", "number"),
        ("track order 1001", "track order 1010", "number"),
        ("what does --max-cost do", "what does --max-heads do", "identifier"),
        ("restaurants in Paris, Texas", "restaurants in Paris, France", "class"),
        ("how many km is a marathon", "how many miles is a marathon", "class"),
        ("what's new in Python 3.10", "what's new in Python 3.1", "number"),
        ("三个月宝宝吃多少奶", "九个月宝宝吃多少奶", "number"),
        ("用java实现单例模式", "用c++实现单例模式", "class"),
        ("怎么退款", "how do I get a refund", "answer_language"),
        ("say thank you in Japanese", "say thank you in Korean", "answer_language"),
        ("why is the sky blue", "when is the sky blue", "answer_kind"),
    ],
)
def test_any_hard_slot_that_differs_misses(a: str, b: str, reason: str) -> None:
    """BUG-091"""
    found = verdict(a, b)
    assert (found.is_hit, found.score, found.reason) == (False, 0.0, reason)


def test_chinese_and_english_share_answers_only_when_told() -> None:
    assert not verdict("怎么重置路由器", "how to reset a router").is_hit
    assert verdict("怎么重置路由器", "how to reset a router", cross_language=True).is_hit
    japanese = verdict("用日语写一首诗", "write a poem in English", cross_language=True)
    assert japanese.reason == "answer_language"


def test_follow_ups_need_their_context() -> None:
    """BUG-094: the same last turn after other turns is another question."""
    alone = analysis("and the second one?")
    here, there = analysis("and the second one?", "a"), analysis("and the second one?", "b")
    assert judge(alone.features, alone.features, 1.0).reason == "context"
    assert judge(here.features, there.features, 1.0).reason == "context"
    assert judge(here.features, here.features, 1.0).is_hit
    assert why_not_stored(alone.features) == "context"
    assert why_not_stored(here.features) == ""


def test_the_threshold_is_a_parameter_and_far_vectors_are_not_judged() -> None:
    a, b = analysis("how to tie a tie"), analysis("what is the way to tie a necktie")
    similarity = float(a.vector @ b.vector)
    score = judge(a.features, b.features, similarity).score
    assert judge(a.features, b.features, similarity, threshold=score).is_hit
    assert not judge(a.features, b.features, similarity, threshold=score + 1e-6).is_hit
    assert judge(a.features, b.features, 0.1).reason == "similarity"


def test_features_survive_being_stored() -> None:
    import msgspec

    features = analysis("苹果手机怎么截屏？").features
    written = msgspec.msgpack.encode(features)
    assert msgspec.msgpack.decode(written, type=Features) == features
    assert len(written) < 1500


@pytest.mark.parametrize("text", ["", "?", "🎉", "\u200b", "1", "a" * 5000, "不" * 3000, "()[]{}", "\ud800"])
def test_odd_texts_have_a_verdict(text: str) -> None:
    assert verdict(text, "how do I get a refund").score < 0.5
