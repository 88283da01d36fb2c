"""Where in ``config.pbtxt`` a field stands."""

from typing import Final

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import TribarError
from tribar.modelserver.model_config.vocabulary import Descriptor

Position = tuple[int, int]
"""Line and column, both from 1."""

_CLOSING: Final = ("}", ">")


def positioned(error: TribarError, text: bytes | str, *, file: str) -> TribarError:
    """``error`` of ``validate`` with FILE:LINE:COLUMN of its field in front; FILE alone where the text has it not."""
    positions = field_positions(text if isinstance(text, str) else text.decode())
    path = error.param or ""
    while path and path not in positions:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    place = "{}:{}:{}".format(file, *positions[path]) if path else file
    return type(error)(f"{place}: {error.message}", param=error.param)


def field_positions(text: str) -> dict[str, Position]:
    """The first place of each field by its path (``input[0].dims[1]``), in a text that ``parse_config`` takes."""
    positions: dict[str, Position] = {}
    _message(text_format.Tokenizer(text.split("\n")), ModelConfig.DESCRIPTOR, "", positions)
    return positions


def _message(
    tokenizer: text_format.Tokenizer, message: Descriptor, prefix: str, positions: dict[str, Position]
) -> None:
    counts: dict[str, int] = {}
    while not tokenizer.AtEnd() and tokenizer.token not in _CLOSING:
        field, at = message.fields_by_name[tokenizer.token], _position(tokenizer)
        path = prefix + field.name
        positions.setdefault(path, at)
        tokenizer.NextToken()
        tokenizer.TryConsume(":")
        is_list = tokenizer.TryConsume("[")
        while not (is_list and tokenizer.TryConsume("]")):
            index = counts[field.name] = counts.get(field.name, -1) + 1
            element = f"{path}[{index}]" if field.is_repeated else path
            positions.setdefault(element, _position(tokenizer) if is_list else at)
            _value(tokenizer, field, element, positions)
            if not is_list:
                break
            tokenizer.TryConsume(",")
        if not tokenizer.TryConsume(","):
            tokenizer.TryConsume(";")


def _value(tokenizer: text_format.Tokenizer, field: Descriptor, path: str, positions: dict[str, Position]) -> None:
    if tokenizer.token in {"{", "<"}:
        tokenizer.NextToken()
        _message(tokenizer, field.message_type, f"{path}.", positions)
    tokenizer.NextToken()
    while tokenizer.token[:1] in {'"', "'"}:  # adjacent strings are one
        tokenizer.NextToken()


def _position(tokenizer: text_format.Tokenizer) -> Position:
    here = tokenizer.ParseError("")
    return here.GetLine(), here.GetColumn()
