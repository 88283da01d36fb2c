"""The text side of a model, as far as the engine client needs it (``runtime.text.Text`` and its fake have it)."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from tribar.core.requests import Prompt
from tribar.runtime.text.detokenizer import Detokenizer


class TokenTable(Protocol):
    """Ids and their bytes."""

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """The raw bytes of each id."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens: no text is made of them."""
        ...

    @property
    def strips_leading_space(self) -> bool:
        """Whether a text made from ids leaves out a space at its start."""
        ...

    def detokenizer(self, *, skip_special: bool = True, continues: bool = False) -> Detokenizer:
        """A fresh incremental detokenizer. ``continues``: its text follows other text, so no space is dropped."""
        ...


class ModelText(Protocol):
    """Tokenizer, chat template and end tokens of one model. Safe to call from several threads."""

    @property
    def tokenizer(self) -> TokenTable:
        """The id table."""
        ...

    @property
    def end_ids(self) -> AbstractSet[int]:
        """Tokens that end an answer."""
        ...

    def encode_prompt(self, prompt: Prompt, max_tokens: int | None = None) -> tuple[int, ...]:
        """The prompt's ids. Raises ``InvalidRequest``, early where they are certain to be more than ``max_tokens``."""
        ...
