"""Numbers in words and digits, Chinese and English, by value."""

import random

import pytest

from tribar.gateway.semantic_cache.numerals import numbers_of

HAN = "零一二三四五六七八九"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,000 usd and 2.5 kg", ("1000", "2.5")),
        ("5k run", ("5000",)),
        ("100w", ("1000000",)),
        ("three hundred and five people", ("305",)),
        ("twenty-one pilots", ("21",)),
        ("two million", ("2000000",)),
        ("a dozen eggs", ("12",)),
        ("the third one", ("3",)),
        ("half of 3/4", ("3/4",)),
        ("python 3.10 and 3.1", ("3.1", "3.10")),
        ("pandas 2.x", ("2.x",)),
        ("iphone15", ("15",)),
        ("一千二百块", ("1200",)),
        ("两万五", ("25000",)),
        ("三万五千", ("35000",)),
        ("一百零五", ("105",)),
        ("十五", ("15",)),
        ("二十", ("20",)),
        ("3万", ("30000",)),
        ("1.5亿", ("150000000",)),
        ("二零二三", ("2023",)),
        ("三点五", ("3.5",)),
        ("2023年3月15日", ("15", "2023", "3")),
        ("一个人一般怎么做三明治", ()),
        ("one moment", ()),
        ("四川的二维码", ()),
    ],
)
def test_values(text: str, values: tuple[str, ...]) -> None:
    assert numbers_of(text) == values


def spelled(value: int) -> str:
    """The textbook Chinese numeral below 100,000,000."""
    if value >= 10_000:
        high, low = divmod(value, 10_000)
        return spelled(high) + "万" + (("零" if low < 1000 else "") + spelled(low) if low else "")
    text, is_gap = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = value // unit % 10
        if digit:
            text += ("零" if is_gap and text else "") + HAN[digit] + name
        is_gap = not digit
    return text


def test_chinese_numerals_against_a_speller() -> None:
    generator = random.Random(7)
    for _ in range(2_000):
        value = generator.randrange(2, 10 ** generator.randrange(1, 9))
        assert numbers_of(spelled(value)) == (str(value),), spelled(value)
