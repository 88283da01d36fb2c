"""The names of an output's classes, one a line in a file beside ``config.pbtxt``."""

from pathlib import Path
from typing import Final

from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.model_config.paths import inside
from tribar.modelserver.model_config.refusal import refusal

MAX_LABEL_BYTES: Final = 64 << 20


def read_labels(config: ModelConfig, directory: Path) -> dict[str, tuple[str, ...]]:
    """The labels of each output that has a ``label_filename``, in the order of the classes.

    Raises ``InvalidRequest`` naming the output where the file is missing, outside ``directory``, or no text.
    """
    return {
        str(output.name): _read(config.name, f"output[{index}].label_filename", directory, str(output.label_filename))
        for index, output in enumerate(config.output)
        if output.label_filename
    }


def _read(model: str, field: str, directory: Path, filename: str) -> tuple[str, ...]:
    path = inside(directory, filename)
    if path is None:
        raise refusal(
            model, field, f"'{filename}' leads out of the model's directory; put the file beside config.pbtxt"
        )
    try:
        if path.stat().st_size > MAX_LABEL_BYTES:
            raise refusal(model, field, f"'{filename}' is larger than {MAX_LABEL_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise refusal(model, field, f"'{filename}' is no UTF-8 text") from None
    except OSError as error:
        reason = f"cannot read '{filename}' in {directory}: {error.strerror}; one label a line"
        raise refusal(model, field, reason) from None
    return tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")) if text else ()
