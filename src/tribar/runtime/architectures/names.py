"""Canonical tensor names and what the two kinds of file call them."""

from collections.abc import Collection

from tribar.runtime.architectures.base import ModelDescription, tensor_names

GGUF_EMBED, GGUF_LM_HEAD = "token_embd.weight", "output.weight"

_GGUF_LAYER = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "o": "attn_output",
    "post_attention_norm": "post_attention_norm",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "post_mlp_norm": "post_ffw_norm",
}

_HF_LAYER = {
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "o": "self_attn.o_proj",
    "post_attention_norm": "post_attention_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "post_mlp_norm": "post_feedforward_layernorm",
}

_HF_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "")
"""Where the text model sits: alone, inside a multimodal one (old and new layout), or saved without its head."""


def gguf_names(description: ModelDescription) -> dict[str, str]:
    """Canonical name -> name in a GGUF file."""
    names = {"embed": GGUF_EMBED, "final_norm": "output_norm.weight", "lm_head": GGUF_LM_HEAD}
    return {name: names.get(name) or _in_layer(name, "blk.", _GGUF_LAYER) for name in tensor_names(description)}


def hf_names(description: ModelDescription, present: Collection[str]) -> dict[str, str]:
    """Canonical name -> name in a Hugging Face checkpoint that holds the tensors ``present``."""
    prefix = next((p for p in _HF_PREFIXES if f"{p}embed_tokens.weight" in present), _HF_PREFIXES[0])
    names = {"embed": f"{prefix}embed_tokens.weight", "final_norm": f"{prefix}norm.weight"}
    heads = ("lm_head.weight", "language_model.lm_head.weight")
    names["lm_head"] = next((head for head in heads if head in present), heads[0])
    parts = _HF_LAYER
    if description.has_post_norms:  # Gemma calls the norm before the MLP by its place, Llama by what precedes it
        parts = {**_HF_LAYER, "mlp_norm": "pre_feedforward_layernorm"}
    return {name: names.get(name) or _in_layer(name, f"{prefix}layers.", parts) for name in tensor_names(description)}


def layer_prefix(file_name: str) -> str:
    """The part of a file's tensor name in front of the layer number."""
    return file_name[: file_name.index("0.")]


def _in_layer(canonical: str, prefix: str, parts: dict[str, str]) -> str:
    _, layer, part, *bias = canonical.split(".")
    return f"{prefix}{layer}.{parts[part]}.{'bias' if bias else 'weight'}"
