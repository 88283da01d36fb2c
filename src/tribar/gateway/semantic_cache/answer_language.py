"""The language an answer will have: the one asked for ("in French", 用日语), else the question's own."""

import re

from tribar.gateway.semantic_cache.lexicon import lexicon
from tribar.gateway.semantic_cache.text import language_of, normalise

_ASKED = re.compile(
    r"(?:\b(?:in|into|to|using)\s+|用|以|翻译成|译成|翻成|写成|改成|换成)"
    r"((?:traditional |simplified )?[a-z]+|\w{1,4}?[语文话])"
)


def answer_language_of(text: str) -> str:
    """``zh``, ``en``, or the English name of the language that is asked for ("french")."""
    plain = normalise(text)
    for match in _ASKED.finditer(plain):
        for concept in lexicon().concepts(match[1]):
            if concept.kind == "answer_language":
                return {"english": "en", "chinese": "zh"}.get(concept.name, concept.name)
    return language_of(plain)
