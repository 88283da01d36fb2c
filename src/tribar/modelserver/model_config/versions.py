"""The versions of a model: its numbered directories, and which of them its policy serves."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelVersionPolicy

from tribar.modelserver.model_config.refusal import refusal

LARGEST_VERSION: Final = 2**63 - 1

_NOT_VERSIONS: Final = frozenset({"warmup", "initial_state", "configs", "__pycache__"})
"""Directories beside the versions that have a meaning of their own."""


def version_directories(directory: Path) -> list[int]:
    """The versions in a model's directory, in numeric order.

    A version is written in digits without sign or leading zero; 0 is one, 02 is not.
    """
    versions = (_version(name) for name in _subdirectories(directory))
    return sorted(version for version in versions if version is not None)


def ignored_directories(directory: Path) -> list[str]:
    """Directories of a model that were perhaps meant as versions, but have no version's name; to be logged."""
    names = (name for name in _subdirectories(directory) if name not in _NOT_VERSIONS and not name.startswith("."))
    return sorted(name for name in names if _version(name) is None)


def versions_served(policy: ModelVersionPolicy, available: Iterable[int], *, name: str) -> list[int]:
    """Those of ``available`` that the ``policy`` of a completed configuration serves, in numeric order.

    A policy that names no choice, ``version_policy {}``, serves all (as Triton).
    Raises ``InvalidRequest`` naming the model where none is served, or a specific one is missing.
    """
    found = sorted(available)
    if policy.HasField("specific"):
        served = sorted(set(policy.specific.versions))
        if missing := [version for version in served if version not in found]:
            reason = f"no directory for version {_listed(missing)}; there are: {_listed(found)}"
            raise refusal(name, "version_policy.specific.versions", reason)
    elif policy.HasField("latest"):
        served = found[-policy.latest.num_versions :] if policy.latest.num_versions else []
    else:
        served = found
    if not found:
        raise refusal(name, "version_policy", "the model has no version; put its files into a directory named 1")
    if not served:
        raise refusal(name, "version_policy", f"serves no version; there are: {_listed(found)}")
    return served


def _subdirectories(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir() if entry.is_dir()] if directory.is_dir() else []


def _version(name: str) -> int | None:
    if not (name.isascii() and name.isdigit()) or len(name) > len(str(LARGEST_VERSION)):
        return None
    if name.startswith("0") and name != "0":
        return None
    version = int(name)
    return version if version <= LARGEST_VERSION else None


def _listed(versions: Sequence[int]) -> str:
    return ", ".join(str(version) for version in versions) or "none"
