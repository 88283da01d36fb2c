"""ONNX models, by onnxruntime (Triton's backend of the same name)."""

from tribar.modelserver.backends.onnxruntime.backend import OnnxRuntimeBackend

__all__ = ["OnnxRuntimeBackend"]
