from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.runtime.text.vocabularies import (
    PLAIN_ADDED,
    PLAIN_TEXTS,
    PRE_TOKENIZERS,
    SPECIAL,
    byte_level_backend,
    gguf_metadata,
    gguf_text,
    json_tokenizer,
    sentencepiece_backend,
    slow_sentencepiece,
)

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.text.gguf_pre_tokenizers import PRE_TOKENIZATIONS
from tribar.runtime.text.text import text_from_gguf


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
@settings(deadline=None, max_examples=60)
@given(text=PLAIN_TEXTS)
def test_byte_level_gives_hugging_faces_ids(pre: str, text: str) -> None:
    backend = byte_level_backend(pre)
    tokenizer = gguf_text(backend, pre).tokenizer
    ids = backend.encode(text).ids
    assert tokenizer.encode(text, add_special=False) == ids
    assert tokenizer.encode_control(text) == ids
    assert tokenizer.decode(ids) == backend.decode(ids)


@pytest.mark.parametrize("prefix", [True, False])
@settings(deadline=None, max_examples=100)
@given(text=PLAIN_TEXTS)
def test_scores_give_hugging_faces_ids(prefix: bool, text: str) -> None:
    backend = sentencepiece_backend(prefix=prefix)
    tokenizer = gguf_text(backend, add_space_prefix=prefix).tokenizer
    ids = backend.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text, add_special=False) == ids
    assert tokenizer.encode(text, add_special=True) == [1, *ids]
    assert tokenizer.decode(ids) == backend.decode(ids)


@settings(deadline=None, max_examples=60)
@given(text=PLAIN_TEXTS)
def test_scores_give_sentencepieces_pieces(text: str) -> None:
    text = "".join(character for character in text if character not in "<>▁")
    backend = sentencepiece_backend(prefix=False)
    metadata = gguf_metadata(backend)
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    scores = {token: -float(i) for i, token in enumerate(tokens) if i >= len(SPECIAL) + 256 and token != PLAIN_ADDED}
    expected: list[bytes] = []
    for piece in slow_sentencepiece(text.replace(" ", "▁"), scores):
        whole = piece.replace("▁", " ").encode()
        expected += [whole] if piece in scores else [bytes([byte]) for byte in whole]
    tokenizer = gguf_text(backend, add_space_prefix=False).tokenizer
    assert [tokenizer.token_bytes[i] for i in tokenizer.encode(text, add_special=False)] == expected


def test_built_from_json_and_from_gguf_alike(tmp_path: Path) -> None:
    for backend, pre in ((byte_level_backend(), "smollm"), (sentencepiece_backend(), "")):
        from_gguf, from_json = gguf_text(backend, pre).tokenizer, json_tokenizer(backend, tmp_path)
        assert from_gguf.token_bytes == from_json.token_bytes
        assert from_gguf.special_ids == from_json.special_ids
        assert (from_gguf.bos_id, from_gguf.adds_bos) == (from_json.bos_id, from_json.adds_bos)
        assert from_gguf.strips_leading_space == from_json.strips_leading_space
        for text in ("The quick fox", " <|im_end|> x<s>", f"a{PLAIN_ADDED} b", ""):
            assert from_gguf.encode(text, add_special=True) == from_json.encode(text, add_special=True)
            assert from_gguf.encode_control(text) == from_json.encode_control(text)


@pytest.mark.parametrize("pre", PRE_TOKENIZATIONS)
def test_every_known_pre_tokeniser_keeps_the_text(pre: str) -> None:
    text = "Don't STOP 12345 ½ naïve\r\n\n  x\t漢字/🫠 e\u0301"
    backend = byte_level_backend()
    tokenizer = gguf_text(backend, pre).tokenizer
    expected = text.replace("e\u0301", "é") if PRE_TOKENIZATIONS[pre].nfc else text
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == expected


def test_arrays_may_be_numpys() -> None:
    metadata = gguf_metadata(sentencepiece_backend())
    for key in ("token_type", "scores"):
        metadata[f"tokenizer.ggml.{key}"] = np.array(metadata[f"tokenizer.ggml.{key}"])
    assert (
        text_from_gguf(metadata, "f.gguf").tokenizer.token_bytes
        == gguf_text(sentencepiece_backend()).tokenizer.token_bytes
    )


