"""Frequencies against transformers' own functions (EDGE_CASES BUG-056)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.weights_in_memory import LLAMA_CONFIG, MemoryWeights
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.architectures.rope import resolve_rope
from tribar.runtime.architectures.rope_reading import scaled_context, scaling_from_config, scaling_from_gguf
from tribar.runtime.architectures.settings import Settings
from tribar.runtime.architectures.source import Source

HEAD_DIM, CONTEXT, LENGTH = 64, 4096, 10_000
FACTORS = {"short_factor": [1 + i / 40 for i in range(32)], "long_factor": [1 + i / 4 for i in range(32)]}

CASES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 8.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "dynamic, old key": {"type": "dynamic", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2048,
    },
    "llama3, no original": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    "yarn, no original": {"rope_type": "yarn", "factor": 4.0},
    "yarn, betas": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16, "beta_slow": 2, "truncate": False},
    "yarn, mscale": {"rope_type": "yarn", "factor": 40.0, "mscale": 0.7, "mscale_all_dim": 1.0},
    "yarn, attention factor": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5},
    "yarn, factor of one": {"rope_type": "yarn", "factor": 1.0},
    "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 1024, **FACTORS},
    "longrope, factor": {"rope_type": "longrope", "factor": 8.0, "original_max_position_embeddings": 1024, **FACTORS},
    "longrope, no original": {"rope_type": "longrope", "factor": 2.0, **FACTORS},
    "longrope, attention factor": {"rope_type": "longrope", "factor": 2.0, "attention_factor": 1.2, **FACTORS},
}


def config_for(rope: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"rope_theta": 500_000.0, "max_position_embeddings": CONTEXT, "rope_scaling": rope, **more}


@pytest.mark.parametrize("length", [CONTEXT, LENGTH])
@pytest.mark.parametrize("name", sorted(CASES))
def test_equals_transformers(name: str, length: int) -> None:
    scaling = scaling_from_config(Settings("config.json", config_for(CASES[name])), HEAD_DIM)
    rope = resolve_rope(scaling, length)
    parameters = {"rope_theta": 500_000.0, **CASES[name]}
    parameters.setdefault("rope_type", parameters.pop("type", "default"))
    theirs = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        rope_parameters=parameters,
    )
    inv_freq, attention_factor = ROPE_INIT_FUNCTIONS[scaling.kind](theirs, "cpu", seq_len=length)
    assert np.allclose(rope.inv_freq, inv_freq.numpy(), rtol=2e-6, atol=1e-6)
    assert rope.attention_factor == pytest.approx(attention_factor, rel=1e-6)


def test_partial_rotary_factor_shortens() -> None:
    config = Settings("config.json", config_for({}, partial_rotary_factor=0.25))
    rope = resolve_rope(scaling_from_config(config, HEAD_DIM), CONTEXT)
    assert np.allclose(rope.inv_freq, 500_000.0 ** (-np.arange(0, 16, 2) / 16))


def test_new_and_old_spelling_mean_the_same() -> None:
    old = scaling_from_config(Settings("a", config_for(CASES["yarn"])), HEAD_DIM)
    new_parameters = {"rope_theta": 500_000.0, **CASES["yarn"]}
    new = Settings("a", {"max_position_embeddings": CONTEXT, "rope_parameters": new_parameters})
    assert scaling_from_config(new, HEAD_DIM) == old


def test_top_level_original_length_wins() -> None:
    config = config_for(CASES["longrope"], original_max_position_embeddings=512)
    assert scaling_from_config(Settings("a", config), HEAD_DIM).original_context_length == 512


@pytest.mark.parametrize(
    ("name", "context"), [("linear", 32768), ("dynamic", 16384), ("yarn, no original", 16384), ("llama3", 4096)]
)
def test_context_length_is_the_stretched_one(name: str, context: int) -> None:
    assert scaled_context(scaling_from_config(Settings("a", config_for(CASES[name])), HEAD_DIM)) == context


@pytest.mark.parametrize(
    ("rope", "error", "words"),
    [
        ({"rope_type": "foo"}, Unsupported, "'foo'.*llama3"),
        ({"type": "mrope"}, Unsupported, "mrope"),
        ({"rope_type": 3}, BadModelFile, "rope_type must be a string"),
        ({"rope_type": "linear"}, BadModelFile, "factor is missing"),
        ({"rope_type": "linear", "factor": "8"}, BadModelFile, "factor must be a number"),
        ({"rope_type": "linear", "factor": -1.0}, BadModelFile, "factor is -1"),
        ({"rope_type": "linear", "factor": float("nan")}, BadModelFile, "factor is nan"),
        ({"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0]}, BadModelFile, "short_factor.*32 numbers"),
        ({**CASES["llama3"], "high_freq_factor": 1.0}, BadModelFile, "high_freq_factor"),
        ({**CASES["yarn"], "original_max_position_embeddings": 0}, BadModelFile, "original_max_position_embeddings"),
        ([1], BadModelFile, "rope_scaling must be an object"),
    ],
)
def test_what_cannot_be_meant_is_refused(rope: Any, error: type[Exception], words: str) -> None:
    """Unknown types are an error at load, never ignored."""
    with pytest.raises(error, match=words):
        scaling_from_config(Settings("config.json", config_for(rope)), HEAD_DIM)


def gguf_source(settings: Mapping[str, Any], tensors: Mapping[str, Any] | None = None) -> Source:
    metadata = {"llama.context_length": CONTEXT, **{f"llama.{key}": value for key, value in settings.items()}}
    weights = MemoryWeights(metadata, tensors or {})
    return Source(weights, Settings("memory", metadata, "llama."))


def test_gguf_spells_the_same_ropes() -> None:
    yarn = gguf_source(
        {
            "rope.freq_base": 500_000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 1024,
        }
    )
    ours = resolve_rope(scaling_from_gguf(yarn, HEAD_DIM), CONTEXT)
    assert ours == resolve_rope(scaling_from_config(Settings("a", config_for(CASES["yarn"])), HEAD_DIM), CONTEXT)
    linear = scaling_from_gguf(gguf_source({"rope.scale_linear": 8.0}), HEAD_DIM)
    assert (linear.kind, linear.factor) == ("linear", 8.0)
    short, long = (np.array(FACTORS[key], dtype=np.float32) for key in ("short_factor", "long_factor"))
    tensors = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    settings = {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": 1024,
        "rope.scaling.attn_factor": 1.2,
    }
    longrope = scaling_from_gguf(gguf_source(settings, tensors), HEAD_DIM)
    assert np.allclose(longrope.long_factor, long)
    assert longrope.attention_factor == pytest.approx(1.2)


def test_gguf_ropes_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(Unsupported, match="'su'"):
        scaling_from_gguf(gguf_source({"rope.scaling.type": "su"}), HEAD_DIM)
    with pytest.raises(BadModelFile, match=r"rope_factors_short\.weight, which is missing"):
        scaling_from_gguf(gguf_source({"rope.scaling.type": "longrope"}), HEAD_DIM)
    wrong = {"rope_factors_short.weight": np.ones(3, dtype=np.float32)}
    with pytest.raises(BadModelFile, match="asks for 32 values"):
        scaling_from_gguf(gguf_source({"rope.scaling.type": "longrope"}, wrong), HEAD_DIM)


def test_the_plain_rope_needs_no_settings() -> None:
    config = Settings("a", {"max_position_embeddings": LLAMA_CONFIG["max_position_embeddings"]})
    rope = resolve_rope(scaling_from_config(config, 8), 512)
    assert rope.inv_freq == pytest.approx([1.0, 0.1, 0.01, 0.001])
