"""What a file that PyTorch wrote is, and that no pickle in it would be run.

Both forms that are served are zip archives. An exported program (``torch.export.save``) is JSON and raw weights, but
its loader unpickles what some entries hold, and runs compiled libraries that lie in it: only the plain entries are let
through. TorchScript (``torch.jit.save``) is read by a parser of its own in C++, which makes nothing but tensors and
TorchScript's own types. A pickled module (``torch.save``) is a Python program of whoever wrote it.
"""

import json
import re
import zipfile
from enum import Enum
from pathlib import Path
from typing import Final

from tribar.core.errors import BadModelFile, Unsupported

_PLAIN: Final = re.compile(
    r"archive_(format|version)|byteorder|\.data/.*|version|extra/.*|models/[^/]+\.json|data/weights/weight_\d+"
    r"|data/constants/tensor_\d+|data/(weights|constants)/[^/]+_config\.json|data/sample_inputs/[^/]+\.pt"
)
_SAMPLE_INPUTS: Final = "data/sample_inputs/"
_MAX_CONFIG_BYTES: Final = 64 << 20
_MAX_SAMPLE_BYTES: Final = 256 << 20


class TorchFormat(Enum):
    """The kinds of files that are served."""

    EXPORTED = "exported program"
    TORCHSCRIPT = "TorchScript"


def recognised(file: Path) -> tuple[TorchFormat, list[bytes]]:
    """The kind of ``file``, and its parts that are pickles of tensors, for the caller to check.

    Raises ``BadModelFile`` where it is neither kind, and ``Unsupported`` for one whose loading would run code.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            return _recognised(file, archive)
    except FileNotFoundError as error:
        raise BadModelFile(f"there is no file {file}") from error
    except (zipfile.BadZipFile, ValueError, EOFError, RuntimeError, OSError) as error:
        raise BadModelFile(f"{file}: no archive that PyTorch writes ({error}); {_ADVICE}") from error


_ADVICE: Final = "save the model with torch.export.save, or torch.jit.save"


def _recognised(file: Path, archive: zipfile.ZipFile) -> tuple[TorchFormat, list[bytes]]:
    entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
    if len(entries) != len(archive.infolist()):
        raise BadModelFile(f"{file}: two entries have one name; {_ADVICE}")
    if "archive_format" in entries and any(name.startswith("models/") for name in entries):
        return TorchFormat.EXPORTED, _checked(file, archive, entries)
    if "constants.pkl" in entries and any(name.startswith("code/") for name in entries):
        return TorchFormat.TORCHSCRIPT, []
    if "data.pkl" in entries:
        raise Unsupported(f"{file} is a pickled module, which would run code of its own when loaded; {_ADVICE}")
    raise BadModelFile(f"{file}: neither an exported program nor TorchScript; {_ADVICE}")


def _checked(file: Path, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> list[bytes]:
    for name, entry in entries.items():
        if not _PLAIN.fullmatch(name):
            raise Unsupported(
                f"{file}: the entry '{name}' would run code of its own when loaded; "
                "export the model without compiled parts and custom objects"
            )
        is_config = name.endswith("_config.json")
        if is_config and (entry.file_size > _MAX_CONFIG_BYTES or _uses_pickle(json.loads(archive.read(entry)))):
            raise Unsupported(f"{file}: '{name}' names pickled tensors; export the model with plain tensors only")
    samples = [entry for name, entry in entries.items() if name.startswith(_SAMPLE_INPUTS)]
    if sum(entry.file_size for entry in samples) > _MAX_SAMPLE_BYTES:
        raise Unsupported(
            f"{file}: more than {_MAX_SAMPLE_BYTES >> 20} MiB of sample inputs; export the model with smaller ones"
        )
    return [archive.read(entry) for entry in samples]


def _uses_pickle(config: object) -> bool:
    """Whether an entry of a payload's configuration is to be unpickled. What has another form counts, too."""
    payloads = config.get("config") if isinstance(config, dict) else None
    if not isinstance(payloads, dict):
        return True
    return any(
        not isinstance(payload, dict)
        or payload.get("use_pickle", True) is not False
        or not re.fullmatch(r"(weight|tensor)_\d+", str(payload.get("path_name")))
        for payload in payloads.values()
    )