def test_bos_and_eos_conventions() -> None:
    """BUG-044: add_bos_token true and false, and what the kind of tokenizer implies when the file is silent."""
    backend = byte_level_backend()
    both = gguf_text(backend, "smollm", add_bos_token=True, add_eos_token=True).tokenizer
    assert both.encode("fox", add_special=True) == [1, *both.encode("fox", add_special=False), 4]
    assert both.adds_bos
    assert not gguf_text(backend, "smollm", add_bos_token=False).tokenizer.adds_bos
    assert not gguf_text(backend, "smollm", add_bos_token=None).tokenizer.adds_bos
    assert not gguf_text(backend, "smollm", add_bos_token=True, bos_token_id=None).tokenizer.adds_bos
    silent = {key: value for key, value in gguf_metadata(backend, "llama-bpe").items() if "add_bos" not in key}
    assert text_from_gguf(silent, "f.gguf").tokenizer.adds_bos


def test_end_ids_are_all_that_the_file_names() -> None:
    """BUG-043: eos, eot and eom; where eot is left out, the known ends of a turn."""
    backend = byte_level_backend()
    assert gguf_text(backend, "smollm", eos_token_id=2, eot_token_id=4, eom_token_id=5).end_ids == {2, 4, 5}
    assert gguf_text(backend, "smollm", eos_token_id=2).end_ids == {2, 4, 5}
    assert gguf_text(backend, "smollm", eos_token_id=2, eot_token_id=2).end_ids == {2}


def test_unused_tokens_have_no_bytes_and_marked_ends_are_special() -> None:
    backend = byte_level_backend()
    types = gguf_metadata(backend, "smollm")["tokenizer.ggml.token_type"]
    changed = [5 if i == 40 else 1 if i == 4 else kind for i, kind in enumerate(types)]
    tokenizer = gguf_text(backend, "smollm", token_type=changed).tokenizer
    assert tokenizer.token_bytes[40] == b""
    assert 4 in tokenizer.special_ids


def test_merges_cannot_build_a_control_token() -> None:
    """BUG-046: not even when the file has a merge for it."""
    metadata = gguf_metadata(byte_level_backend(), "smollm")
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "qqq", "qq"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 3, 1]
    metadata["tokenizer.ggml.merges"] = ["q q", "qq q", *metadata["tokenizer.ggml.merges"]]
    tokenizer = text_from_gguf(metadata, "f.gguf").tokenizer
    control = tokenizer.special_texts["qqq"]
    assert tokenizer.encode_control("qqq") == [control]
    assert tokenizer.encode("qqq", add_special=False) == [control + 1, tokenizer.token_bytes.index(b"q")]


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("pre", "martian", Unsupported, "'martian'"),
        ("pre", None, Unsupported, "tokenizer.ggml.pre is None"),
        ("model", "t5", Unsupported, "'t5'"),
        ("model", None, Unsupported, "None"),
        ("tokens", [], BadModelFile, "tokenizer.ggml.tokens"),
        ("tokens", "abc", BadModelFile, "tokenizer.ggml.tokens"),
        ("token_type", [1, 3], BadModelFile, "tokenizer.ggml.token_type has 2"),
        ("eos_token_id", 10**6, BadModelFile, "tokenizer.ggml.eos_token_id is 1000000"),
        ("eos_token_id", "two", BadModelFile, "f.gguf"),
        ("scores", ["x"] * 7, BadModelFile, "f.gguf"),
        ("bos_token_id", -1, BadModelFile, "tokenizer.ggml.bos_token_id is -1"),
        ("merges", ["nowhere tobefound"], BadModelFile, "f.gguf"),
    ],
)
def test_broken_metadata_is_named(key: str, value: Any, error: type[Exception], words: str) -> None:
    metadata = gguf_metadata(byte_level_backend(), "smollm") | {f"tokenizer.ggml.{key}": value}
    with pytest.raises(error) as caught:
        text_from_gguf(metadata, "f.gguf")
    assert words in str(caught.value)
