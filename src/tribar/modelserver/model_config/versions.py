"""The versions of a model: its numbered directories, and which of them its policy serves."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelVersionPolicy

from tribar.modelserver.model_config.refusal import refusal

LARGEST_VERSION: Final = 2**63 - 1

_NOT_VERSIONS: Final = frozenset({"warmup", "initial_state", "configs", "__pycache__"})
"""Directories beside the versions that have a meaning of their own."""

_log = logging.getLogger(__name__)


def version_directories(directory: Path) -> list[int]:
    """The versions in a model's directory, in numeric order. Directories with other names are ignored with a log.

    A version is written in digits without sign or leading zero; 0 is one, 02 is not.
    """
    names = sorted(entry.name for entry in directory.iterdir() if entry.is_dir()) if directory.is_dir() else []
    versions = {name: _version(name) for name in names if name not in _NOT_VERSIONS and not name.startswith(".")}
    for name in (name for name, version in versions.items() if version is None):
        _log.warning("directory %s of model %s is ignored: no version number", name, directory.name)
    return sorted(version for version in versions.values() if version is not None)


def versions_served(policy: ModelVersionPolicy, available: Iterable[int], *, name: str) -> list[int]:
    """Those of ``available`` that ``policy`` serves, in numeric order; by default the latest.

    Raises ``InvalidRequest`` naming the model where none is served, or a specific one is missing.
    """
    found = sorted(available)
    if policy.HasField("specific"):
        served = sorted(set(policy.specific.versions))
        if missing := [version for version in served if version not in found]:
            reason = f"no directory for version {_listed(missing)}; there are: {_listed(found)}"
            raise refusal(name, "version_policy.specific.versions", reason)
    elif policy.HasField("all"):
        served = found
    else:
        n_versions = policy.latest.num_versions if policy.HasField("latest") else 1
        served = found[-n_versions:] if n_versions else []
    if not found:
        raise refusal(name, "version_policy", "the model has no version; put its files into a directory named 1")
    if not served:
        raise refusal(name, "version_policy", f"serves no version; there are: {_listed(found)}")
    return served


def _version(name: str) -> int | None:
    if not (name.isascii() and name.isdigit()) or len(name) > len(str(LARGEST_VERSION)):
        return None
    if name.startswith("0") and name != "0":
        return None
    version = int(name)
    return version if version <= LARGEST_VERSION else None


def _listed(versions: Sequence[int]) -> str:
    return ", ".join(str(version) for version in versions) or "none"
