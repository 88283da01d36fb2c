"""Keeps special tokens that people typed apart from those that the chat template writes."""

import re
import secrets
from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

Data = TypeVar("Data")
_Trie = dict[str, "_Trie"]

_N_NONCE_DIGITS = 24


class ControlShield:
    """Finds control strings (texts of special tokens) in what a caller sent. Immutable; one per tokenizer."""

    def __init__(self, control_strings: Iterable[str]) -> None:
        texts = {text for text in control_strings if text}
        self._whole = re.compile(any_of(texts)) if texts else None
        self._prefixes = {text[:n] for text in texts for n in range(1, len(text))}
        self._longest_prefix = max(map(len, self._prefixes), default=0)

    def cover(self, value: Data) -> tuple[Data, "Covered"]:
        """A copy of ``value`` (plain JSON data) with a placeholder for every control string, and the way back.

        Placeholders are made of digits, which no filter of a template changes, around a random number, so they
        cannot be forged. Without control strings in ``value`` the copy is equal to it.
        """
        covered = Covered()
        return cast(Data, self._walk(value, covered)), covered

    def _walk(self, value: object, covered: "Covered") -> object:
        if isinstance(value, str):
            return self._cover_text(value, covered)
        if isinstance(value, Mapping):
            return {self._walk(key, covered): self._walk(item, covered) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(item, covered) for item in value]
        return value

    def _cover_text(self, text: str, covered: "Covered") -> str:
        """Cover whole control strings, and a first part of one at the end, which what follows might complete.

        What follows may be the next part of the message; spaces at the end do not separate, because templates trim.
        """
        if self._whole is not None:
            text = self._whole.sub(lambda match: covered.placeholder(match[0]), text)
        end = len(text.rstrip())
        for start in range(max(0, end - self._longest_prefix), end):
            if text[start:end] in self._prefixes:
                return text[:start] + covered.placeholder(text[start:end]) + text[end:]
        return text


class Covered:
    """The placeholders of one request. True when there are any."""

    def __init__(self) -> None:
        self._nonce = str(secrets.randbelow(10**_N_NONCE_DIGITS)).zfill(_N_NONCE_DIGITS)
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._texts)

    def placeholder(self, text: str) -> str:
        """The placeholder that stands for ``text``."""
        number = self._numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return f"{self._nonce}{number:06d}"

    def restore(self, text: str) -> str:
        """``text`` with every placeholder replaced by what it stands for."""
        return re.sub(self._nonce + r"(\d{6})", lambda match: self._texts[int(match[1])], text)


def any_of(texts: Iterable[str]) -> str:
    """A pattern that matches the longest of ``texts``: a trie, so that thousands cost no more than one."""
    trie: _Trie = {}
    for text in texts:
        node = trie
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    return _trie_pattern(trie)


def _trie_pattern(node: _Trie) -> str:
    branches = [re.escape(character) + _trie_pattern(child) for character, child in sorted(node.items()) if character]
    if not branches:
        return ""
    pattern = branches[0] if len(branches) == 1 and "" not in node else f"(?:{'|'.join(branches)})"
    return f"{pattern}?" if "" in node else pattern
