"""The vocabulary in a GGUF file's metadata, checked. Keys: ggml-org/ggml, docs/gguf.md, section on tokenizers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tribar.core.errors import BadModelFile

_MARKER = re.compile(r"<.+>|\[.+\]", re.DOTALL)
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>")


class TokenType(IntEnum):
    """Values of ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPECIAL_TYPES = frozenset({int(TokenType.CONTROL), int(TokenType.UNKNOWN)})


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token texts and types by id, and the ids with a role. ``scores`` is empty where the file has none.

    ``special`` holds the control tokens and the ids that end a text or a turn, whatever type a converter gave them.
    """

    tokens: list[str]
    types: list[int]
    scores: list[float]
    special: frozenset[int]
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    end_ids: frozenset[int]


def read_vocabulary(metadata: Mapping[str, Any], path: str) -> Vocabulary:
    """Raises ``BadModelFile`` naming the file and the key."""
    tokens = [str(token) for token in _array(metadata, "tokens", path)]
    if not tokens:
        raise BadModelFile(f"{path}: key tokenizer.ggml.tokens is absent or empty, so there is no tokenizer")
    types = [int(kind) for kind in _array(metadata, "token_type", path)] or [int(TokenType.NORMAL)] * len(tokens)
    scores = [float(score) for score in _array(metadata, "scores", path)]
    for key, values in (("token_type", types), ("scores", scores)):
        if values and len(values) != len(tokens):
            raise BadModelFile(f"{path}: tokenizer.ggml.{key} has {len(values)} entries for {len(tokens)} tokens")
    roles = {role: _id(metadata, role, len(tokens), path) for role in ("bos", "eos", "unknown", "eot", "eom")}
    end_ids = {roles[role] for role in ("eos", "eot", "eom")} - {None}
    if roles["eot"] is None:  # many converters leave it out, though chat models end their turns with it
        end_ids |= {tokens.index(text) for text in _TURN_ENDS if text in tokens}
    marked = {i for i in (roles["bos"], *end_ids) if i is not None and _MARKER.fullmatch(tokens[i])}
    special = {i for i, kind in enumerate(types) if kind in _SPECIAL_TYPES}
    return Vocabulary(
        tokens,
        types,
        scores,
        special=frozenset(special | marked),
        bos_id=roles["bos"],
        eos_id=roles["eos"],
        unk_id=roles["unknown"],
        end_ids=frozenset(i for i in end_ids if i is not None),
    )


def _array(metadata: Mapping[str, Any], name: str, path: str) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{name}", [])
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise BadModelFile(f"{path}: key tokenizer.ggml.{name} is no array")
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _id(metadata: Mapping[str, Any], role: str, n_tokens: int, path: str) -> int | None:
    key = f"tokenizer.ggml.{role}_token_id"
    value = metadata.get(key)
    if value is None:
        return None
    if not 0 <= int(value) < n_tokens:
        raise BadModelFile(f"{path}: key {key} is {value}, outside the vocabulary of {n_tokens} tokens")
    return int(value)
