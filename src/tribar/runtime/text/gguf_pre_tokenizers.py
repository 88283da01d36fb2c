"""The pre-tokenisers that GGUF files name in ``tokenizer.ggml.pre``: how text is cut before BPE merges apply.

The patterns are facts of the published tokenizers: GPT-2 (openai/gpt-2, ``encoder.py``), Llama 3, Qwen 2, GPT-4o and
Mistral's Tekken (their ``tokenizer.json`` / ``tekken.json``). The names are those of llama.cpp's ``llama-vocab.cpp``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from tribar.core.errors import Unsupported

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenization:
    """What a name stands for. ``adds_bos`` is the default where the file does not say."""

    make: Callable[[], PreTokenizer]
    nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False

    def normalizer(self) -> NFC | None:
        """The normaliser that goes with it."""
        return NFC() if self.nfc else None


def _split(pattern: str) -> Callable[[], PreTokenizer]:
    def make() -> PreTokenizer:
        bytes_only = ByteLevel(add_prefix_space=False, use_regex=False)
        return Sequence([Split(Regex(pattern), behavior="isolated"), bytes_only])

    return make


def _gpt2() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_then_gpt2() -> PreTokenizer:
    return Sequence([Digits(individual_digits=True), _gpt2()])


_GPT2 = PreTokenization(_gpt2)
_DIGITS = PreTokenization(_digits_then_gpt2)
_LLAMA_BPE = PreTokenization(_split(_LLAMA3), ignore_merges=True, adds_bos=True)
_QWEN = PreTokenization(_split(_QWEN2), nfc=True)

PRE_TOKENIZATIONS = {
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "llama-bpe": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "tekken": PreTokenization(_split(_TEKKEN), ignore_merges=True, adds_bos=True),
    "gpt-4o": PreTokenization(_split(_GPT4O)),
}


def pre_tokenization(name: object) -> PreTokenization:
    """The entry for ``tokenizer.ggml.pre``. Raises ``Unsupported`` for a name not in the table, or for none.

    A file without the name would be tokenised by guess, and a wrong guess degrades the model without a sign.
    """
    found = PRE_TOKENIZATIONS.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(sorted(PRE_TOKENIZATIONS))
        raise Unsupported(f"GGUF key tokenizer.ggml.pre is {name!r}, an unknown pre-tokeniser; known are {known}")
    return found
