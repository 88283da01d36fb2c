"""File names in a configuration: they may not lead out of the model's directory."""

from pathlib import Path, PurePosixPath

from tribar.modelserver.model_config.refusal import refusal


def is_safe(filename: str) -> bool:
    """Whether a name stays inside the directory that it is relative to, as far as the name tells."""
    path = PurePosixPath(filename)
    return bool(filename) and not path.is_absolute() and ".." not in path.parts and "\0" not in filename


def inside(directory: Path, filename: str) -> Path | None:
    """``filename`` in ``directory``, or None where it leads out of it, be it by a symbolic link."""
    if not is_safe(filename):
        return None
    path = directory / filename
    return path if path.resolve().is_relative_to(directory.resolve()) else None


def check_inside(model: str, field: str, filename: str) -> None:
    """Raises ``InvalidRequest`` where a name that is given is not ``is_safe``."""
    if filename and not is_safe(filename):
        raise refusal(model, field, f"'{filename}' leads out of the model's directory; name a file inside it")
