"""A look at model directories on disk, without loading anything."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import BadModelFile, InvalidRequest, NotFound, Unsupported
from tribar.modelserver.model_config.completion import complete
from tribar.modelserver.model_config.labels import read_labels
from tribar.modelserver.model_config.model_files import check_model_files
from tribar.modelserver.model_config.positions import positioned
from tribar.modelserver.model_config.text import parse_config
from tribar.modelserver.model_config.validation import validate
from tribar.modelserver.model_config.versions import version_directories, versions_served

CONFIG_FILE: Final = "config.pbtxt"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is to be said about one model: why it cannot be served (``problem``), or who would serve which versions."""

    name: str
    problem: str = ""
    backend: str = ""
    versions: tuple[int, ...] = ()


def inspect(directory: Path) -> Iterator[Finding]:
    """One finding for each model of a repository, in order of name, or for the one model that ``directory`` is.

    Models are not loaded, and whether this machine has the GPUs is not asked. Raises ``NotFound`` where there is no
    such directory, or no model in it.
    """
    if not directory.is_dir():
        raise NotFound(f"there is no directory {directory}")
    if _is_model(directory):
        yield _inspected(directory)
        return
    models = sorted(entry for entry in directory.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not models:
        raise NotFound(f"no models in {directory}; a model is a directory with {CONFIG_FILE} and a version, as NAME/1")
    yield from map(_inspected, models)


def _is_model(directory: Path) -> bool:
    return (directory / CONFIG_FILE).is_file() or bool(version_directories(directory))


def _inspected(directory: Path) -> Finding:
    name, file = directory.resolve().name, directory / CONFIG_FILE
    try:
        text = file.read_bytes() if file.exists() else b""
        config = parse_config(text, file=str(file))
        try:
            return _checked(config, name, directory)
        except (InvalidRequest, Unsupported) as error:
            return Finding(name, problem=positioned(error, text, file=str(file)).message)
    except BadModelFile as error:
        return Finding(name, problem=error.message)
    except OSError as error:
        return Finding(name, problem=f"{error.filename or file}: {error.strerror}")


def _checked(config: ModelConfig, name: str, directory: Path) -> Finding:
    completed = complete(config, name=name, directory=directory, gpus=None)
    validate(completed, name=name, directory=directory, gpus=None)
    versions = versions_served(completed.version_policy, version_directories(directory), name=name)
    check_model_files(completed, directory, versions)
    read_labels(completed, directory)
    return Finding(name, backend=completed.backend, versions=tuple(versions))
