"""Tiny tokenizers trained on the spot, the same ones as GGUF metadata, and random texts."""

import functools
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tribar.runtime.text.hf_tokenizer import tokenizer_from_json
from tribar.runtime.text.text import Text, text_from_gguf
from tribar.runtime.text.tokenizer import Tokenizer as TribarTokenizer

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<end_of_turn>"]
PLAIN_ADDED = "<tool_call>"
CORPUS = [
    "The quick brown fox jumps over the lazy dog, don't you think it's 12345 times as quick?",
    "system user assistant tool im_start im_end end_of_turn unk s ss sss",
    "日本語のテキスト 中文文本 한국어 émile naïve façade e\u0301 👨‍👩‍👧 🫠",
    "def f(x):\n    return x * 2\n\n\n\tif x:\r\n\t\tpass   # done",
] * 3

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

SNIPPETS = [
    *("  ", "   ", "\n\n", "\r\n", "\t", "\x00", "\x7f", "\u200d", "\ufeff", "▁", "▁▁", "<0x0A>", "<0xF0>"),
    *(
        "é",
        "e\u0301",
        "👨‍👩‍👧",
        "🫠",
        "漢字",
        "한국어",
        "ﷺ",
        "\u0600",
        "1234",
        "½",
        "Ⅷ",
        "don't",
        "I'LL",
        "fox",
        "<",
        "|>",
        "s>",
    ),
]
PLAIN_TEXTS = (
    st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=8), max_size=12)
    .map("".join)
    .filter(lambda text: not any(special in text for special in SPECIAL))
)
TYPED_TEXTS = st.lists(st.sampled_from([*SPECIAL, *SNIPPETS]) | st.text(max_size=6), max_size=12).map("".join)


def _digits_then_gpt2() -> pre_tokenizers.PreTokenizer:
    parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    return pre_tokenizers.Sequence(parts)


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _pattern(pattern: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    from tokenizers import Regex

    def make() -> pre_tokenizers.PreTokenizer:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    return make


# As written in the tokenizer.json files of the models themselves.
PRE_TOKENIZERS: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _digits_then_gpt2,
    "llama-bpe": _pattern(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": _pattern(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


@functools.cache
def byte_level_backend(pre: str = "smollm", *, bos: bool = False) -> Tokenizer:
    """A byte-level BPE of about 450 ids whose first ids are the special tokens."""
    backend = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    backend.pre_tokenizer = PRE_TOKENIZERS[pre]()
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(text, normalized=False, special=True) for text in SPECIAL],
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken(PLAIN_ADDED, normalized=False)])
    return with_bos(backend) if bos else backend


@functools.cache
def sentencepiece_backend(*, prefix: bool = True, bos: bool = True) -> Tokenizer:
    """A SentencePiece BPE with byte fallback, as Hugging Face converts one: merges made from scores."""
    from transformers.tokenization_utils_base import generate_merges

    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    pieces = [piece for piece, _ in sorted(trained.get_vocab().items(), key=lambda item: (len(item[0]), item[1]))]
    pieces = [piece for piece in pieces if len(piece) > 1] + [piece for piece in pieces if len(piece) == 1]
    texts = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    vocab = {text: i for i, text in enumerate(texts)}
    merges = generate_merges(
        {piece: vocab[piece] for piece in pieces}, {piece: -float(vocab[piece]) for piece in pieces}
    )
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    first = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    backend.add_tokens([AddedToken(PLAIN_ADDED, normalized=False)])
    return with_bos(backend) if bos else backend


def with_bos(backend: Tokenizer) -> Tokenizer:
    """Let it start texts with ``<s>``."""
    bos_id = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos_id)])
    return backend


def gguf_metadata(backend: Tokenizer, pre: str = "", **keys: Any) -> dict[str, Any]:
    """What a converter writes for ``backend``. ``keys`` are added under ``tokenizer.ggml.``."""
    described = orjson.loads(backend.to_str())
    vocab = backend.get_vocab(with_added_tokens=True)
    tokens = sorted(vocab, key=vocab.__getitem__)
    added = {token["content"]: 3 if token["special"] else 4 for token in described["added_tokens"]}
    types = [added.get(token, 1) for token in tokens]
    values: dict[str, Any] = {"tokens": tokens, "token_type": types, "bos_token_id": 1, "eos_token_id": 4}
    if pre:
        merges = [" ".join(merge) for merge in described["model"]["merges"]]
        values |= {"model": "gpt2", "pre": pre, "merges": merges, "unknown_token_id": 0}
    else:
        types = [6 if token.startswith("<0x") else kind for token, kind in zip(tokens, types, strict=True)]
        values |= {"model": "llama", "token_type": types, "unknown_token_id": 0}
        values["scores"] = [-float(i) for i in range(len(tokens))]
    values["add_bos_token"] = backend.post_processor is not None
    return {f"tokenizer.ggml.{key}": value for key, value in (values | keys).items()}


def gguf_text(backend: Tokenizer, pre: str = "", template: str | None = None, **keys: Any) -> Text:
    """The text room of a GGUF file made from ``backend``."""
    metadata = gguf_metadata(backend, pre, **keys)
    return text_from_gguf(metadata | ({"tokenizer.chat_template": template} if template is not None else {}), "f.gguf")


def json_tokenizer(backend: Tokenizer, directory: Path, config: Mapping[str, Any] | None = None) -> TribarTokenizer:
    """``backend`` saved as tokenizer.json and loaded by us."""
    path = directory / "tokenizer.json"
    path.write_text(backend.to_str(), encoding="utf-8")
    return tokenizer_from_json(path, {"bos_token": "<s>", "eos_token": "<|im_end|>"} if config is None else config)


def save_directory(directory: Path, backend: Tokenizer, **files: Mapping[str, Any]) -> Path:
    """A Hugging Face directory: tokenizer.json and the JSON files named (without their suffix)."""
    (directory / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
    for name, content in files.items():
        (directory / f"{name}.json").write_bytes(orjson.dumps(content))
    return directory


def slow_sentencepiece(text: str, scores: Mapping[str, float]) -> list[str]:
    """SentencePiece's BPE, slowly: join the neighbours whose union scores best, leftmost first, until none is left."""
    pieces = list(text)
    while True:
        unions = [(scores[a + b], -i) for i, (a, b) in enumerate(itertools.pairwise(pieces)) if a + b in scores]
        if not unions:
            return pieces
        at = -max(unions)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
