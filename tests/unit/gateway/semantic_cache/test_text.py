"""Spelling, words, slips and languages."""

import random

import pytest

from tribar.gateway.semantic_cache.answer_language import answer_language_of
from tribar.gateway.semantic_cache.reading import read, same_word
from tribar.gateway.semantic_cache.spelling import distance, is_slip, same_but_for_slips
from tribar.gateway.semantic_cache.text import language_of, normalise
from tribar.gateway.semantic_cache.words import stem, words_of


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("ｗｈａｔ　ｉｓ　this", "what is this"),
        ("怎麼選擇筆記本電腦", "怎么选择笔记本电脑"),
        ("What’s “up”", 'what\'s "up"'),
        ("rain 🌧️ in\u200b Oslo", "RAIN in  Oslo"),
    ],
)
def test_one_spelling(a: str, b: str) -> None:
    assert normalise(a) == normalise(b)
    assert normalise(normalise(a)) == normalise(a)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("苹果手机怎么截屏", ["苹果手机", "截屏"]),
        ("在国外刷卡银行收手续费吗", ["国外", "刷卡", "银行", "收", "手续费"]),
        ("how do i read a file in c++ or node.js?", ["read", "file", "c++", "node.js"]),
        ("pandas 2.x", ["pandas", "x"]),
    ],
)
def test_words_that_carry_content(text: str, content: list[str]) -> None:
    assert [word.form for word in words_of(normalise(text)) if word.is_content] == content


def test_every_word_stands_where_it_says() -> None:
    text = normalise("How do I 重置 my iPhone 15 的密码, e.g. user_name at 3:30 in C# 或者 1月?")
    for word in words_of(text):
        assert text.startswith(word.form, word.start), word


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("cancel", "cancellation", True), ("retiring", "retire", True), ("退款", "refund", True),
        ("studies", "study", True),
        ("cat", "dog", False), ("paris", "rome", False), ("enable", "disable", False), ("简体字", "简体", True),
    ],
)  # fmt: skip
def test_same_word(a: str, b: str, same: bool) -> None:
    assert same_word(a, b) is same
    assert same_word(b, a) is same


@pytest.mark.parametrize(
    ("a", "b", "slip"),
    [
        ("excercise", "exercise", True), ("recieve", "receive", True), ("gallon", "galon", True),
        ("听历", "听力", True),
        ("cat", "car", False), ("mumps", "pumps", False), ("杜甫", "杜牧", False), ("退休", "tuixiu", True),
        ("gold", "cold", False), ("boots", "books", False), ("horse", "house", False), ("权利", "权力", False),
    ],
)  # fmt: skip
def test_slips(a: str, b: str, slip: bool) -> None:
    assert is_slip(a, b) is slip
    assert is_slip(b, a) is slip


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("how to transfr my domian", "how to transfer my domain", True), ("怎么在淘宝上开电", "怎么在淘宝上开店", True),
        ("how to clean boots", "how to clean books", False), ("杜甫葬在哪里", "杜牧葬在哪里", False),
        ("权利是什么", "权力是什么", False), ("怎么用电脑截平", "怎么用电脑截屏", True),
        ("how to clean boots", "how to clean my boots", False), ("iphone 14 price", "iphone 15 price", False),
    ],
)  # fmt: skip
def test_texts_that_are_one_but_for_slips(a: str, b: str, same: bool) -> None:
    assert same_but_for_slips(a, b) is same
    assert same_but_for_slips(b, a) is same


def test_distance_against_a_search_of_all_edits() -> None:
    def edits(word: str) -> set[str]:
        splits = [(word[:i], word[i:]) for i in range(len(word) + 1)]
        made = {a + b[1:] for a, b in splits if b} | {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
        return made | {a + c + b[k:] for a, b in splits for c in "ab" for k in (0, 1)} | {word}

    generator = random.Random(3)
    for _ in range(200):
        a = "".join(generator.choices("ab", k=generator.randrange(1, 6)))
        b = "".join(generator.choices("ab", k=generator.randrange(1, 6)))
        assert (distance(a, b) <= 1) is (b in edits(a))
        assert distance(a, b) == distance(b, a)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("how do I get a refund", "en"), ("怎么退款", "zh"), ("iPhone 如何截图？", "zh"), ("ps怎么抠图", "zh"),
        ("write a poem in French", "french"), ("translate this into german: hello", "german"),
        ("用日语写一首诗", "japanese"),
        ("把这句话翻译成英文", "en"), ("answer in Chinese: what is rain", "zh"), ("how to live in Paris", "en"),
        ("", "en"),
    ],
)  # fmt: skip
def test_answer_language(text: str, language: str) -> None:
    assert answer_language_of(text) == language


@pytest.mark.parametrize(
    ("word", "expected"), [("stopped", "stop"), ("classes", "class"), ("news", "new"), ("退款", "退款")]
)
def test_stem(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_a_long_text_is_cut_and_language_is_of_what_weighs_more() -> None:
    assert len(read("long " * 5_000).text) <= 2_001
    assert language_of("what does 你好 mean in english") == "en"
