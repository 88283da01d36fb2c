"""Descriptions: both kinds of file agree, absent keys take documented defaults, odd ones are refused by name."""

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.tiny_models import FAMILIES, as_gguf, as_hugging_face, tiny_model
from tests.weights_in_memory import LLAMA_CONFIG, MemoryWeights

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.architectures import ModelDescription, describe

GEMMA2_SIZES: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def from_config(config: dict[str, Any], **metadata: Any) -> ModelDescription:
    return describe(MemoryWeights({"config": config, **metadata}, {}))


def gguf(arch: str, settings: dict[str, Any] | None = None, **metadata: Any) -> ModelDescription:
    sizes = {
        "block_count": 6,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "context_length": 512,
        "attention.head_count": 4,
        "attention.layer_norm_rms_epsilon": 1e-6,
        **(settings or {}),
    }
    values = {f"{arch}.{key}": value for key, value in sizes.items() if value is not None}
    embed = {"token_embd.weight": np.zeros((96, 32), dtype=np.float32)}
    return describe(MemoryWeights({"general.architecture": arch, **values, **metadata}, embed))


@pytest.mark.parametrize("name", ["llama", "llama-bias-untied", "qwen2", "qwen3"])
def test_both_kinds_of_file_describe_the_same_model(name: str) -> None:
    model = tiny_model(FAMILIES[name])
    hf, converted = describe(as_hugging_face(model)), describe(as_gguf(model))
    assert replace(converted, rope_interleaved=False, bos_id=hf.bos_id) == hf
    assert converted.rope_interleaved == (hf.family == "llama")


def test_gemma2_defaults() -> None:
    """BUG-054: what transformers assumes, and what llama.cpp assumes for GGUF."""
    hf = from_config(GEMMA2_SIZES)
    assert (hf.head_dim, hf.attention_scale, hf.attention_softcap, hf.final_softcap) == (256, 1 / 16, 50.0, 30.0)
    assert [layer.sliding_window for layer in hf.layers] == [4096, None, 4096, None]
    assert (hf.activation, hf.norm_adds_one, hf.has_post_norms, hf.is_tied) == ("gelu_tanh", True, True, True)
    converted = gguf("gemma2", {"attention.key_length": 16, "attention.head_count_kv": 2})
    assert (converted.attention_scale, converted.attention_softcap, converted.final_softcap) == (0.25, 50.0, 30.0)
    assert [layer.sliding_window for layer in converted.layers][:2] == [4096, None]
    assert not converted.norm_adds_one


def test_gemma2_softcaps_stated_as_null_are_off() -> None:
    hf = from_config({**GEMMA2_SIZES, "attn_logit_softcapping": None, "final_logit_softcapping": None})
    assert (hf.attention_softcap, hf.final_softcap) == (None, None)


def test_the_largest_gemmas_scale_by_hidden_size_per_head() -> None:
    assert gguf("gemma2", {"block_count": 46, "attention.key_length": 16}).attention_scale == (32 / 4) ** -0.5
    settings = {"block_count": 62, "attention.key_length": 16, "attention.sliding_window": 8}
    assert gguf("gemma3", settings).attention_scale == (32 / 4) ** -0.5


