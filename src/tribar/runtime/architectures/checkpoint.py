"""A weight file whose model is understood: description, canonical names, every shape checked."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tribar.core.errors import BadModelFile, Unsupported
from tribar.runtime.architectures.base import ModelDescription, tensor_names
from tribar.runtime.architectures.names import gguf_names, hf_names, layer_prefix
from tribar.runtime.architectures.registry import describe, is_gguf
from tribar.runtime.architectures.shapes import tensor_shape
from tribar.runtime.formats import TensorInfo, WeightFile, open_weights

_LOG = logging.getLogger(__name__)

_WITHOUT_EFFECT = (".rotary_emb.inv_freq", ".attn_rot_embd.weight")
"""Tensors that old converters stored although they follow from the settings."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights by canonical name (see ``base.tensor_names``). ``names`` maps them to the file's own names.

    Matrices are as the file stores them: with ``description.rope_interleaved`` q and k are still in pairs.
    """

    description: ModelDescription
    weights: WeightFile
    names: Mapping[str, str]

    def info(self, canonical: str) -> TensorInfo:
        """Type, shape and size of a tensor."""
        return self.weights.tensors[self.names[canonical]]

    def raw(self, canonical: str) -> npt.NDArray[np.uint8]:
        """The stored bytes, a view that is valid until ``close``."""
        return self.weights.raw(self.names[canonical])

    def float32(self, canonical: str) -> npt.NDArray[np.float32]:
        """The tensor in fp32, a new array in its row-major shape."""
        return self.weights.float32(self.names[canonical])

    def close(self) -> None:
        """Unmap the file. Idempotent."""
        self.weights.close()


def open_checkpoint(path: Path, max_model_len: int | None = None) -> Checkpoint:
    """Open the model at ``path``; the caller closes it. Reads no weights.

    ``max_model_len`` settles ropes that depend on the length; None takes the checkpoint's own. Raises
    ``BadModelFile`` (the key or all wrong tensors in one message) or ``Unsupported``.
    """
    weights = open_weights(path)
    try:
        return understand(weights, max_model_len)
    except BaseException:
        weights.close()
        raise


def understand(weights: WeightFile, max_model_len: int | None = None) -> Checkpoint:
    """The checkpoint in an open weight file. Raises like ``open_checkpoint``; leaves ``weights`` open."""
    description = describe(weights, max_model_len)
    if is_gguf(weights):
        names = gguf_names(description)
    else:
        names = hf_names(description, weights.tensors)
        _warn_about_untied_head(description, weights, names)
    _check_shapes(description, weights, names)
    _refuse_leftovers(description, weights, names)
    return Checkpoint(description, weights, names)


def _warn_about_untied_head(description: ModelDescription, weights: WeightFile, names: Mapping[str, str]) -> None:
    """A head beside ``tie_word_embeddings: true`` is not used; say so where it differs (EDGE_CASES BUG-055)."""
    head = hf_names(replace(description, is_tied=False), weights.tensors)["lm_head"]
    if description.is_tied and head in weights.tensors and names["embed"] in weights.tensors:
        embed = weights.raw(names["embed"])
        if not np.array_equal(embed, weights.raw(head)):
            _LOG.warning("%s: %s is ignored, because the config ties it to the embedding", weights.path, head)


def _check_shapes(description: ModelDescription, weights: WeightFile, names: Mapping[str, str]) -> None:
    troubles = []
    for canonical in tensor_names(description):
        name, expected = names[canonical], tensor_shape(description, canonical)
        info = weights.tensors.get(name)
        if info is None:
            hint = " (the config does not tie it to the embedding)" if canonical == "lm_head" else ""
            troubles.append(f"{name} is missing{hint}")
        elif info.shape != expected:
            troubles.append(f"{name} has shape {list(info.shape)}, not {list(expected)}")
    if troubles:
        more = f" (and {len(troubles) - 3} more)" if len(troubles) > 3 else ""
        raise BadModelFile(f"{weights.path}: {'; '.join(troubles[:3])}{more}")


def _refuse_leftovers(description: ModelDescription, weights: WeightFile, names: Mapping[str, str]) -> None:
    """A tensor inside a layer that nobody would read means a model that would be computed wrongly."""
    used, prefix = set(names.values()), layer_prefix(names["layers.0.q"])
    leftovers = [
        name
        for name in weights.tensors
        if name.startswith(prefix) and name not in used and not name.endswith(_WITHOUT_EFFECT)
    ]
    if leftovers:
        raise Unsupported(
            f"{weights.path}: {len(leftovers)} tensors do not belong to a {description.family} model of "
            f"{description.n_layers} layers, for example {leftovers[0]}"
        )
