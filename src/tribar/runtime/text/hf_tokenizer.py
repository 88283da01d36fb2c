"""A tokenizer from a Hugging Face directory: ``tokenizer.json`` and ``tokenizer_config.json``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import tokenizers
from tokenizers import AddedToken

from tribar.core.errors import BadModelFile
from tribar.runtime.text.token_bytes import DECODERS, Spelling
from tribar.runtime.text.tokenizer import Tokenizer

_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The role -> text of special tokens in ``tokenizer_config.json`` (texts, or objects with a content)."""
    found = {role: config.get(role) for role in _ROLES}
    texts = {role: value.get("content") if isinstance(value, dict) else value for role, value in found.items()}
    return {role: text for role, text in texts.items() if isinstance(text, str)}


def tokenizer_from_json(path: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Build from ``tokenizer.json`` at ``path`` and the parsed ``tokenizer_config.json``.

    Special tokens are matched before normalisation, whatever the file says, so that no look-alike character becomes
    one. Raises ``BadModelFile`` naming the file.
    """
    try:
        described = orjson.loads(path.read_bytes())
        _harden(described, set(named_tokens(config).values()))
        backend = tokenizers.Tokenizer.from_buffer(orjson.dumps(described))
        backend.add_tokens(list(_missing_tokens(backend, config)))
    except Exception as error:  # the library raises bare exceptions
        raise BadModelFile(f"{path}: not a usable tokenizer: {error}") from error
    spelling = _spelling(described)
    added = backend.get_added_tokens_decoder()
    table = _table(backend, added, spelling)
    bos = named_tokens(config).get("bos_token")
    return Tokenizer(
        backend,
        token_bytes=table,
        special_ids=frozenset(i for i, token in added.items() if token.special),
        bos_id=None if bos is None else backend.token_to_id(bos),
        strips_leading_space=_strips(described, spelling),
    )


def _harden(described: dict[str, Any], named: set[str]) -> None:
    """No truncation or padding; special tokens special, in raw text only, and out of reach of merges."""
    described["truncation"] = described["padding"] = None
    special = set(named)
    for token in described.get("added_tokens", []):
        if token["special"] or token["content"] in named:
            special.add(token["content"])
            token["special"], token["normalized"] = True, False
    model = described["model"]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if _merged(merge) not in special]


def _merged(merge: str | list[str]) -> str:
    return merge.replace(" ", "", 1) if isinstance(merge, str) else "".join(merge)


def _missing_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> Iterator[AddedToken]:
    """Tokens that only ``tokenizer_config.json`` knows, in the order of their ids there."""
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    named = set(named_tokens(config).values())
    known: dict[str, dict[str, Any]] = config.get("added_tokens_decoder", {})
    for _, token in sorted(known.items(), key=lambda item: int(item[0])):
        text = token["content"]
        if text not in present:
            present.add(text)
            flags = {flag: bool(token.get(flag)) for flag in ("lstrip", "rstrip", "single_word")}
            special = bool(token.get("special")) or text in named
            yield AddedToken(text, special=special, normalized=not special and token.get("normalized", True), **flags)
    for text in sorted(named - present):
        yield AddedToken(text, special=True, normalized=False)


def _parts(part: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """A component of ``tokenizer.json`` and everything nested in it."""
    if part is not None:
        yield part
        for key in ("decoders", "pretokenizers", "normalizers"):
            for nested in part.get(key, ()):
                yield from _parts(nested)


def _spelling(described: Mapping[str, Any]) -> Spelling:
    decoding = {part["type"] for part in _parts(described.get("decoder"))}
    cutting = {part["type"] for part in _parts(described.get("pre_tokenizer"))}
    if "ByteLevel" in decoding | cutting:
        return Spelling.BYTE_LEVEL
    if decoding & {"ByteFallback", "Metaspace"} or described["model"].get("byte_fallback"):
        return Spelling.SENTENCEPIECE
    return Spelling.WORDS


def _strips(described: Mapping[str, Any], spelling: Spelling) -> bool:
    for part in _parts(described.get("decoder")):
        if part["type"] == "Strip" and part["content"] == " " and part["start"]:
            return True
        if part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never":
            return True
    return spelling is Spelling.WORDS


def _table(backend: tokenizers.Tokenizer, added: Mapping[int, AddedToken], spelling: Spelling) -> list[bytes]:
    vocabulary = backend.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    spelled = DECODERS[spelling]
    for text, token_id in vocabulary.items():
        table[token_id] = text.encode() if token_id in added else spelled(text)
    return table
