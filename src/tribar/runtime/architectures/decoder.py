"""The plain decoder (Llama's shape) from both kinds of file. Every family is this plus what differs."""

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.architectures.base import Activation, Layer, ModelDescription, Rope
from tribar.runtime.architectures.end_ids import end_ids_from_config, end_ids_from_gguf
from tribar.runtime.architectures.names import GGUF_EMBED, GGUF_LM_HEAD
from tribar.runtime.architectures.rope import resolve_rope
from tribar.runtime.architectures.rope_reading import gguf_rope, scaled_context, scaling_from_config, scaling_from_gguf
from tribar.runtime.architectures.settings import Settings
from tribar.runtime.architectures.source import Source

# Far above any real model, far below what would make arithmetic or allocation go wrong.
MAX_LAYERS, MAX_WIDTH, MAX_HEADS, MAX_VOCAB, MAX_WINDOW = 1024, 2**20, 4096, 2**24, 2**30

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
}


def plain_from_config(source: Source, *, activation_key: str = "hidden_act") -> ModelDescription:
    """Read config.json's usual keys: full attention, one rope, no biases, ``1 / sqrt(head_dim)``.

    Raises ``BadModelFile`` naming the key, ``Unsupported`` for an unknown activation, rope or a mixture of experts.
    """
    config = source.settings
    hidden_size = config.integer("hidden_size", high=MAX_WIDTH)
    n_heads = config.integer("num_attention_heads", high=MAX_HEADS)
    n_layers = config.integer("num_hidden_layers", high=MAX_LAYERS)
    vocab_size = config.integer("vocab_size", high=MAX_VOCAB)
    head_dim = config.integer("head_dim", high=MAX_HEADS, default=max(hidden_size // n_heads, 1))
    scaling = scaling_from_config(config, head_dim)
    rope = resolve_rope(scaling, source.max_model_len or scaled_context(scaling))
    if config.has("num_experts") or config.has("num_local_experts"):
        raise Unsupported(f"{config.origin}: mixtures of experts are not supported")
    return _checked(
        config,
        ModelDescription(
            family=config.string("model_type", default="llama"),
            n_layers=n_layers,
            hidden_size=hidden_size,
            n_heads=n_heads,
            n_kv_heads=config.integer("num_key_value_heads", high=MAX_HEADS, default=n_heads),
            head_dim=head_dim,
            intermediate_size=config.integer("intermediate_size", high=MAX_WIDTH * 8),
            vocab_size=vocab_size,
            context_length=scaled_context(scaling),
            norm_eps=config.number("rms_norm_eps", high=1.0, default=1e-6),
            layers=uniform(n_layers, rope),
            attention_scale=head_dim**-0.5,
            activation=activation_from_config(config, activation_key),
            is_tied=config.boolean("tie_word_embeddings", default=False),
            eos_ids=end_ids_from_config(source.weights.path, source.weights.metadata, config, vocab_size),
            bos_id=config.optional_integer("bos_token_id", high=vocab_size - 1),
        ),
    )


def plain_from_gguf(source: Source) -> ModelDescription:
    """Read the metadata under ``<arch>.``; the vocabulary's size is the embedding's height. Tied when there is no
    ``output.weight``; query, key, value and output biases are there when the file has them.

    Raises ``BadModelFile`` naming the key, ``Unsupported`` for a mixture of experts or an unknown rope.
    """
    meta, tensors = source.settings, source.weights.tensors
    if meta.integer("expert_count", low=0, high=2**16, default=0) > 0:
        raise Unsupported(f"{meta.origin}: mixtures of experts are not supported")
    embed = tensors.get(GGUF_EMBED)
    if embed is None or len(embed.shape) != 2 or not 0 < embed.shape[0] <= MAX_VOCAB:
        raise BadModelFile(
            f"{meta.origin}: {GGUF_EMBED} {'is missing' if embed is None else f'has the shape {embed.shape}'}"
        )
    hidden_size = meta.integer("embedding_length", high=MAX_WIDTH)
    n_heads = meta.integer("attention.head_count", high=MAX_HEADS)
    n_layers = meta.integer("block_count", high=MAX_LAYERS)
    head_dim = meta.integer("attention.key_length", high=MAX_HEADS, default=max(hidden_size // n_heads, 1))
    if meta.integer("attention.value_length", high=MAX_HEADS, default=head_dim) != head_dim:
        raise Unsupported(f"{meta.origin}: values of another length than keys are not supported")
    scaling = scaling_from_gguf(source, head_dim)
    return _checked(
        meta,
        ModelDescription(
            family=str(source.weights.metadata["general.architecture"]),
            n_layers=n_layers,
            hidden_size=hidden_size,
            n_heads=n_heads,
            n_kv_heads=meta.integer("attention.head_count_kv", high=MAX_HEADS, default=n_heads),
            head_dim=head_dim,
            intermediate_size=meta.integer("feed_forward_length", high=MAX_WIDTH * 8),
            vocab_size=embed.shape[0],
            context_length=scaled_context(scaling),
            norm_eps=meta.number("attention.layer_norm_rms_epsilon", high=1.0),
            layers=uniform(n_layers, gguf_rope(source, scaling)),
            attention_scale=meta.number("attention.scale", default=0.0) or head_dim**-0.5,
            has_qkv_bias="blk.0.attn_q.bias" in tensors,
            has_output_bias="blk.0.attn_output.bias" in tensors,
            is_tied=GGUF_LM_HEAD not in tensors,
            eos_ids=end_ids_from_gguf(source.weights.path, source.weights.metadata, embed.shape[0]),
            bos_id=Settings(meta.origin, source.weights.metadata).optional_integer(
                "tokenizer.ggml.bos_token_id", high=embed.shape[0] - 1
            ),
        ),
    )


def uniform(n_layers: int, rope: Rope, sliding_window: int | None = None) -> tuple[Layer, ...]:
    """``n_layers`` equal layers."""
    return (Layer(rope=rope, sliding_window=sliding_window),) * n_layers


def activation_from_config(config: Settings, key: str) -> Activation:
    """The MLP's activation. Raises ``Unsupported`` for one that no runner has."""
    name = config.string(key)
    if name not in _ACTIVATIONS:
        raise Unsupported(f"{config.origin}: {key} {name!r} is not supported; known: {', '.join(sorted(_ACTIVATIONS))}")
    return _ACTIVATIONS[name]


def layer_windows(config: Settings, n_layers: int, window: int | None, slides: list[bool]) -> list[int | None]:
    """The window of each layer: by ``layer_types`` where the config lists them, else by the family's rule."""
    types = config.get("layer_types")
    if types is not None:
        known = ("full_attention", "sliding_attention")
        if not isinstance(types, list) or len(types) != n_layers or any(kind not in known for kind in types):
            raise config.error("layer_types", f"must list {n_layers} of {' / '.join(known)}")
        slides = [kind == "sliding_attention" for kind in types]
    if window is None and any(slides):
        raise config.error("sliding_window", "is missing, but some layers use it")
    return [window if is_sliding else None for is_sliding in slides]


def _checked(settings: Settings, description: ModelDescription) -> ModelDescription:
    if description.n_heads % description.n_kv_heads:
        raise settings.error(
            "attention heads",
            f"do not fit: {description.n_heads} query heads cannot share {description.n_kv_heads} key/value heads",
        )
    return description
