"""``/v1/cache``: what a tenant may do with the answers that the semantic cache keeps for it."""

from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.gateway.body import BodyRoom
from tribar.gateway.body_reader import BodyReader
from tribar.gateway.config import GatewayConfig
from tribar.gateway.semantic_cache.administration import CacheAdministration
from tribar.gateway.semantic_cache.freshness import Scope as NamedScope
from tribar.gateway.semantic_cache.hits import HitId

MAX_NAME_CHARS = 256

SELECTORS = ("tag", "document", "id", "all")
"""The ways to say what is invalidated; a request has one of them."""


class CacheReport(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``id`` is that of a hit, from the header ``x-tribar-cache-id``; a ``wrong`` answer is not given again."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    verdict: Literal["right", "wrong"]


class CacheFeedback:
    """``POST /v1/cache/feedback``, an ASGI application. ``administration`` None: there is no cache."""

    def __init__(self, administration: CacheAdministration | None, config: GatewayConfig, room: BodyRoom) -> None:
        self._administration = administration
        self._reader = BodyReader(CacheReport, config, room)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        cache = _existing(self._administration)
        hit_id, report = await self._reader.read(scope, receive, lambda body: (_hit_id(body.id), body))
        await cache.report(_tenant(scope), hit_id, is_right=report.verdict == "right")
        answer = {"object": "cache.feedback", "id": report.id, "verdict": report.verdict}
        await _json(answer)(scope, receive, send)


class CacheRoutes:
    """The other routes. ``administration`` None: there is no cache, and each of them says so."""

    def __init__(self, administration: CacheAdministration | None) -> None:
        self._administration = administration

    async def one(self, request: Request) -> Response:
        """``GET /v1/cache/{id}``: the question and the answer behind a hit."""
        hit_id = request.path_params["id"]
        entry = await _existing(self._administration).entry(_tenant(request.scope), _hit_id(hit_id))
        return _json(
            {
                "object": "cache.entry",
                "id": hit_id,
                "model": entry.model,
                "question": entry.question,
                "answer": entry.answer.text,
                "created": int(entry.created_s),
            }
        )

    async def invalidate(self, request: Request) -> Response:
        """``DELETE /v1/cache?tag=``, ``?document=``, ``?id=`` or ``?all=true``: from now on, everybody misses."""
        cache, tenant = _existing(self._administration), _tenant(request.scope)
        selector, value = _selected(request)
        if selector == "id":
            await cache.drop(tenant, _hit_id(value))
        elif selector == "all":
            await cache.invalidate(tenant, NamedScope.TENANT)
        else:
            await cache.invalidate(tenant, NamedScope(selector), value)
        return _json({"object": "cache.invalidation", selector: True if selector == "all" else value})


def _existing(administration: CacheAdministration | None) -> CacheAdministration:
    if administration is None:
        raise Unsupported("the semantic cache is off: start the server with --semantic-cache on")
    return administration


def _selected(request: Request) -> tuple[str, str]:
    given = request.query_params.multi_items()
    if len(given) != 1 or given[0][0] not in SELECTORS:
        raise InvalidRequest(f"say what to invalidate by one of {', '.join(SELECTORS)}", param="tag")
    selector, value = given[0]
    if not 1 <= len(value) <= MAX_NAME_CHARS:
        raise InvalidRequest(f"{selector} must have from 1 to {MAX_NAME_CHARS} characters", param=selector)
    if selector == "all" and value != "true":
        raise InvalidRequest("all can only be true", param="all")
    return selector, value


def _hit_id(text: str) -> HitId:
    hit_id = HitId.parse(text)
    if hit_id is None:
        raise InvalidRequest("id is not one of the header x-tribar-cache-id", param="id", code="invalid_value")
    return hit_id


def _tenant(scope: Scope) -> str:
    tenant: str = scope["state"].get("tenant", "")
    return tenant


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
