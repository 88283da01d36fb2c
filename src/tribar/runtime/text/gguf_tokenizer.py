"""A tokenizer from the metadata of a GGUF file: byte-level BPE ("gpt2") and SentencePiece BPE ("llama")."""

from collections.abc import Callable, Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, processors

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.text.gguf_pre_tokenizers import pre_tokenization
from tribar.runtime.text.gguf_vocabulary import TokenType, Vocabulary
from tribar.runtime.text.token_bytes import WORD_BOUNDARY, byte_level, sentencepiece
from tribar.runtime.text.tokenizer import Tokenizer

Merge = tuple[str, str]


def tokenizer_from_gguf(metadata: Mapping[str, Any], vocabulary: Vocabulary, path: str) -> Tokenizer:
    """Build it. Raises ``Unsupported`` for other kinds of tokenizer, ``BadModelFile`` for a broken vocabulary."""
    kind = metadata.get("tokenizer.ggml.model")
    builders = {"gpt2": _byte_level, "llama": _sentencepiece}
    if kind not in builders:
        raise Unsupported(f"{path}: tokenizer.ggml.model is {kind!r}; known are {', '.join(builders)}")
    try:
        return builders[kind](metadata, vocabulary)
    except Unsupported:
        raise
    except Exception as error:  # the library raises bare exceptions for vocabularies and merges that do not fit
        raise BadModelFile(f"{path}: the tokenizer in tokenizer.ggml.* cannot be built: {error}") from error


def _byte_level(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Tokenizer:
    pre = pre_tokenization(metadata.get("tokenizer.ggml.pre"))
    texts = [vocabulary.tokens[i] for i in vocabulary.special]
    # Typed text must never grow into a control token.
    forging = {f"{text[:cut]} {text[cut:]}" for text in texts for cut in range(1, len(text))}
    merges = [_merge(merge) for merge in metadata.get("tokenizer.ggml.merges", []) if merge not in forging]
    model = models.BPE(_ids(vocabulary), merges, ignore_merges=pre.ignore_merges)
    backend = tokenizers.Tokenizer(model)
    normalizer = pre.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre.make()
    backend.decoder = decoders.ByteLevel()
    return _finish(backend, metadata, vocabulary, byte_level, adds_bos=pre.adds_bos)


def _sentencepiece(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Tokenizer:
    unk = None if vocabulary.unk_id is None else vocabulary.tokens[vocabulary.unk_id]
    merges = merges_from_scores(vocabulary)
    has_bytes = TokenType.BYTE in vocabulary.types
    model = models.BPE(_ids(vocabulary), merges, unk_token=unk, fuse_unk=True, byte_fallback=has_bytes)
    backend = tokenizers.Tokenizer(model)
    prefixes = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    boundary = normalizers.Replace(" ", WORD_BOUNDARY)
    first = [normalizers.Prepend(WORD_BOUNDARY)] if prefixes else []
    backend.normalizer = normalizers.Sequence([*first, boundary])
    strip = [decoders.Strip(" ", 1, 0)] if prefixes else []
    decoder = [decoders.Replace(WORD_BOUNDARY, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    backend.decoder = decoders.Sequence(decoder)
    return _finish(backend, metadata, vocabulary, sentencepiece, adds_bos=True, strips=prefixes)


def merges_from_scores(vocabulary: Vocabulary) -> list[Merge]:
    """BPE merges equivalent to a SentencePiece BPE vocabulary, which has scores instead.

    SentencePiece merges the neighbours whose union has the best score (google/sentencepiece, ``bpe_model.cc``); so
    every way to cut a piece in two known pieces is a merge, ranked by the piece's score.
    """
    mergeable = {
        text: vocabulary.scores[i] if vocabulary.scores else -float(i)
        for i, text in enumerate(vocabulary.tokens)
        if vocabulary.types[i] == TokenType.NORMAL and i not in vocabulary.special
    }
    ids = _ids(vocabulary)
    ranked: list[tuple[float, int, int, int, Merge]] = []
    for piece, score in mergeable.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in mergeable and right in mergeable:
                ranked.append((-score, -len(left), -len(right), ids[left], (left, right)))
    ranked.sort()
    return [merge for *_, merge in ranked]


def _finish(
    backend: tokenizers.Tokenizer,
    metadata: Mapping[str, Any],
    vocabulary: Vocabulary,
    spelled: Callable[[str], bytes],
    *,
    adds_bos: bool,
    strips: bool = False,
) -> Tokenizer:
    """Added tokens, the BOS/EOS convention and the byte table."""
    user_defined, unused = int(TokenType.USER_DEFINED), int(TokenType.UNUSED)
    own_text = {i for i, kind in enumerate(vocabulary.types) if kind == user_defined} | vocabulary.special
    backend.add_tokens([_added(vocabulary, i) for i in sorted(own_text)])
    adds_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", adds_bos)) and vocabulary.bos_id is not None
    adds_eos = bool(metadata.get("tokenizer.ggml.add_eos_token", False)) and vocabulary.eos_id is not None
    if adds_bos or adds_eos:
        roles = {"bos": vocabulary.bos_id if adds_bos else None, "eos": vocabulary.eos_id if adds_eos else None}
        template = f"{'bos ' if adds_bos else ''}$A{' eos' if adds_eos else ''}"
        used = [(role, token_id) for role, token_id in roles.items() if token_id is not None]
        backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    table = tuple(
        text.encode() if i in own_text else b"" if kind == unused else spelled(text)
        for i, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
    )
    return Tokenizer(
        backend,
        token_bytes=table,
        special_ids=vocabulary.special,
        bos_id=vocabulary.bos_id,
        strips_leading_space=strips,
    )


def _added(vocabulary: Vocabulary, token_id: int) -> AddedToken:
    return AddedToken(vocabulary.tokens[token_id], special=token_id in vocabulary.special, normalized=False)


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {text: i for i, text in enumerate(vocabulary.tokens)}


def _merge(text: str) -> Merge:
    left, _, right = text.partition(" ")
    return left, right
