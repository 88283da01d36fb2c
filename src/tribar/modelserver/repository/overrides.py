"""What a load request puts in the place of a model's files: its configuration, or everything."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import InvalidRequest
from tribar.modelserver.model_config import config_from_json
from tribar.modelserver.repository.names import MAX_NAME_BYTES
from tribar.modelserver.service import LoadParameter

CONFIG = "config"
FILE_PREFIX = "file:"


@dataclass(frozen=True, slots=True)
class Overrides:
    """``config`` None keeps the folder's. Where there are ``files``, they are all that the model has."""

    config: ModelConfig | None = None
    files: Mapping[PurePosixPath, bytes] | None = None

    def write(self) -> Path:
        """Put ``files`` into a directory of their own, which only this user can read; the caller removes it.

        Writes the disk: call it off the event loop.
        """
        directory = Path(tempfile.mkdtemp(prefix="tribar-model-"))
        try:
            for relative, content in (self.files or {}).items():
                path = directory / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise InvalidRequest(
                f"the files of the load request cannot be written: {error}", param=FILE_PREFIX
            ) from error
        return directory


def read_overrides(parameters: Mapping[str, LoadParameter]) -> Overrides:
    """Raises ``InvalidRequest`` naming the parameter that is unknown, of the wrong kind, or leads elsewhere.

    Parsing may take milliseconds: call it off the event loop.
    """
    config: ModelConfig | None = None
    files: dict[PurePosixPath, bytes] = {}
    for key, value in parameters.items():
        if key == CONFIG:
            config = _config(value)
        elif key.startswith(FILE_PREFIX):
            if not isinstance(value, bytes):
                raise InvalidRequest(f"load parameter '{key[:80]}' has to be the bytes of a file", param=FILE_PREFIX)
            files[_path(key)] = value
        else:
            raise InvalidRequest(
                f"unknown load parameter '{key[:80]}'; there are 'config' and 'file:VERSION/PATH'", param=key[:80]
            )
    if files and config is None:
        raise InvalidRequest("load parameter 'config' must be given together with files", param=CONFIG)
    return Overrides(config, files or None)


def _config(value: LoadParameter) -> ModelConfig:
    if not isinstance(value, str):
        raise InvalidRequest("load parameter 'config' has to be a string of JSON", param=CONFIG)
    return config_from_json(value)


def _path(key: str) -> PurePosixPath:
    text = key.removeprefix(FILE_PREFIX)
    path = PurePosixPath(text)
    is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    is_name = all(
        len(part.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES and part.isprintable() for part in path.parts
    )
    if not is_inside or not is_name or "\\" in text or len(text) > 1024:
        raise InvalidRequest(
            f"Invalid file path: load parameter '{key[:80]}' does not name a file of the model; "
            "write 'file:VERSION/PATH'",
            param=FILE_PREFIX,
        )
    return path
