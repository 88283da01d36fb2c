"""Numbers as values: 1,000, 1k, three hundred, 三百, 一千二, 两, 3/4, 50%.

A lone "one" or 一 is an article, not a number.
"""

import re
from functools import cache

from tribar.gateway.semantic_cache.word_lists import read_words

_DIGITS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.(?:\d+|x\b))*(?:/\d+)?")
_SCALES = {
    "k": 1_000,
    "thousand": 1_000,
    "w": 10_000,
    "million": 1_000_000,
    "billion": 10**9,
    "hundred": 100,
    "dozen": 12,
    "百": 100,
    "千": 1_000,
    "万": 10_000,
    "亿": 10**8,
}
_SCALE = re.compile(r"\s?(thousand|million|billion|hundred|dozen|[kw](?![a-z])|[万亿千百])")
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ENGLISH = {name: value for value, name in enumerate(_UNITS.split(" "))}
_ENGLISH |= {name: 10 * value for value, name in enumerate(_TENS.split(" "), start=2)}
_ENGLISH_WORDS = re.compile(
    rf"\b(?:(?:{'|'.join(_ENGLISH)}|hundred|thousand|million|billion|dozen)(?:[ -](?:and )?|\b))+"
)
_ORDINALS = {"third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10}
_ORDINAL = re.compile(rf"\b(?:{'|'.join(_ORDINALS)})\b")
_HAN_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_HAN_SCALES = {"十": 10, "百": 100, "千": 1_000}
_HAN = re.compile(r"[零〇一二两三四五六七八九十百千万亿]+(?:点[零一二三四五六七八九]+)?")


def numbers_of(text: str, *, in_words: bool = True) -> tuple[str, ...]:
    """The values in a normalised text, sorted, each as a string; versions such as 3.10 keep their digits.

    Without ``in_words`` only those written in digits.
    """
    found = list[str]()
    rest = list(text)
    for match in _DIGITS.finditer(text):
        digits, scale = match[0].replace(",", ""), _SCALE.match(text, match.end())
        if scale and "/" not in digits and not digits.endswith("x"):
            found.append(_plain(float(digits.rstrip(".")) * _SCALES[scale[1]]) if digits.count(".") < 2 else digits)
            rest[match.start() : scale.end()] = " " * (scale.end() - match.start())
        else:
            found.append(digits)
    if not in_words:
        return tuple(sorted(found))
    left = "".join(rest)
    found += [_plain(value) for value in map(_english, _ENGLISH_WORDS.findall(left)) if value > 1]
    found += [str(_ORDINALS[word]) for word in _ORDINAL.findall(left)]
    left = _uncounted().sub("~", left)
    found += [_plain(value) for value in map(_han, _HAN.findall(left)) if value > 1]
    return tuple(sorted(found))


@cache
def _uncounted() -> re.Pattern[str]:
    """Words such as 一般 and 万一, where no numeral runs into them: 九十九万一千 is a number."""
    listed = sorted(read_words("zh_number_words.txt"), key=len, reverse=True)
    return re.compile(rf"(?<![零〇一二两三四五六七八九十百千万亿])(?:{'|'.join(listed)})")


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _english(words: str) -> float:
    total, current = 0, 0
    for word in re.findall(r"[a-z]+", words):
        if word in _ENGLISH:
            current += _ENGLISH[word]
        elif word in {"hundred", "dozen"}:
            current = max(current, 1) * _SCALES[word]
        elif word != "and":
            total, current = total + max(current, 1) * _SCALES[word], 0
    return total + current


def _han(numeral: str) -> float:
    whole, _, fraction = numeral.partition("点")
    if len(whole) > 1 and all(c in _HAN_DIGITS for c in whole):
        return float("".join(str(_HAN_DIGITS[c]) for c in whole))
    total, section, digit, unit = 0, 0, 0, 1
    for c in whole:
        if c in _HAN_DIGITS:
            digit = _HAN_DIGITS[c]
            unit = unit if digit else 1
        elif c in _HAN_SCALES:
            unit = _HAN_SCALES[c]
            section, digit = section + (digit or 1) * unit, 0
        else:
            unit = _SCALES[c]
            total, section, digit = (total + section + digit or 1) * unit, 0, 0
    tail = digit * (unit // 10 if unit >= 100 else 1)
    value = float(total + section + tail)
    return value + float("0." + "".join(str(_HAN_DIGITS[c]) for c in fraction)) if fraction else value
