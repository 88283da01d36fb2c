"""Which format a path holds."""

from pathlib import Path

from tribar.core.errors import BadModelFile
from tribar.runtime.formats.base import WeightFile
from tribar.runtime.formats.gguf import SHARD_NAME, open_gguf
from tribar.runtime.formats.safetensors import open_safetensors

_WHAT_WORKS = "give a .gguf file, a directory with config.json and safetensors files, or one with a single GGUF model"


def open_weights(path: Path) -> WeightFile:
    """Map the model at ``path`` (see ``locate_model``); only headers are read. The caller closes it.

    Raises ``BadModelFile`` naming what is wrong and what would work.
    """
    located = locate_model(path)
    return open_safetensors(located) if located.is_dir() else open_gguf(located)


def locate_model(path: Path) -> Path:
    """The ``.gguf`` file (any shard of a split one will do) or the directory with safetensors that ``path`` means.

    A directory with exactly one GGUF model means that. Nothing is opened. Raises ``BadModelFile``.
    """
    if path.is_dir():
        if any(path.glob("*.safetensors")) or any(path.glob("*.safetensors.index.json")):
            return path
        return _only_gguf(path)
    if path.suffix == ".gguf" and path.exists():
        return path
    trouble = "not a known kind of model" if path.exists() else "no such file or directory"
    raise BadModelFile(f"{path}: {trouble}: {_WHAT_WORKS}")


def _only_gguf(directory: Path) -> Path:
    """The one GGUF model of a directory; shards of one model count as one."""
    models: dict[str, Path] = {}
    for file in sorted(directory.glob("*.gguf")):
        match = SHARD_NAME.fullmatch(file.name)
        models.setdefault(f"{match['stem']}-of-{match['count']}" if match else file.name, file)
    if not models:
        raise BadModelFile(f"{directory}: no model files in it: {_WHAT_WORKS}")
    if len(models) > 1:
        names = ", ".join(file.name for file in list(models.values())[:5])
        raise BadModelFile(f"{directory}: several GGUF models ({names}); give the path of one of them")
    return next(iter(models.values()))
