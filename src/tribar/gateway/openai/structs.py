"""Structs that read more fields than they have: the implemented ones, and those of a table."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from tribar.gateway.openai.fields import Neutral

S = TypeVar("S", bound=msgspec.Struct)


def with_fields(base: type[S], name: str, fields: Mapping[str, Neutral]) -> type[S]:
    """``base`` as a struct that also reads ``fields``, each of any JSON type and None when absent."""
    extra = [(field, Any, None) for field in sorted(fields)]
    made = msgspec.defstruct(
        name, extra, bases=(base,), module=base.__module__, forbid_unknown_fields=True, kw_only=True
    )
    return cast("type[S]", made)
