"""What a model raised, as Triton words it."""

import importlib
import traceback
from pathlib import Path

_NOT_THE_MODELS = (str(Path(__file__).parent), str(Path(importlib.__file__).parent), "<frozen importlib")
"""Where frames between the worker's loop and the model's code come from."""


def describe(error: BaseException) -> str:
    """Type, message and the model's own frames, the innermost first."""
    text = f"{type(error).__name__}: {str(error) or '<EMPTY MESSAGE>'}"
    frames = [
        f"  {frame.filename}({frame.lineno}): {frame.name}\n"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if not frame.filename.startswith(_NOT_THE_MODELS)
    ]
    return encodable(f"{text}\n\nAt:\n{''.join(frames)}" if frames else text)


def full_traceback(error: BaseException) -> str:
    """For the log, causes included."""
    return encodable("".join(traceback.format_exception(error)).rstrip())


def encodable(text: str) -> str:
    """``text`` with lone surrogates, which no message can hold, written out."""
    return text.encode(errors="backslashreplace").decode()
