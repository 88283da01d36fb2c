"""Small finite languages in every notation, with all their words: the oracle of masks. And vocabularies for them."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from random import Random

from tribar.core.requests import Grammar, GrammarKind
from tribar.engine.grammar.vocabulary import Vocabulary


@dataclass(frozen=True)
class Language:
    grammar: Grammar
    words: frozenset[bytes]

    @cached_property
    def prefixes(self) -> frozenset[bytes]:
        return frozenset(word[:n] for word in self.words for n in range(len(word) + 1))


def language(kind: GrammarKind, source: str, *words: str) -> Language:
    return Language(Grammar(kind, source), frozenset(word.encode() for word in words))


def _strings(alphabet: str, low: int, high: int) -> list[str]:
    return ["".join(letters) for n in range(low, high + 1) for letters in product(alphabet, repeat=n)]


SCHEMA, REGEX, LARK, GBNF = GrammarKind.JSON_SCHEMA, GrammarKind.REGEX, GrammarKind.LARK, GrammarKind.GBNF

LANGUAGES = {
    "regex": language(REGEX, "[ab]{2,4}", *_strings("ab", 2, 4)),
    "regex with a slash": language(REGEX, "a/b?", "a/", "a/b"),
    "regex with anchors": language(REGEX, "^(a|ab)(b|ba)$", "ab", "aba", "abb", "abba"),
    "regex beyond ASCII": language(REGEX, "é?[ñé]", "ñ", "é", "éé", "éñ"),
    "choice": language(LARK, 'start: "a" | "ab" | "ba\\n"', "a", "ab", "ba\n"),
    "rules": language(LARK, 'start: x x\nx: "a" | "b" | y\ny: "é"', *("".join(p) for p in product("abé", repeat=2))),
    "lark with options": language(LARK, '%llguidance {"no_forcing": false}\nstart: "abab"', "abab"),
    "gbnf": language(GBNF, '# pairs\nroot ::= x x\nx ::= [ab] | "é"', *("".join(p) for p in product("abé", repeat=2))),
    "enum": language(SCHEMA, '{"enum": ["a", "ab", 1, null]}', '"a"', '"ab"', "1", "null"),
    "integers": language(SCHEMA, '{"type":"integer","minimum":-1,"maximum":12}', *map(str, range(-1, 13)), "-0"),
    "tuple": language(
        SCHEMA,
        '{"type":"array","prefixItems":[{"enum":[1,2]},{"type":"boolean"}],"minItems":2,"items":false,'
        '"x-guidance":{"whitespace_flexible":false}}',
        *(f"[{n},{flag}]" for n in (1, 2) for flag in ("true", "false")),
    ),
    "object": language(
        SCHEMA,
        '{"type":"object","properties":{"a":{"const":1},"b":{"enum":["b"]}},"required":["a"],'
        '"additionalProperties":false,"x-guidance":{"whitespace_flexible":false}}',
        '{"a":1}',
        '{"a":1,"b":"b"}',
    ),
}

N_BYTES = 256
END, OTHER_END, CONTROL, EMPTY = 256, 257, 258, 259


def vocabulary(seed: int, texts: frozenset[bytes]) -> Vocabulary:
    """Every byte, two ends, a control token that reads like text, an id without bytes, and pieces of ``texts``."""
    rng = Random(seed)
    table = [bytes([i]) for i in range(N_BYTES)] + [b"<end>", b"<eot>", b"ab", b""]
    for _ in range(40):
        word = rng.choice(sorted(texts))
        start = rng.randrange(max(1, len(word)))
        table.append(word[start : start + rng.randint(1, 4)] + rng.choice([b"", b"", b"a", b"!"]))
    return Vocabulary(tuple(table), frozenset({END, OTHER_END, CONTROL}), frozenset({END, OTHER_END}))
