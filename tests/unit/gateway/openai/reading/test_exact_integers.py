"""Which integers an answer can be held to."""

import json
from typing import Any

import pytest

from tribar.core.errors import Unsupported
from tribar.gateway.openai.reading.exact_integers import refuse_inexact

FINE = [
    {"const": 2**53},
    {"const": -(2**53)},
    {"enum": [2**60, 2.5, True, "9007199254740993"]},
    {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1},
    {"properties": {"a": {"default": 10**30, "description": str(10**30)}}},
    True,
]
INEXACT: list[Any] = [
    {"const": 2**53 + 1},
    {"const": -(2**53) - 1},
    {"const": 10**30},
    {"const": 10**1000},
    {"properties": {"a": {"anyOf": [{"enum": [1, {"b": [2**63 + 1]}]}]}}},
]


@pytest.mark.parametrize("schema", FINE)
def test_what_a_double_holds_passes(schema: Any) -> None:
    refuse_inexact(schema, "p")


@pytest.mark.parametrize("schema", INEXACT)
def test_what_would_become_its_neighbour_is_refused_by_name(schema: Any) -> None:
    for form in (schema, json.dumps(schema)):
        with pytest.raises(Unsupported, match=r"^p: the schema has the integer -?\d{16,60}, which") as refused:
            refuse_inexact(form, "p")
        assert refused.value.param == "p"


@pytest.mark.parametrize("text", ["{", "1" * 100_000, "[" * 100_000 + "1" * 20, "1" * 20])
def test_what_is_no_schema_is_left_to_others(text: str) -> None:
    refuse_inexact(text, "p")
