"""The OpenAPI document, made from the very structs that read the requests."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response

from tribar.gateway.answer_schemas import ANSWERS
from tribar.gateway.cache_routes import MAX_NAME_CHARS, SELECTORS, CacheReport
from tribar.gateway.caller import DEADLINE_HEADER, MAX_DEADLINE_MS
from tribar.gateway.openai.chat import ChatBody
from tribar.gateway.openai.completions import CompletionBody
from tribar.gateway.openai.embeddings import EmbeddingRequest
from tribar.gateway.openai.tokenization import DetokenizeRequest, TokenizeBody
from tribar.gateway.tgi.fields import CompatBody, GenerateBody, GenerateStreamBody

BODIES: dict[str, type[msgspec.Struct]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/embeddings": EmbeddingRequest,
    "/v1/cache/feedback": CacheReport,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeRequest,
    "/generate": GenerateBody,
    "/generate_stream": GenerateStreamBody,
    "/": CompatBody,
}
"""Route -> the struct that reads its body."""

_EVENTS = frozenset({"/v1/chat/completions", "/v1/completions", "/generate_stream", "/"})
"""Routes that can answer with a stream of events; one without an answer in ``ANSWERS`` always does."""

_TGI = frozenset({"/generate", "/generate_stream", "/"})
"""Routes whose errors have the shape of text-generation-inference."""

_TGI_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error", "error_type"],
    "properties": {"error": {"type": "string"}, "error_type": {"type": "string"}},
}
_SUMMARIES = {
    "/v1/embeddings": "Texts as vectors",
    "/v1/cache/feedback": "Tell whether an answer of the semantic cache was right",
    "/tokenize": "A text or a conversation as token ids",
    "/detokenize": "Token ids as text",
}
"""Routes that generate nothing, and so read no deadline."""

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

_DEADLINE = {
    "name": DEADLINE_HEADER,
    "in": "header",
    "description": "Milliseconds from the arrival of the request after which it is given up",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_DEADLINE_MS},
}


def openapi_document(version: str) -> dict[str, Any]:
    """The document as a plain dict; a caller may add the paths of other rooms."""
    _, schemas = msgspec.json.schema_components(BODIES.values(), ref_template="#/components/schemas/{name}")
    posting = {path: {"post": _post(path, body.__name__)} for path, body in BODIES.items()}
    reading: dict[str, dict[str, Any]] = {
        "/v1/models": {"get": _get("models", "The served models", _json("/v1/models"))},
        "/v1/models/{name}": {
            "get": _get("model", "One served model", _json("/v1/models/{name}"))
            | {"parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]}
        },
        "/v1/cache": {"delete": _get("cache_invalidate", "Give stored answers out no more", _json("/v1/cache"))}
        | {"parameters": [_query(name) for name in SELECTORS]},
        "/v1/cache/{id}": {
            "get": _get("cache_entry", "The question and the answer behind a hit", _json("/v1/cache/{id}"))
            | {"parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}
        },
        "/": {"get": _get("index", "What is where", {"application/json": {}})},
        "/info": {"get": _get("info", "The served model, for TGI's clients", {"application/json": {}})},
        "/health": {"get": _get("health", "The model can serve, for TGI's clients", {})},
        "/health/live": {"get": _get("live", "The process answers", _json("/health/live"))},
        "/health/ready": {"get": _get("ready", "Every model can serve", _json("/health/ready"))},
        "/metrics": {"get": _get("metrics", "Prometheus text format", {"text/plain": {}})},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "tribar", "version": version},
        "paths": reading | {path: reading.get(path, {}) | operation for path, operation in posting.items()},
        "components": {
            "schemas": schemas | dict(ANSWERS.values()) | {"Error": _ERROR_SCHEMA, "TgiError": _TGI_ERROR_SCHEMA},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def openapi_route(version: str) -> Any:  # noqa: ANN401  # a starlette endpoint
    """The endpoint that serves the document."""
    body = orjson.dumps(openapi_document(version))

    async def openapi(_request: Request) -> Response:
        return Response(body, media_type="application/json")

    return openapi


def _post(path: str, schema: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    answers = _json(path) if path in ANSWERS else {}
    if path in _EVENTS:
        answers["text/event-stream"] = {}
    name = path.removeprefix("/v1/").strip("/").replace("/", "_") or "compat"
    error = "TgiError" if path in _TGI else "Error"
    return _get(name, _SUMMARIES.get(path, "Generate"), answers, error) | {
        "parameters": [] if path in _SUMMARIES else [_DEADLINE],
        "requestBody": {"required": True, "content": content},
    }


def _query(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"enum": ["true"]} if name == "all" else {"type": "string", "maxLength": MAX_NAME_CHARS}
    return {"name": name, "in": "query", "description": "Exactly one of the four", "schema": schema}


def _json(path: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{ANSWERS[path][0]}"}}}


def _get(name: str, summary: str, content: Mapping[str, Any], error: str = "Error") -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{error}"}
    problem = {"description": "Error", "content": {"application/json": {"schema": schema}}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": content}, "4XX": problem, "5XX": problem},
    }
