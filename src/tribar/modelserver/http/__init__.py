"""KServe v2 over HTTP with Triton's extensions: a thin translation of ``Service``."""
