"""What a model raised, as Triton words it."""

import importlib
import traceback
from pathlib import Path

_NOT_THE_MODELS = (str(Path(__file__).parent), str(Path(importlib.__file__).parent), "<frozen importlib")
"""Where frames between the worker's loop and the model's code come from."""


MAX_TEXT_CHARS = 16 * 1024
"""Of an error or a record of the log: whoever asked has to take it whole, and the server to hold it several times."""


def describe(error: BaseException) -> str:
    """Type, message and the model's own frames, the innermost first."""
    text = f"{type(error).__name__}: {_message(error) or '<EMPTY MESSAGE>'}"
    frames = [
        f"  {frame.filename}({frame.lineno}): {frame.name}\n"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if not frame.filename.startswith(_NOT_THE_MODELS)
    ]
    return sendable(f"{sendable(text)}\n\nAt:\n{''.join(frames)}" if frames else text)


def full_traceback(error: BaseException) -> str:
    """For the log, causes included."""
    return sendable("".join(traceback.format_exception(error)).rstrip())


def sendable(text: str) -> str:
    """``encodable``, and without what is in the middle of more than ``MAX_TEXT_CHARS``."""
    n_cut = len(text) - MAX_TEXT_CHARS
    if n_cut > 0:
        half = MAX_TEXT_CHARS // 2
        text = f"{text[:half]} [... {n_cut} characters are left out ...] {text[-half:]}"
    return encodable(text)


def encodable(text: str) -> str:
    """``text`` with lone surrogates, which no message can hold, written out."""
    return text.encode(errors="backslashreplace").decode()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # the model's own ``__str__``
        return f"<its message cannot be had: {type(second).__name__}>"
