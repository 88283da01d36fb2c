"""What an answer and the recorded one differ in."""

from collections.abc import Iterator
from typing import Any

from tests.differential.observe import Answer

INFORMATION = frozenset({"error", "error_message", "reason"})
"""Texts for people: they must be there, not be the same."""


def differences(recorded: Answer, answered: Answer) -> list[str]:
    """One line for each difference, none where the answers are equal.

    Errors are equal where their status is: their texts, and the media type around them, are recorded for information.
    """
    if "error" in recorded and "error" in answered:
        recorded, answered = ({k: v for k, v in one.items() if k != "type"} for one in (recorded, answered))
    return list(walk("", recorded, answered))


def walk(path: str, recorded: Any, answered: Any) -> Iterator[str]:
    """The differences below ``path``."""
    if isinstance(recorded, dict) and isinstance(answered, dict):
        for key in recorded.keys() | answered.keys():
            here = f"{path}.{key}" if path else key
            if key not in answered:
                yield f"{here}: missing, recorded {shown(recorded[key])}"
            elif key not in recorded:
                yield f"{here}: not recorded, answered {shown(answered[key])}"
            elif key not in INFORMATION or not (recorded[key] and answered[key]):
                yield from walk(here, recorded[key], answered[key])
    elif isinstance(recorded, list) and isinstance(answered, list) and len(recorded) == len(answered):
        for index, (one, other) in enumerate(zip(recorded, answered, strict=True)):
            yield from walk(f"{path}[{index}]", one, other)
    elif isinstance(recorded, bool) is not isinstance(answered, bool) or recorded != answered:
        yield f"{path}: recorded {shown(recorded)}, answered {shown(answered)}"


def shown(value: Any) -> str:
    """A value, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def difference_lines(expected: list[Answer], answered: list[Answer]) -> str:
    """The differences of a case's answers, call by call; empty where there are none."""
    return "\n".join(
        f"call {number}: {line}"
        for number, (one, other) in enumerate(zip(expected, answered, strict=True))
        for line in differences(one, other)
    )
