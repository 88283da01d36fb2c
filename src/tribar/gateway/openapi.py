"""The OpenAPI document, made from the very structs that read the requests."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response

from tribar.gateway.caller import DEADLINE_HEADER, MAX_DEADLINE_MS
from tribar.gateway.openai.chat import ChatBody
from tribar.gateway.openai.completions import CompletionBody

_ERROR = {"$ref": "#/components/schemas/Error"}
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
    bodies = {"/v1/chat/completions": ChatBody, "/v1/completions": CompletionBody}
    _, schemas = msgspec.json.schema_components(bodies.values(), ref_template="#/components/schemas/{name}")
    generating = {path: {"post": _post(path, body.__name__)} for path, body in bodies.items()}
    reading = {
        "/v1/models": {"get": _get("models", "The served models", {"application/json": {}})},
        "/v1/models/{name}": {
            "get": _get("model", "One served model", {"application/json": {}})
            | {"parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]}
        },
        "/health/live": {"get": _get("live", "The process answers", {"application/json": {}})},
        "/health/ready": {"get": _get("ready", "Every model can serve", {"application/json": {}})},
        "/metrics": {"get": _get("metrics", "Prometheus text format", {"text/plain": {}})},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "tribar", "version": version},
        "paths": generating | reading,
        "components": {
            "schemas": {**schemas, "Error": _ERROR_SCHEMA},
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
    answers: dict[str, Any] = {"application/json": {}, "text/event-stream": {}}
    operation = _get(path.removeprefix("/v1/").replace("/", "_"), "Generate", answers)
    return operation | {"parameters": [_DEADLINE], "requestBody": {"required": True, "content": content}}


def _get(name: str, summary: str, content: Mapping[str, Any]) -> dict[str, Any]:
    error = {"description": "Error", "content": {"application/json": {"schema": _ERROR}}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": content}, "4XX": error, "5XX": error},
    }
