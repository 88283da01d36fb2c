"""What the server says about itself, over every front."""

from typing import Final

NAME: Final = "triton"
"""As clients of Triton expect it: programs check it."""

EXTENSIONS: Final = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""Names of the protocol's extensions (Triton's documentation of its protocol)."""
