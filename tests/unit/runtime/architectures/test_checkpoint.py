"""Names, shapes and ties of a checkpoint's tensors."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.weights_in_memory import LLAMA_CONFIG, Float32s, MemoryWeights, random_weights

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.architectures import kv_bytes_per_block, open_checkpoint, tensor_names, understand

UNTIED = {**LLAMA_CONFIG, "tie_word_embeddings": False}
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def changed(weights: MemoryWeights, **arrays: Float32s | None) -> MemoryWeights:
    merged = {**weights.arrays, **{name.replace("__", "."): array for name, array in arrays.items()}}
    return MemoryWeights(weights.metadata, {name: array for name, array in merged.items() if array is not None})


def test_tensors_are_found_by_canonical_name() -> None:
    weights = random_weights(UNTIED)
    checkpoint = understand(weights)
    assert list(checkpoint.names) == list(tensor_names(checkpoint.description))
    name = "model.layers.1.self_attn.k_proj.weight"
    assert checkpoint.info("layers.1.k").name == name
    assert np.array_equal(checkpoint.float32("layers.1.k"), weights.arrays[name])
    assert checkpoint.raw("layers.1.k").nbytes == weights.arrays[name].nbytes
    checkpoint.close()
    assert weights.is_closed


@pytest.mark.parametrize("is_different", [True, False])
def test_a_tie_wins_over_a_stored_head(is_different: bool, caplog: pytest.LogCaptureFixture) -> None:
    """BUG-055: tie=true with a head: tied, with a warning where it differs."""
    weights = random_weights(LLAMA_CONFIG)
    head = weights.arrays[EMBED] + (1 if is_different else 0)
    with caplog.at_level(logging.WARNING):
        checkpoint = understand(changed(weights, lm_head__weight=head))
    assert checkpoint.description.is_tied
    assert ("lm_head.weight is ignored" in caplog.text) == is_different


def test_a_tie_needs_no_head() -> None:
    """BUG-055: tie=true without a head."""
    assert "lm_head" not in understand(random_weights(LLAMA_CONFIG)).names


def test_no_tie_and_no_head_is_an_error() -> None:
    """BUG-055: tie=false without a head."""
    with pytest.raises(BadModelFile, match=r"lm_head\.weight is missing \(the config does not tie"):
        understand(changed(random_weights(UNTIED), lm_head__weight=None))


@pytest.mark.parametrize("has_head", [True, False])
def test_gguf_is_tied_without_output_weight(has_head: bool) -> None:
    """BUG-055: GGUF."""
    metadata = {
        "general.architecture": "qwen2",
        "qwen2.block_count": 1,
        "qwen2.embedding_length": 8,
        "qwen2.feed_forward_length": 4,
        "qwen2.context_length": 16,
        "qwen2.attention.head_count": 2,
        "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
    }
    matrices: dict[str, tuple[int, ...]] = {"attn_q": (8, 8), "attn_k": (8, 8), "attn_v": (8, 8), "attn_output": (8, 8)}
    matrices |= {"ffn_gate": (4, 8), "ffn_up": (4, 8), "ffn_down": (8, 4), "attn_norm": (8,), "ffn_norm": (8,)}
    shapes: dict[str, tuple[int, ...]] = {f"blk.0.{name}.weight": shape for name, shape in matrices.items()}
    shapes |= {"token_embd.weight": (6, 8), "output_norm.weight": (8,)}
    if has_head:
        shapes["output.weight"] = (6, 8)
    arrays = {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()}
    checkpoint = understand(MemoryWeights(metadata, arrays))
    assert checkpoint.description.is_tied != has_head
    assert checkpoint.description.vocab_size == 6


def test_all_wrong_tensors_come_in_one_error() -> None:
    weights = changed(
        random_weights(LLAMA_CONFIG),
        model__norm__weight=np.zeros(3, dtype=np.float32),
        model__layers__0__mlp__up_proj__weight=None,
    )
    with pytest.raises(BadModelFile) as caught:
        understand(weights)
    assert "model.norm.weight has shape [3], not [32]" in caught.value.message
    assert "model.layers.0.mlp.up_proj.weight is missing" in caught.value.message


def test_tensors_of_another_model_are_refused() -> None:
    weights = random_weights(LLAMA_CONFIG)
    extra = np.zeros(4, dtype=np.float32)
    with pytest.raises(Unsupported, match=r"1 tensors do not belong.*q_proj\.bias"):
        understand(changed(weights, model__layers__0__self_attn__q_proj__bias=extra))
    with pytest.raises(Unsupported, match=r"layers\.2\."):
        understand(changed(weights, model__layers__2__mlp__up_proj__weight=extra))
    understand(changed(weights, model__layers__0__self_attn__rotary_emb__inv_freq=extra))


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model.", ""])
def test_the_text_model_is_found_inside_a_larger_one(prefix: str) -> None:
    weights = random_weights(UNTIED)
    arrays = {name.replace("model.", prefix, 1): array for name, array in weights.arrays.items()}
    arrays["vision_tower.layers.0.weight"] = np.zeros(2, dtype=np.float32)
    checkpoint = understand(MemoryWeights(weights.metadata, arrays))
    assert np.array_equal(checkpoint.float32("embed"), weights.arrays[EMBED])


def test_open_checkpoint_reads_a_directory(tmp_path: Path) -> None:
    import json

    weights = random_weights(LLAMA_CONFIG)
    save_file(weights.arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    checkpoint = open_checkpoint(tmp_path)
    assert np.array_equal(checkpoint.float32("layers.0.down"), weights.arrays["model.layers.0.mlp.down_proj.weight"])
    checkpoint.close()


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "foo"}')
    save_file({"a": np.zeros(1, dtype=np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(Unsupported, match=r"'foo'"):
        open_checkpoint(tmp_path)


def test_kv_bytes_per_block() -> None:
    description: Any = understand(random_weights(LLAMA_CONFIG)).description
    assert kv_bytes_per_block(description, 16, 2) == 2 * 2 * 2 * 8 * 16 * 2
