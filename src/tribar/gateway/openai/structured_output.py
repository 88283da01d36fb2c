"""What an answer must look like: the fields of OpenAI and of vLLM, old and new -> one ``Grammar``."""

import operator
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tribar.core.errors import InvalidRequest
from tribar.core.requests import Grammar, GrammarKind
from tribar.gateway.openai.fields import STRUCTURED_FIELDS, refuse_unsupported
from tribar.gateway.openai.reading.exact_integers import refuse_inexact
from tribar.gateway.openai.structs import with_fields

MAX_CHOICES = 1024
MAX_SOURCE_CHARS = 64 * 2**10

_ANY_OBJECT = '{"type":"object"}'
_BLANK = re.compile(r"\s*(#|$)")
_GBNF_RULE = re.compile(r"\s*[\w-]+[ \t]*::=")

Schema = dict[str, Any] | bool | Annotated[str, Meta(max_length=MAX_SOURCE_CHARS)]
Source = Annotated[str, Meta(min_length=1, max_length=MAX_SOURCE_CHARS)]
Choices = Annotated[list[str], Meta(max_length=MAX_CHOICES)]


class JsonSchemaFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The schema of a ``response_format``. Answers follow it whatever ``strict`` says; the rest has no effect."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    schema: dict[str, Any] | bool
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """OpenAI's way to ask for JSON."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputsFields(msgspec.Struct, kw_only=True):
    """vLLM's way, since 0.11. At most one of them."""

    json: Schema | None = None
    regex: Source | None = None
    choice: Choices | None = None
    grammar: Source | None = None
    json_object: bool | None = None


if TYPE_CHECKING:
    StructuredOutputs = StructuredOutputsFields
else:
    StructuredOutputs = with_fields(StructuredOutputsFields, "StructuredOutputs", STRUCTURED_FIELDS)


class GuidedFields(msgspec.Struct, kw_only=True):
    """The fields of both endpoints. ``guided_*`` is vLLM's older form; ``guided_grammar`` is GBNF or Lark."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: Source | None = None
    guided_choice: Choices | None = None
    guided_grammar: Source | None = None


_N_FORMS = len(GuidedFields.__struct_fields__)
_forms = operator.attrgetter(*GuidedFields.__struct_fields__)


def grammar_of(body: GuidedFields) -> Grammar | None:
    """What ``body`` asks for. Raises ``InvalidRequest`` for more than one form, ``Unsupported`` for options."""
    if _forms(body).count(None) == _N_FORMS:
        return None
    found = [grammar for grammar in _grammars(body) if grammar is not None]
    if len(found) > 1:
        first, second = found[0].param, found[1].param
        raise InvalidRequest(f"{first} and {second} exclude each other: an answer has one form", param=second)
    return found[0] if found else None


def _grammars(body: GuidedFields) -> list[Grammar | None]:
    outputs = body.structured_outputs or StructuredOutputs()
    refuse_unsupported(outputs, STRUCTURED_FIELDS, "structured_outputs.")
    place = "structured_outputs."
    return [
        _response_format(body.response_format),
        json_grammar(body.guided_json, "guided_json"),
        regex_grammar(body.guided_regex, "guided_regex"),
        _choice(body.guided_choice, "guided_choice"),
        _grammar(body.guided_grammar, "guided_grammar"),
        json_grammar(outputs.json, f"{place}json"),
        regex_grammar(outputs.regex, f"{place}regex"),
        _choice(outputs.choice, f"{place}choice"),
        _grammar(outputs.grammar, f"{place}grammar"),
        json_grammar(_ANY_OBJECT if outputs.json_object else None, f"{place}json_object"),
    ]


def _response_format(value: ResponseFormat | None) -> Grammar | None:
    param = "response_format"
    if value is None:
        return None
    if (value.type == "json_schema") != (value.json_schema is not None):
        raise InvalidRequest(
            f"{param}.json_schema belongs to type 'json_schema' and no other", param=f"{param}.json_schema"
        )
    if value.json_schema is not None:
        return json_grammar(value.json_schema.schema, param)
    return json_grammar(_ANY_OBJECT, param) if value.type == "json_object" else None


def json_grammar(schema: dict[str, Any] | bool | str | None, param: str) -> Grammar | None:
    """JSON that follows ``schema``, which may be written as a string; None for None.

    Raises ``Unsupported`` for integers that cannot be followed exactly.
    """
    if schema is None:
        return None
    refuse_inexact(schema, param)
    source = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
    return Grammar(GrammarKind.JSON_SCHEMA, source, param)


def regex_grammar(source: str | None, param: str) -> Grammar | None:
    """What matches ``source`` as a whole; None for None."""
    return None if source is None else Grammar(GrammarKind.REGEX, source, param)


def _choice(choices: list[str] | None, param: str) -> Grammar | None:
    return regex_grammar(f"(?:{'|'.join(map(re.escape, choices))})", param) if choices else None


def _grammar(source: str | None, param: str) -> Grammar | None:
    if source is None:
        return None
    return Grammar(GrammarKind.GBNF if _is_gbnf(source) else GrammarKind.LARK, source, param)


def _is_gbnf(source: str) -> bool:
    """Whether the first line that is neither blank nor a comment begins a rule of GBNF; Lark has no ``::=``."""
    first = next((line for line in source.splitlines() if not _BLANK.match(line)), "")
    return _GBNF_RULE.match(first) is not None
