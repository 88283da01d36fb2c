"""Embedders in ONNX folders: pooling, limits and identity are read from the folder's own files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.embedding_folders import DIMENSION, MAX_TOKENS, WORDS, table, write_folder, write_json

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.embed.onnx_folder import OnnxFolder

SENTENCES = ["refund", "where is my cat"]
IDS = [[2, WORDS.index("refund"), 3], [2, *(WORDS.index(word) for word in ["where", "is", "my", "cat"]), 3]]
ROBERTA = {"max_position_embeddings": 514, "model_type": "xlm-roberta"}


@pytest.mark.parametrize("data", ["model.onnx", "onnx/model.onnx"])
def test_mean_pooling_leaves_padding_out(tmp_path: Path, data: str) -> None:
    vectors = OnnxFolder(write_folder(tmp_path, data=data)).encode(SENTENCES)
    expected = np.stack([table(1)[ids].mean(axis=0) for ids in IDS])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_cls_pooling_takes_the_first_state(tmp_path: Path) -> None:
    vectors = OnnxFolder(write_folder(tmp_path, pooling="cls_token")).encode(SENTENCES)
    np.testing.assert_allclose(vectors, np.stack([table(1)[2]] * 2), atol=1e-6)


def test_more_texts_than_a_batch(tmp_path: Path) -> None:
    model = OnnxFolder(write_folder(tmp_path))
    np.testing.assert_allclose(model.encode(SENTENCES * 40), np.tile(model.encode(SENTENCES), (40, 1)), atol=1e-6)


def test_the_card_is_read_from_the_files(tmp_path: Path) -> None:
    card = OnnxFolder(write_folder(tmp_path / "my-model")).card()
    assert (card.name, card.dimension, card.max_tokens) == ("my-model", DIMENSION, MAX_TOKENS)


def test_a_swap_of_the_weights_shows_in_the_id(tmp_path: Path) -> None:
    """BUG-099: another model of the same name and dimension must not share an index with this one."""
    first, second = (
        OnnxFolder(write_folder(tmp_path / parent / "model", seed=seed)).card() for parent, seed in (("a", 1), ("b", 2))
    )
    assert (first.name, first.dimension) == (second.name, second.dimension)
    assert first.id != second.id


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 1e30}}, 64),
        ({"sentence_bert_config.json": {}, "config.json": ROBERTA}, 512),
        ({"sentence_bert_config.json": {}, "config.json": {}}, 512),
        ({"tokenizer_config.json": {"model_max_length": 8}}, 8),
    ],
)
def test_the_smallest_limit_counts(tmp_path: Path, files: dict[str, dict[str, object]], limit: int) -> None:
    write_folder(tmp_path)
    for name, content in files.items():
        write_json(tmp_path / name, content)
    assert OnnxFolder(tmp_path).card().max_tokens == limit


def _spoil_model(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"not a model")


def _spoil_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def _spoil_config(folder: Path) -> None:
    (folder / "1_Pooling/config.json").write_text("{")


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
        (_spoil_model, "model.onnx"),
        (_spoil_tokenizer, "tokenizer.json"),
        (_spoil_config, "1_Pooling"),
    ],
)
def test_an_unusable_file_is_named(tmp_path: Path, spoil: Callable[[Path], None], named: str) -> None:
    spoil(write_folder(tmp_path))
    with pytest.raises(BadModelFile, match=named):
        OnnxFolder(tmp_path)


def test_what_it_cannot_do_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, pooling="weightedmean_tokens")
    with pytest.raises(Unsupported, match="weightedmean"):
        OnnxFolder(tmp_path)
    write_folder(tmp_path)
    write_json(tmp_path / "modules.json", [{"type": "sentence_transformers.models.Dense"}])
    with pytest.raises(Unsupported, match="Dense"):
        OnnxFolder(tmp_path)
