"""From model files to one declarative description and canonically named weights."""

from tribar.runtime.architectures.base import Layer, ModelDescription, Rope, tensor_names
from tribar.runtime.architectures.checkpoint import Checkpoint, open_checkpoint, understand
from tribar.runtime.architectures.registry import describe
from tribar.runtime.architectures.shapes import kv_bytes_per_block, tensor_shape

__all__ = [
    "Checkpoint",
    "Layer",
    "ModelDescription",
    "Rope",
    "describe",
    "kv_bytes_per_block",
    "open_checkpoint",
    "tensor_names",
    "tensor_shape",
    "understand",
]
