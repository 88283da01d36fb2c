"""One spelling for one text: width, case, traditional characters, quotes, emoji and spaces make no difference."""

import re
import unicodedata
from functools import cache

from tribar.gateway.semantic_cache.word_lists import read_lines

_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "「": '"', "」": '"', "。": ".", "、": ",", "×": "x"})
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_SPACES = re.compile(r"\s+")
_PICTURES = {"So", "Sk", "Cs", "Co", "Cn"}
HAN = "\u3400-\u9fff"
_HAN = re.compile(f"[{HAN}]")
_LATIN = re.compile(r"[a-z]+")


@cache
def _simplified() -> dict[int, str]:
    pairs = " ".join(read_lines("zh_simplified.txt")).split()
    return str.maketrans({pair[0]: pair[1] for pair in pairs})


def normalise(text: str) -> str:
    """Lower case, NFKC, simplified characters, straight quotes; no emoji and no invisible characters."""
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).lower().translate(_QUOTES).translate(_simplified())
    if not plain.isascii():
        kept = (c if c == "°" or ord(c) < 128 or unicodedata.category(c) not in _PICTURES else " " for c in plain)
        plain = "".join(kept)
    return _SPACES.sub(" ", plain).strip()


def language_of(text: str) -> str:
    """``zh`` or ``en``: the script that carries more of a normalised text (a Chinese character weighs as a word)."""
    n_han, n_latin = len(_HAN.findall(text)), len(_LATIN.findall(text))
    return "zh" if n_han and n_han >= n_latin else "en"
