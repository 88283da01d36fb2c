"""Each guard on pairs that must contradict and pairs that must not; all are symmetric and quiet about a text itself."""

import pytest
from tests.unit.gateway.semantic_cache.test_storable import STORED, each

from tribar.gateway.semantic_cache.guards import GUARDS
from tribar.gateway.semantic_cache.reading import read

BY_NAME = {guard.name: guard for guard in GUARDS}

CASES = [
    ("number", "top 10 films of 2023", "top 10 films of 2024", True),
    ("number", "top ten films", "top 10 films", False),
    ("number", "三百五十加二百", "350加200", False),
    ("number", "怎么把两个PDF合并", "how to merge PDFs", False),
    ("number", "3天减肥计划", "7天减肥计划", True),
    ("identifier", "what does --max-cost do", "what does --max-heads do", True),
    ("identifier", "error 0x80070005", "error 0x80070057", True),
    ("identifier", "《活着》读后感", "《兄弟》读后感", True),
    ("identifier", "《活着》读后感", "活着读后感", False),
    ("identifier", "open my_file.txt", "open your_file.txt", True),
    ("negation", "is it safe", "is it not safe", True),
    ("negation", "能不能带酒", "可以带酒吗", False),
    ("negation", "it doesn't work, does it?", "it doesn't work", False),
    ("negation", "不锈钢怎么清洗", "钢怎么清洗", False),
    ("negation", "哪些药能饭前吃", "哪些药不能饭前吃", True),
    ("opposition", "enable dark mode", "disable dark mode", True),
    ("opposition", "turn on wifi", "enable wifi", False),
    ("opposition", "怎么增肥", "怎么减肥", True),
    ("opposition", "import and export of rice", "export of rice", False),
    ("opposition", "远程办公的优点", "远程办公的缺点", True),
    ("class", "weather in Paris", "weather in Rome", True),
    ("class", "建行怎么查余额", "建设银行怎么查余额", False),
    ("class", "how many cups in a liter", "how many cups in a gallon", True),
    ("class", "350f in celsius", "350°F to °C", False),
    ("class", "javascirpt loop", "javascript loop", False),
    ("class", "can a tenant cancel", "can a landlord cancel", True),
    ("class", "the dog ate grapes", "grapes", False),
    ("answer_kind", "why did Rome fall", "when did Rome fall", True),
    ("answer_kind", "退款流程是什么", "怎么退款", False),
    ("answer_kind", "what is the price of milk", "how much does milk cost", False),
    ("answer_kind", "什么是通货膨胀", "为什么会通货膨胀", True),
    ("name", "who is Ada Lovelace", "who is Grace Hopper", True),
    ("name", "什么是kafkaesque", "什么是orwellian", True),
    ("role", "does the dog bite the cat", "does the cat bite the dog", True),
    ("role", "bus from Kraków to Zakopane", "how long does the bus to Zakopane take from Kraków", False),
    ("role", "铁比铜重吗", "铜比铁重吗", True),
    ("role", "猫被狗咬了", "狗咬了猫", False),
    ("role", "美元换人民币", "人民币换美元", True),
    ("order", "is gold heavier than silver", "is silver heavier than gold", True),
    ("order", "cats and dogs", "dogs and cats", False),
    ("order", "tea or coffee", "coffee or tea", False),
    ("length", "a" * 3_000, "a" * 3_000, True),
]


@pytest.mark.parametrize(("name", "a", "b", "contradicts"), CASES)
def test_guard(name: str, a: str, b: str, contradicts: bool) -> None:
    guard = BY_NAME[name]
    x, y = guard.find(read(a)), guard.find(read(b))
    assert guard.contradict(x, y) is contradicts, (x, y)
    assert guard.contradict(y, x) is contradicts


@pytest.mark.parametrize("text", each(STORED))
def test_no_guard_minds_a_text_beside_itself(text: str) -> None:
    for guard in GUARDS:
        found = guard.find(read(text))
        assert not guard.contradict(found, found), guard.name
        assert not guard.contradict(found, guard.find(read(text.upper() + "?"))), guard.name
