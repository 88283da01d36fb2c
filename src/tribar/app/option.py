"""Settings as fields of dataclasses."""

from dataclasses import field
from typing import Any

from tribar.app.option_kinds import Kind


def option(  # a field descriptor has the type of the field that it stands for, as with dataclasses.field
    default: object, kind: Kind, help_text: str, *, key: str = ""
) -> Any:  # noqa: ANN401
    """A dataclass field that can be set from outside.

    ``key`` is its name outside where that differs from the field's: units are in the field's name only.
    """
    return field(default=default, metadata={"kind": kind, "help": help_text, "key": key})
