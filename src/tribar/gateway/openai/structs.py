"""Structs that read more fields than they have: the implemented ones, and those of a table."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from tribar.gateway.openai.fields import Neutral

S = TypeVar("S", bound=msgspec.Struct)


def with_fields(base: type[S], name: str, fields: Mapping[str, Neutral]) -> type[S]:
    """``base`` as a struct that also reads ``fields``, each of any JSON type and None when absent.

    Their JSON schemas name the values that pass.
    """
    extra = [(field, _any_but_described(neutral), None) for field, neutral in sorted(fields.items())]
    made = msgspec.defstruct(
        name, extra, bases=(base,), module=base.__module__, forbid_unknown_fields=True, kw_only=True
    )
    return cast("type[S]", made)


def _any_but_described(neutral: Neutral) -> object:
    return Annotated[Any, Meta(extra_json_schema={"enum": [None, *neutral]})]
