"""Shapes and sizes that follow from a description."""

from tribar.runtime.architectures.base import ModelDescription


def tensor_shape(description: ModelDescription, canonical: str) -> tuple[int, ...]:
    """The row-major shape of a weight: (out, in) for matrices, (n,) for norms and biases."""
    d = description
    q_size, kv_size = d.n_heads * d.head_dim, d.n_kv_heads * d.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "embed": (d.vocab_size, d.hidden_size),
        "lm_head": (d.vocab_size, d.hidden_size),
        "q": (q_size, d.hidden_size),
        "k": (kv_size, d.hidden_size),
        "v": (kv_size, d.hidden_size),
        "q.bias": (q_size,),
        "k.bias": (kv_size,),
        "v.bias": (kv_size,),
        "q_norm": (d.head_dim,),
        "k_norm": (d.head_dim,),
        "o": (d.hidden_size, q_size),
        "o.bias": (d.hidden_size,),
        "gate": (d.intermediate_size, d.hidden_size),
        "up": (d.intermediate_size, d.hidden_size),
        "down": (d.hidden_size, d.intermediate_size),
    }
    part = canonical.split(".", 2)[2] if canonical.startswith("layers.") else canonical
    return shapes.get(part, (d.hidden_size,))


def kv_bytes_per_block(description: ModelDescription, block_size: int, dtype_bytes: int) -> int:
    """Bytes of one KV block over all layers: keys and values of ``block_size`` positions."""
    per_token = 2 * description.n_layers * description.n_kv_heads * description.head_dim
    return per_token * block_size * dtype_bytes
