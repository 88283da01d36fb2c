"""All that an engine knows of text: the bytes of each id."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``token_bytes[id]`` as the tokenizer has them. Empty where nobody gave the engine a table.

    ``special_ids`` are control tokens, which no text may produce; ``end_ids``, some of them, end an answer.
    """

    token_bytes: tuple[bytes, ...] = ()
    special_ids: frozenset[int] = frozenset()
    end_ids: frozenset[int] = frozenset()
