"""Versions as requests name them."""

from typing import Final

from tribar.core.errors import InvalidRequest

_MAX: Final = 2**63 - 1


def version_number(version: str) -> str:
    """As the repository writes it: ``01`` asks for 1. Raises ``InvalidRequest`` for what is no number of a version."""
    if not (version.isascii() and version.isdigit()) or len(version) > 20 or int(version) > _MAX:
        raise InvalidRequest(
            f"failed to get model version from specified version string '{version[:40]}', "
            "version should be an integral value >= 0",
            param="model_version",
        )
    return str(int(version))
