from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from tests.unit.runtime.text.vocabularies import (
    SPECIAL,
    TYPED_TEXTS,
    byte_level_backend,
    json_tokenizer,
    sentencepiece_backend,
)
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tribar.core.errors import BadModelFile, InvalidRequest
from tribar.runtime.text.hf_tokenizer import named_tokens, tokenizer_from_json


@settings(deadline=None, max_examples=60)
@given(text=TYPED_TEXTS)
def test_control_text_gets_hugging_faces_ids(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    for backend in (byte_level_backend("qwen2"), sentencepiece_backend()):
        tokenizer = json_tokenizer(backend, tmp_path_factory.getbasetemp())
        assert tokenizer.encode_control(text) == backend.encode(text, add_special_tokens=False).ids


def test_truncation_and_padding_in_the_file_do_not_apply(tmp_path: Path) -> None:
    backend = Tokenizer.from_str(byte_level_backend().to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    tokenizer = json_tokenizer(backend, tmp_path)
    text = "The quick brown fox jumps over the lazy dog"
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text
    assert tokenizer.decode(tokenizer.encode_control(text), skip_special=False) == text


def test_special_tokens_are_matched_before_normalisation(tmp_path: Path) -> None:
    """BUG-046: a look-alike that a normaliser turns into a control token is ordinary text."""
    described = orjson.loads(byte_level_backend().to_str())
    described["normalizer"] = {"type": "NFKC"}
    for token in described["added_tokens"]:
        token["normalized"] = True
    tokenizer = json_tokenizer(Tokenizer.from_str(orjson.dumps(described).decode()), tmp_path)
    assert tokenizer.encode_control("<|im_end|>") == [4]
    assert 4 not in tokenizer.encode_control("＜|im_end|＞")


def test_merges_cannot_build_a_control_token(tmp_path: Path) -> None:
    """BUG-046."""
    backend = Tokenizer(models.BPE({"<": 0, "e": 1, ">": 2, "<e": 3, "<e>": 4}, [("<", "e"), ("<e", ">")]))
    backend.add_special_tokens(["<e>"])
    tokenizer = json_tokenizer(backend, tmp_path, {})
    assert tokenizer.encode("<e>", add_special=False) == [3, 2]
    assert tokenizer.encode_control("<e>") == [4]


def test_a_model_that_cannot_write_a_control_token_as_text_says_so(tmp_path: Path) -> None:
    """BUG-046: refused rather than let through."""
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("<e>", 0.0), ("a", -1.0)], 0, False))
    backend.add_special_tokens(["<unk>", "<e>"])
    tokenizer = json_tokenizer(backend, tmp_path, {"unk_token": "<unk>"})
    assert tokenizer.encode("aa", add_special=False) == [2, 2]
    with pytest.raises(InvalidRequest, match="<e>"):
        tokenizer.encode("a<e>a", add_special=False)


def test_tokens_that_only_the_configuration_knows(tmp_path: Path) -> None:
    backend = byte_level_backend()
    n = backend.get_vocab_size(with_added_tokens=True)
    config = {
        "bos_token": {"content": "<s>"},
        "eos_token": "<|eot|>",
        "added_tokens_decoder": {
            str(n): {"content": "<think>", "special": False, "normalized": False},
            str(n + 1): {"content": "<|tool|>", "special": True},
            "0": {"content": "<unk>", "special": True},
        },
    }
    tokenizer = json_tokenizer(backend, tmp_path, config)
    assert tokenizer.encode_control("<think><|tool|><|eot|>") == [n, n + 1, n + 2]
    assert tokenizer.special_ids == {0, 1, 2, 3, 4, 5, n + 1, n + 2}
    assert tokenizer.vocab_size == n + 3
    assert tokenizer.token_bytes[n] == b"<think>"


def test_a_named_token_is_special_whatever_tokenizer_json_says(tmp_path: Path) -> None:
    described = orjson.loads(byte_level_backend().to_str())
    described["added_tokens"][4]["special"] = False
    tokenizer = json_tokenizer(Tokenizer.from_str(orjson.dumps(described).decode()), tmp_path)
    assert 4 in tokenizer.special_ids
    assert 4 not in tokenizer.encode("<|im_end|>", add_special=False)


def test_metaspace_prefixes_the_first_word_only(tmp_path: Path) -> None:
    pieces = ["▁", "a", "b", "▁a", "▁b"]
    vocab = {text: i for i, text in enumerate([*SPECIAL, *pieces])}
    for wrapped in (False, True):
        backend = Tokenizer(models.BPE(vocab, [("▁", "a"), ("▁", "b")], byte_fallback=True))
        metaspace = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([metaspace]) if wrapped else metaspace
        backend.decoder = decoders.Metaspace(prepend_scheme="first")
        backend.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
        tokenizer = json_tokenizer(backend, tmp_path)
        assert tokenizer.decode(tokenizer.encode("a b", add_special=False)) == "a b"
        for text in ("a b<|im_end|>b a", "<|im_end|>b a<s>", "<s><|im_end|>a"):
            ids = backend.encode(text, add_special_tokens=False).ids
            assert tokenizer.encode_control(text) == ids
            assert tokenizer.encode_shielded(text, str) == ids


def test_words_are_spelled_with_spaces(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = json_tokenizer(backend, tmp_path, {"unk_token": "[UNK]"})
    assert tokenizer.encode("a b what", add_special=False) == [1, 2, 0]
    assert tokenizer.decode([1, 2, 1]) == "a b a"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"model": {"type": "Martian"}}'])
def test_broken_files_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(BadModelFile, match=r"tokenizer\.json"):
        tokenizer_from_json(path, {})


def test_named_tokens_are_texts_or_objects() -> None:
    config = {"bos_token": None, "eos_token": {"content": "</s>"}, "pad_token": "<pad>", "model_max_length": 8}
    assert named_tokens(config) == {"eos_token": "</s>", "pad_token": "<pad>"}