def test_gemma3_nested_in_a_multimodal_config() -> None:
    """Their ``text_config`` leaves out most keys."""
    text = {"hidden_size": 32, "num_hidden_layers": 7, "sliding_window": 1024}
    text["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}  # type: ignore[assignment]
    hf = from_config(
        {"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106], "text_config": text}
    )
    assert (hf.n_heads, hf.n_kv_heads, hf.vocab_size, hf.context_length) == (8, 4, 262_208, 131_072)
    assert [layer.sliding_window for layer in hf.layers] == [1024] * 5 + [None, 1024]
    assert hf.layers[0].rope.inv_freq[1] == pytest.approx(10_000 ** (-2 / 256))
    assert hf.layers[5].rope.inv_freq[1] == pytest.approx(1_000_000 ** (-2 / 256) / 8)
    assert hf.eos_ids == {1, 106}


def test_gemma3_gguf_defaults() -> None:
    converted = gguf("gemma3", {"attention.key_length": 16, "attention.sliding_window": 512})
    assert [layer.sliding_window for layer in converted.layers] == [512] * 5 + [None]
    assert converted.layers[0].rope.inv_freq[1] == pytest.approx(10_000 ** (-2 / 16))
    assert converted.layers[5].rope.inv_freq[1] == pytest.approx(1_000_000 ** (-2 / 16))


def test_per_layer_arrays_of_equal_numbers_count_as_the_number() -> None:
    assert gguf("llama", {"attention.head_count_kv": [2] * 6}).n_kv_heads == 2
    with pytest.raises(BadModelFile, match="head_count_kv differs from layer to layer"):
        gguf("llama", {"attention.head_count_kv": [2] * 5 + [4]})


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "expected"),
    [
        ({"eos_token_id": [2, 7]}, 2, None, {2, 7}),
        ({"eos_token_id": 7}, [3, 2], None, {2, 3, 7}),
        (None, None, None, set()),
        ({"eos_token_id": None}, -1, "</s>", {9}),
        ({"eos_token_id": 2}, 2, {"content": "</s>"}, {2, 9}),
        ({}, 0, "<unknown>", {0}),
    ],
)
def test_end_ids_are_the_union(generation: Any, config: Any, tokenizer: Any, expected: set[int]) -> None:
    """BUG-043."""
    metadata: dict[str, Any] = {"generation_config": generation}
    if tokenizer is not None:
        added = {"9": {"content": "</s>"}, "x": {"content": "</s>"}}
        metadata["tokenizer_config"] = {"eos_token": tokenizer, "added_tokens_decoder": added}
    assert from_config({**LLAMA_CONFIG, "eos_token_id": config}, **metadata).eos_ids == expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"eos_token_id": 2}, {2}),
        ({"eos_token_id": 2, "eot_token_id": 7, "eom_token_id": 9}, {2, 7, 9}),
        ({"eos_token_id": 1, "tokens": ["<eos>", "a", "<end_of_turn>"], "token_type": [3, 1, 3]}, {1, 2}),
        ({"eos_token_id": 1, "tokens": ["<eos>", "a", "<end_of_turn>"], "token_type": [3, 1, 1]}, {1}),
        ({"eos_token_id": 1, "eot_token_id": 0, "tokens": ["a", "b", "<|im_end|>"], "token_type": [3, 3, 3]}, {0, 1}),
    ],
)
def test_gguf_end_ids(metadata: dict[str, Any], expected: set[int]) -> None:
    """BUG-043: eos, eot, eom, and the turn's end in files without an eot id."""
    converted = gguf("llama", None, **{f"tokenizer.ggml.{key}": value for key, value in metadata.items()})
    assert converted.eos_ids == expected


