"""One declarative description per model, which every runner reads. No runner knows a family by name."""

from dataclasses import dataclass, field
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary position embedding, resolved to numbers at load.

    ``inv_freq`` has ``rotary_dim / 2`` entries (radians per position); ``attention_factor`` multiplies cos and sin.
    Where frequencies depend on the sequence length (dynamic, longrope), those of ``max_model_len`` are used.
    """

    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What may differ from layer to layer. ``sliding_window`` None is full attention.

    With a window w, position p sees positions ``(p - w, p]``.
    """

    rope: Rope
    sliding_window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """Everything a runner must know to compute logits.

    Block, with N = RMSNorm (``norm_eps``; weights are multiplied by ``1 + w`` when ``norm_adds_one``)::

        h = embed(ids) * embedding_scale
        per layer:  h += post_attention_norm?(attention(N(h)))      q, k, v biases where has_qkv_bias;
                    h += post_mlp_norm?(mlp(N(h)))                  RMSNorm per head on q and k where has_qk_norm
        logits = softcap(final_softcap, lm_head(N(h)))              lm_head is the embedding when tied

    Attention scores are ``q.k * attention_scale``, soft-capped by ``attention_softcap`` before the mask.
    ``rope_interleaved``: the stored q and k weights rotate pairs (2i, 2i+1) (GGUF "llama"), else halves (i, i + d/2).
    Weight names are canonical (see ``tensor_names``), whatever the file calls them.
    """

    family: str
    n_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    norm_eps: float
    layers: tuple[Layer, ...]
    attention_scale: float
    activation: Activation = "silu"
    rope_interleaved: bool = False
    norm_adds_one: bool = False
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_qk_norm: bool = False
    has_post_norms: bool = False
    embedding_scale: float = 1.0
    attention_softcap: float | None = None
    final_softcap: float | None = None
    is_tied: bool = False
    eos_ids: frozenset[int] = field(default_factory=frozenset)
    bos_id: int | None = None


def tensor_names(description: ModelDescription) -> tuple[str, ...]:
    """Canonical names of all weights, in the order in which they are used.

    ``embed``, ``layers.{i}.attention_norm``, ``.q``, ``.k``, ``.v`` (each ``.bias`` too where the family has it),
    ``.q_norm``, ``.k_norm``, ``.o``, ``.post_attention_norm``, ``.mlp_norm``, ``.gate``, ``.up``, ``.down``,
    ``.post_mlp_norm``, ``final_norm``, ``lm_head`` (absent when tied). Matrices are [out, in].
    """
    names = ["embed"]
    for i in range(description.n_layers):
        parts = ["attention_norm", "q", "k", "v"]
        parts += ["q.bias", "k.bias", "v.bias"] if description.has_qkv_bias else []
        parts += ["q_norm", "k_norm"] if description.has_qk_norm else []
        parts += ["o"] + (["o.bias"] if description.has_output_bias else [])
        parts += ["post_attention_norm"] if description.has_post_norms else []
        parts += ["mlp_norm", "gate", "up", "down"]
        parts += ["post_mlp_norm"] if description.has_post_norms else []
        names += [f"layers.{i}.{part}" for part in parts]
    names.append("final_norm")
    if not description.is_tied:
        names.append("lm_head")
    return tuple(names)
