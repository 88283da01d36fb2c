"""The native CPU runner: C++ kernels (``native/``) behind the runner contract."""
