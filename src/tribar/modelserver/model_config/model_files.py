"""The file of a model in each version."""

from collections.abc import Iterable
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.model_config.refusal import refusal


def check_model_files(config: ModelConfig, directory: Path, versions: Iterable[int]) -> None:
    """Raises ``InvalidRequest`` where a version of a completed ``config`` lacks its file (or directory)."""
    filename = config.default_model_filename
    for version in versions:
        if filename and not (directory / str(version) / filename).exists():
            reason = f"version {version} has no '{filename}'; put it into {directory / str(version)} or set the name"
            raise refusal(config.name, "default_model_filename", reason)