@pytest.mark.parametrize("value", [96, "2", [2, "7"], 2.0, True])
def test_impossible_end_ids_are_refused(value: Any) -> None:
    with pytest.raises(BadModelFile, match=r"eos_token_id|end token id"):
        from_config({**LLAMA_CONFIG, "eos_token_id": value})


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"architectures": ["FooForCausalLM"]}, Unsupported, "'FooForCausalLM'.*LlamaForCausalLM.*Gemma3"),
        ({"architectures": None, "model_type": "foo"}, Unsupported, "'foo'.*llama.*gemma3"),
        ({"architectures": None, "model_type": None}, BadModelFile, "model_type is missing"),
        ({"hidden_size": None}, BadModelFile, "hidden_size is missing"),
        ({"num_hidden_layers": "2"}, BadModelFile, "num_hidden_layers must be an integer"),
        ({"num_attention_heads": True}, BadModelFile, "num_attention_heads must be an integer"),
        ({"num_attention_heads": 0}, BadModelFile, "num_attention_heads is 0"),
        ({"num_key_value_heads": 3}, BadModelFile, "4 query heads cannot share 3"),
        ({"hidden_size": 2**40}, BadModelFile, "hidden_size is 1099511627776, outside"),
        ({"vocab_size": 2**31}, BadModelFile, "vocab_size"),
        ({"num_hidden_layers": 10**6}, BadModelFile, "num_hidden_layers"),
        ({"head_dim": 7}, BadModelFile, "even"),
        ({"rms_norm_eps": "tiny"}, BadModelFile, "rms_norm_eps must be a number"),
        ({"tie_word_embeddings": "yes"}, BadModelFile, "tie_word_embeddings must be true or false"),
        ({"hidden_act": "relu"}, Unsupported, "'relu'.*silu"),
        ({"mlp_bias": True}, Unsupported, "mlp_bias"),
        ({"num_local_experts": 8}, Unsupported, "experts"),
        ({"rope_scaling": {"type": "foo"}}, Unsupported, "'foo'"),
    ],
)
def test_configs_that_cannot_be_run_are_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    """BUG-058, BUG-056: the message names file, key and what would work."""
    with pytest.raises(error, match=f"memory.*{words}"):
        from_config({**LLAMA_CONFIG, **changes})


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"block_count": None}, BadModelFile, r"llama\.block_count is missing"),
        ({"embedding_length": "x"}, BadModelFile, r"llama\.embedding_length must be an integer"),
        ({"expert_count": 8}, Unsupported, "experts"),
        ({"attention.value_length": 4}, Unsupported, "values of another length"),
        ({"context_length": 2**40}, BadModelFile, r"llama\.context_length"),
    ],
)
def test_gguf_files_that_cannot_be_run_are_refused(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        gguf("llama", settings)


def test_an_unknown_gguf_architecture_is_named() -> None:
    """BUG-058."""
    with pytest.raises(Unsupported, match="'foo' is not supported; supported: llama, qwen2, qwen3, gemma2, gemma3"):
        gguf("foo")
    with pytest.raises(BadModelFile, match=r"general\.architecture is missing"):
        describe(MemoryWeights({}, {}))


def test_windows_follow_layer_types_or_the_familys_rule() -> None:
    config = {**LLAMA_CONFIG, "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 3, "sliding_window": 8}
    assert [layer.sliding_window for layer in from_config(config).layers] == [None] * 3
    used = {**config, "use_sliding_window": True, "max_window_layers": 2}
    assert [layer.sliding_window for layer in from_config(used).layers] == [None, None, 8]
    typed = {**used, "layer_types": ["sliding_attention", "full_attention", "full_attention"]}
    assert [layer.sliding_window for layer in from_config(typed).layers] == [8, None, None]
    for wrong in (["sliding_attention"], ["linear_attention"] * 3, "full_attention"):
        with pytest.raises(BadModelFile, match="layer_types"):
            from_config({**used, "layer_types": wrong})


ODD_VALUES: list[Any] = [None, "x", "", -1, 0, 1, 2, 2**70, 1.5, float("nan"), float("inf"), [], [1, "a"], {}, True]


def assert_described_or_refused(weights: MemoryWeights) -> None:
    with contextlib.suppress(BadModelFile, Unsupported):
        description = describe(weights)
        assert len(description.layers) == description.n_layers


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_odd_values_are_described_or_refused_but_never_crash(name: str) -> None:
    """Every key of both kinds of file, each with every odd value."""
    model = tiny_model(FAMILIES[name])
    hf, converted = as_hugging_face(model), as_gguf(model, {"attention.sliding_window": 8, "rope.scaling.factor": 2.0})
    for key in hf.metadata["config"]:
        for value in ODD_VALUES:
            assert_described_or_refused(MemoryWeights({"config": {**hf.metadata["config"], key: value}}, hf.arrays))
    for key in converted.metadata:
        for value in ODD_VALUES:
            assert_described_or_refused(MemoryWeights({**converted.metadata, key: value}, converted.arrays))


@pytest.mark.parametrize("kind", ["linear", "dynamic", "llama3", "yarn", "longrope"])
def test_odd_ropes_are_described_or_refused_but_never_crash(kind: str) -> None:
    rope: dict[str, Any] = {"rope_type": kind, "factor": 2.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    keys = [
        *rope,
        "type",
        "rope_theta",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
    ]
    keys += ["low_freq_factor", "high_freq_factor", "mscale", "mscale_all_dim", "truncate", "partial_rotary_factor"]
    for key in keys:
        for value in ODD_VALUES:
            config = {**LLAMA_CONFIG, "rope_scaling": {**rope, key: value}}
            assert_described_or_refused(MemoryWeights({"config": config}, {}))
