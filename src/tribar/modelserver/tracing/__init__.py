"""Traces: when sampled requests reached which point, in a file (Triton's trace extension, mode ``triton``)."""

from tribar.modelserver.tracing.traces import Traces

__all__ = ["Traces"]
