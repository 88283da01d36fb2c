"""The bodies of the text-generation-inference routes, and the fields that pass at a neutral value only.

Names, defaults and ranges are those of that server's own OpenAPI document, except that a repetition penalty has the
lower bound of our other routes: dividing logits by less could overflow.
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from tribar.gateway.openai.fields import Neutral
from tribar.gateway.openai.shared_fields import MAX_STOPS, StopText
from tribar.gateway.openai.structs import with_fields
from tribar.gateway.openai.structured_output import MAX_SOURCE_CHARS, Source

MAX_NEW_TOKENS = 100
"""How long an answer may be where the request does not say."""

PARAMETER_FIELDS: dict[str, Neutral] = {
    "adapter_id": (),
    "best_of": (1,),
    "typical_p": (1, 1.0),
    "watermark": (False,),
}

WHOLE_FIELDS: dict[str, Neutral] = {"stream": (False,)}
STREAM_FIELDS: dict[str, Neutral] = {"stream": (True,)}


SchemaObject = dict[str, Any] | Annotated[str, Meta(max_length=MAX_SOURCE_CHARS)]


class JsonGrammar(msgspec.Struct, tag_field="type", tag="json", forbid_unknown_fields=True):
    """The answer follows a JSON schema, given as an object or as a string."""

    value: SchemaObject


class RegexGrammar(msgspec.Struct, tag_field="type", tag="regex", forbid_unknown_fields=True):
    """The answer matches a regular expression."""

    value: Source


class NamedSchema(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A JSON schema; its name has no effect."""

    schema: SchemaObject
    name: Annotated[str, Meta(max_length=64)] | None = None


class JsonSchemaGrammar(msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    """The answer follows a JSON schema that has a name."""

    value: NamedSchema


class ParameterFields(msgspec.Struct, kw_only=True):
    """The implemented parameters. Without ``do_sample`` an answer is greedy, unless a parameter of sampling is set."""

    max_new_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    do_sample: bool | None = None
    temperature: Annotated[float, Meta(gt=0, le=100)] | None = None
    top_k: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop: Annotated[list[StopText], Meta(max_length=MAX_STOPS)] | None = None
    truncate: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    return_full_text: bool | None = None
    details: bool | None = None
    decoder_input_details: bool | None = None
    top_n_tokens: Annotated[int, Meta(ge=0, le=5)] | None = None
    grammar: JsonGrammar | RegexGrammar | JsonSchemaGrammar | None = None


if TYPE_CHECKING:
    Parameters = ParameterFields
else:
    Parameters = with_fields(ParameterFields, "GenerateParameters", PARAMETER_FIELDS)


class GenerateFields(msgspec.Struct, kw_only=True):
    """A prompt and what to do with it. The only served model answers."""

    inputs: str
    parameters: Parameters | None = None


class CompatFields(GenerateFields, kw_only=True):
    """The same for ``POST /``, where the body says whether the answer is streamed."""

    stream: bool | None = None


GenerateBody = with_fields(GenerateFields, "GenerateRequest", WHOLE_FIELDS)
GenerateStreamBody = with_fields(GenerateFields, "GenerateStreamRequest", STREAM_FIELDS)
CompatBody = with_fields(CompatFields, "CompatGenerateRequest", {})
