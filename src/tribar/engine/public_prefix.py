"""The beginning of prompts that is nobody's secret: the KV of it may be shared by all tenants."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import ne
from typing import Self

from tribar.core.errors import InvalidRequest
from tribar.core.requests import ChatPrompt, Prompt, TextPrompt
from tribar.engine.model_text import ModelText

_CONTINUATIONS = ("a", "0")
"""Two texts that share no byte: what prompts that end in them have in common is none of the user's text."""


@dataclass(frozen=True, slots=True)
class PublicPrefix:
    """The ids of the operator's text, once for each form in which prompts begin with it; empty shares nothing."""

    forms: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, text: str, model_text: ModelText) -> Self:
        """``text`` as the beginning of a plain prompt, and as the system message of a chat where that can be.

        Tokens that depend on what follows are left out: of two prompts that differ after ``text`` the common ids are
        kept. So the chat's form includes what the template writes between the system message and the user's.
        """
        plain: list[Prompt] = [TextPrompt(text + more) for more in _CONTINUATIONS]
        chat: list[Prompt] = [
            ChatPrompt([{"role": "system", "content": text}, {"role": "user", "content": more}])
            for more in _CONTINUATIONS
        ]
        forms = [_common_ids(plain, model_text)]
        try:
            forms.append(_common_ids(chat, model_text))
        except InvalidRequest:
            return cls(tuple(forms))  # no chat template, or one without system messages: nobody can send this form
        return cls(tuple(forms))

    def count(self, ids: Sequence[int]) -> int:
        """How many of the first ``ids`` are public: equal to those of one of the forms, so never a tenant's own."""
        return max((common_length(form, ids) for form in self.forms), default=0)


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    return next(compress(count(), map(ne, a, b)), min(len(a), len(b)))


def _common_ids(prompts: Sequence[Prompt], model_text: ModelText) -> tuple[int, ...]:
    first, second = (model_text.encode_prompt(prompt) for prompt in prompts)
    return first[: common_length(first, second)]
