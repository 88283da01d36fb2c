"""The union of all ids that end a text (EDGE_CASES BUG-043)."""

from collections.abc import Mapping
from typing import Any

from tribar.core.errors import BadModelFile
from tribar.runtime.architectures.settings import Settings

_TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>")
_CONTROL = 3


def end_ids_from_config(
    path: str, metadata: Mapping[str, Any], text_config: Settings, vocab_size: int
) -> frozenset[int]:
    """``eos_token_id`` (a number or a list) of generation_config, config and text_config, and the tokenizer's own.

    ``metadata["tokenizer_config"]``, where a reader offers it, names ``eos_token`` and lists ``added_tokens_decoder``.
    """
    found: set[int] = set()
    for name in ("generation_config", "config"):
        found |= _ids(path, f"{name}.json: eos_token_id", Settings(path, metadata).nested(name).get("eos_token_id"))
    found |= _ids(path, "text_config.eos_token_id", text_config.get("eos_token_id"))
    found |= _tokenizer_end(path, metadata)
    return _checked(path, found, vocab_size)


def end_ids_from_gguf(path: str, metadata: Mapping[str, Any], vocab_size: int) -> frozenset[int]:
    """``tokenizer.ggml.{eos,eot,eom}_token_id``.

    Files without an eot id predate that key; there a control token with one of the customary texts ends the turn.
    """
    found: set[int] = set()
    for kind in ("eos", "eot", "eom"):
        key = f"tokenizer.ggml.{kind}_token_id"
        found |= _ids(path, key, metadata.get(key))
    if metadata.get("tokenizer.ggml.eot_token_id") is None:
        found |= _turn_ends(metadata)
    return _checked(path, found, vocab_size)


def _ids(path: str, key: str, value: object) -> set[int]:
    values = [] if value is None else value if isinstance(value, list | tuple) else [value]
    settings = Settings(path, {f"{key}[{i}]": item for i, item in enumerate(values)})
    # -1 is how some converters write "none"
    ids = [settings.integer(f"{key}[{i}]", low=-1, high=2**31) for i in range(len(values))]
    return {i for i in ids if i >= 0}


def _tokenizer_end(path: str, metadata: Mapping[str, Any]) -> set[int]:
    config = Settings(path, metadata).nested("tokenizer_config")
    end = config.get("eos_token")
    text = end.get("content") if isinstance(end, Mapping) else end
    added = config.get("added_tokens_decoder")
    if not isinstance(added, Mapping) or not isinstance(text, str):
        return set()
    return {
        int(token_id)
        for token_id, token in added.items()
        if isinstance(token, Mapping)
        and token.get("content") == text
        and str(token_id).isascii()
        and token_id.isdigit()
    }


def _turn_ends(metadata: Mapping[str, Any]) -> set[int]:
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if tokens is None or types is None or len(tokens) != len(types):
        return set()
    return {i for i, kind in enumerate(types) if kind == _CONTROL and tokens[i] in _TURN_ENDS}


def _checked(path: str, ids: set[int], vocab_size: int) -> frozenset[int]:
    outside = sorted(i for i in ids if i >= vocab_size)
    if outside:
        raise BadModelFile(f"{path}: end token id {outside[0]} is outside the vocabulary of {vocab_size}")
    return frozenset(ids)
