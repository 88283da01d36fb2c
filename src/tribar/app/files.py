"""Small files that operators write: the one seam for what the file system and TOML raise."""

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from tribar.core.errors import InvalidRequest

MAX_FILE_BYTES = 1 << 20


def read_text(path: Path, param: str) -> str:
    """The text of ``path``. Raises ``InvalidRequest`` naming it; ``param`` is the setting that it was given for.

    Never waits: what is no file (a pipe, a device, a directory) is refused, not read.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidRequest(f"{path}: not a regular file", param=param)
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise InvalidRequest(f"{path}: larger than {MAX_FILE_BYTES} bytes", param=param)
        return content.decode()
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}", param=param) from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not UTF-8 at byte {error.start}", param=param) from error


def _open_at_once(path: str, flags: int) -> int:
    """Opening a pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def read_toml(path: Path, param: str) -> dict[str, Any]:
    """The document in ``path``. Raises as ``read_text``, also for what is no TOML."""
    text = read_text(path, param)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{path}: {error}", param=param) from error
