"""A guess at what a misspelt word was meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_DATA_TYPES: Final = {
    "BYTES": "TYPE_STRING", "STR": "TYPE_STRING", "OBJECT": "TYPE_STRING", "BFLOAT16": "TYPE_BF16",
    "FLOAT16": "TYPE_FP16", "HALF": "TYPE_FP16", "FLOAT": "TYPE_FP32", "FLOAT32": "TYPE_FP32", "DOUBLE": "TYPE_FP64",
    "FLOAT64": "TYPE_FP64", "INT": "TYPE_INT32", "LONG": "TYPE_INT64", "BOOLEAN": "TYPE_BOOL",
}  # fmt: skip
"""What numpy, torch and the inference protocol call the types."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or else all that is known."""
    names = list(known)
    found = _closest(word, names)
    return f"did you mean '{found}'?" if found else f"known here: {', '.join(names)}"


def _closest(word: str, names: list[str]) -> str | None:
    plain = word.upper().removeprefix("TYPE_")
    if (alias := _DATA_TYPES.get(plain)) in names:
        return alias
    for name in names:
        if name.upper() == word.upper() or name.endswith(f"_{plain}"):
            return name
    matches = get_close_matches(word.lower(), [name.lower() for name in names], n=1)
    return next((name for name in names if name.lower() == matches[0]), None) if matches else None
