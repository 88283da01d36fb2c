"""The tables of docs/serving.md as the code has them: rows of cells without their last column, which is prose."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from tribar.app.http_connection import ConnectionLimits
from tribar.app.launch import RESERVED_FILES
from tribar.app.settings import options
from tribar.core.errors import ERRORS_BY_NAME
from tribar.engine.connection import MAX_OPEN
from tribar.engine.grammar.compiler import MAX_JOBS, MAX_TENANT_JOBS
from tribar.engine.grammar.guidance import MAX_SOURCE_BYTES
from tribar.engine.prompt_encoder import MAX_PENDING
from tribar.gateway.config import GatewayConfig
from tribar.gateway.json_body import MAX_NODES, MAX_VALUES
from tribar.gateway.openai.chat import ChatBody, ChatFields
from tribar.gateway.openai.completions import CompletionBody, CompletionFields
from tribar.gateway.openai.fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    MESSAGE_FIELDS,
    PART_FIELDS,
    STREAM_FIELDS,
    STRUCTURED_FIELDS,
    TOKENIZE_FIELDS,
    Neutral,
)
from tribar.gateway.openai.shared_fields import MAX_LOGIT_BIAS, MAX_N, MAX_STOP_CHARS, MAX_STOPS
from tribar.gateway.openai.tokenization import DetokenizeRequest, TokenizeBody, TokenizeFields
from tribar.gateway.openai.tools import MAX_TOOL_BYTES, MAX_TOOLS
from tribar.gateway.tgi import fields as tgi
from tribar.telemetry.metrics import EngineFamilies, EngineMetrics

Row = tuple[str, ...]

SOURCE = Path(__file__).parents[2] / "src/tribar"


def setting_rows() -> Sequence[Row]:
    """Flag, environment variable, table and key of the file, values, default; the description last."""
    rows = []
    for option in options().values():
        default = "" if option.default is None else code(_default(option.default))
        kind = option.kind.metavar.replace("|", ", ")
        row = (code(option.flag), code(option.variable), code(f"{option.room}.{option.key}"), kind, default)
        rows.append((*row, option.help))
    return rows


def implemented_field_rows() -> Sequence[Row]:
    """Field, endpoints, values."""
    bodies: dict[str, Any] = {
        "chat": (ChatBody, ChatFields),
        "completions": (CompletionBody, CompletionFields),
        "tokenize": (TokenizeBody, TokenizeFields),
        "detokenize": (DetokenizeRequest, DetokenizeRequest),
    }
    values: dict[str, dict[str, list[str]]] = {}
    for endpoint, (body, fields) in bodies.items():
        schema = _properties(body)
        for name in fields.__struct_fields__:
            values.setdefault(name, {}).setdefault(_values(schema[name]), []).append(endpoint)
    return [
        (code(name), ", ".join(endpoints), described)
        for name, by_values in sorted(values.items())
        for described, endpoints in by_values.items()
    ]


def tgi_parameter_rows() -> Sequence[Row]:
    """Implemented parameters of text-generation-inference: name, values."""
    schema = _properties(tgi.Parameters)
    return [(code(name), _values(schema[name])) for name in sorted(tgi.ParameterFields.__struct_fields__)]


def neutral_field_rows() -> Sequence[Row]:
    """Field, where it may stand, the values that pass."""
    places: dict[str, Mapping[str, Neutral]] = {
        "chat": CHAT_FIELDS,
        "completions": COMPLETION_FIELDS,
        "`stream_options`": STREAM_FIELDS,
        "`structured_outputs`": STRUCTURED_FIELDS,
        "`messages[]`": MESSAGE_FIELDS,
        "`content[]`": PART_FIELDS,
        "tokenize": TOKENIZE_FIELDS,
        "generate": tgi.WHOLE_FIELDS,
        "generate_stream": tgi.STREAM_FIELDS,
        "`parameters`": tgi.PARAMETER_FIELDS,
    }
    where: dict[tuple[str, str], list[str]] = {}
    for place, fields in places.items():
        for name, neutral in fields.items():
            where.setdefault((name, _passes(neutral)), []).append(place)
    return [(code(name), ", ".join(found), passes) for (name, passes), found in sorted(where.items())]


def metric_rows() -> Sequence[Row]:
    """Name as scraped, type, labels, meaning."""
    registry = CollectorRegistry()
    families = EngineFamilies(registry)
    EngineMetrics(families, "m")
    families.finished.labels("m", "stop")
    families.refused.labels("m", "max_ttft")
    rows = []
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"}, key=len)
        rows.append((code(name), family.type, ", ".join(map(code, labels)), family.documentation))
    return rows


def error_rows() -> Sequence[Row]:
    """Class, HTTP status, OpenAI type."""
    return [(code(name), str(cls.status), code(cls.type)) for name, cls in ERRORS_BY_NAME.items()][1:]


def code(text: str) -> str:
    """``text`` in backticks."""
    return f"`{text}`"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _passes(neutral: Neutral) -> str:
    shown = dict.fromkeys(msgspec.json.encode(value).decode() for value in neutral)
    return ", ".join(map(code, ["null", *shown]))


def _properties(body: type[Any]) -> dict[str, Any]:
    (_, schemas) = msgspec.json.schema_components([body])
    properties: dict[str, Any] = schemas[body.__name__]["properties"]
    return properties


def _values(schema: Mapping[str, Any]) -> str:
    """A JSON schema in words: ``integer, 1 to 16``. ``null`` goes without saying."""
    alternatives = schema.get("anyOf", [schema])
    words = [_one(alternative) for alternative in alternatives if alternative.get("type") != "null"]
    return " or ".join(dict.fromkeys(words))


def _one(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return "object"
    if "anyOf" in schema:
        return _values(schema)
    if "enum" in schema:
        return " or ".join(code(f'"{word}"') for word in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list{_size(schema, 'minItems', 'maxItems', '')} of {_values(schema['items'])}"
    if kind == "string":
        return f"string{_size(schema, 'minLength', 'maxLength', ' characters')}"
    return kind + _interval(schema)


def _size(schema: Mapping[str, Any], low: str, high: str, unit: str) -> str:
    return f" ({schema.get(low, 0)} to {schema[high]}{unit})" if high in schema else ""


def _interval(schema: Mapping[str, Any]) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    if low is None:
        return ""
    if schema["maximum"] == 2**63 - 1:
        return " of 64 bits"
    if schema["maximum"] == 2**31 - 1:
        return f" from {low}"
    above = "above " if "exclusiveMinimum" in schema else ""
    return f", {above}{low:g} to {schema['maximum']:g}"


def limit_rows() -> Sequence[Row]:
    """Value and answer of every bound that a client can meet; what is bounded precedes them as prose."""
    gateway, connection = GatewayConfig(), ConnectionLimits()
    return [
        (f"{gateway.max_body_bytes >> 20} MiB", "413 `body_too_large`"),
        (f"{gateway.max_all_bodies_bytes >> 20} MiB", "503"),
        (f"{gateway.body_timeout_s:g} s", "408"),
        (f"{gateway.max_header_bytes >> 10} KiB", "431"),
        (f"{gateway.max_json_depth} levels", "400 `json_too_deep`"),
        (f"{MAX_NODES} objects, arrays and keys, {MAX_VALUES} values", "400 `json_too_large`"),
        (f"{MAX_N}", "400 `invalid_value`"),
        (f"{gateway.max_choices}", "400"),
        (f"{MAX_STOPS} of {MAX_STOP_CHARS} characters", "400 `invalid_value`"),
        (f"{MAX_LOGIT_BIAS} entries", "400"),
        (f"{MAX_TOOLS}, together {MAX_TOOL_BYTES >> 10} KiB", "400, 413"),
        ("`--max-model-len`", "400 `context_length_exceeded`"),
        ("`--max-waiting`", "503"),
        ("`--max-waiting-tokens`", "503"),
        ("`--max-ttft`", "503"),
        ("the bound / tenants waiting", "429"),
        (f"{MAX_PENDING} prompts", "503"),
        (f"{MAX_SOURCE_BYTES >> 10} KiB", "413"),
        (f"{MAX_JOBS}", "503"),
        (f"{MAX_TENANT_JOBS}", "429"),
        (f"{MAX_OPEN}", "503"),
        (f"{gateway.stall_timeout_s:g} s", "aborted"),
        (f"{connection.head_s:g} s", "408"),
        (f"{connection.idle_s:g} s", "closed"),
        (f"open files less {RESERVED_FILES}", "503"),
    ]


def error_codes() -> set[str]:
    """Every ``code`` that an answer of the server can carry."""
    sources = [
        path.read_text(encoding="utf-8") for room in ("gateway", "engine") for path in (SOURCE / room).rglob("*.py")
    ]
    return {word for text in sources for word in re.findall(r'(?:code|TOO_LONG) ?= ?"(\w+)"', text)}
