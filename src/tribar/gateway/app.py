"""The gateway as one ASGI application."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from tribar.core.ports import Embedder, UsageLedger
from tribar.gateway.authentication import Authentication, TenantOf
from tribar.gateway.body import BodyRoom
from tribar.gateway.cache_routes import CacheFeedback, CacheRoutes
from tribar.gateway.catalog import GatewayCatalog
from tribar.gateway.config import GatewayConfig
from tribar.gateway.dispatch import Dispatch
from tribar.gateway.endpoint import Dialect, GenerateEndpoint
from tribar.gateway.limits.gate import LimitGate
from tribar.gateway.limits.headers import NAMES as RATE_LIMIT_HEADERS
from tribar.gateway.limits.layer import RateLimitHeaders
from tribar.gateway.middleware import Boundary, HeaderLimit, Observer, RequestId, log_access
from tribar.gateway.openai.dialects import CHAT, COMPLETIONS
from tribar.gateway.openai.embeddings import Embeddings
from tribar.gateway.openai.models import Models
from tribar.gateway.openai.tokenization import Detokenize, Tokenize
from tribar.gateway.openapi import openapi_route
from tribar.gateway.operations import Operations
from tribar.gateway.pulse import Pulse
from tribar.gateway.semantic_cache.administration import CacheAdministration
from tribar.gateway.semantic_cache.generator import CACHE_HEADERS
from tribar.gateway.tgi.dialects import COMPAT, GENERATE, GENERATE_STREAM
from tribar.gateway.tgi.info import TgiInfo
from tribar.gateway.tgi.problem import TgiErrors
from tribar.gateway.usage import UsageReport


def build_app(
    catalog: GatewayCatalog,
    *,
    config: GatewayConfig | None = None,
    metrics_text: Callable[[], bytes] = bytes,
    observe: Observer = log_access,
    rooms: Mapping[str, ASGIApp] = MappingProxyType({}),
    tenant_of: TenantOf | None = None,
    embedders: Mapping[str, Embedder] = MappingProxyType({}),
    cache: CacheAdministration | None = None,
    gate: LimitGate | None = None,
    usage: UsageLedger | None = None,
    version: str = "0",
) -> ASGIApp:
    """The application over ``catalog``.

    ``metrics_text`` renders ``/metrics``; ``observe`` is told of every finished request (once, on the event loop, and
    must not raise); ``rooms`` are other rooms on the same port and under the same middleware, by the first part of
    their paths ("/v2"), which write errors as KServe v2 has them; ``tenant_of`` knows the API keys, and None lets
    everybody in as the tenant ""; ``gate`` limits what they use, and None limits nothing; ``usage`` is told to
    tenants, and None to nobody; ``embedders`` are served by these names; ``cache`` administers the semantic cache.
    """
    config = config or GatewayConfig()
    routes = _routes(catalog, config, metrics_text, gate or LimitGate(), embedders, cache, usage, version)
    app: ASGIApp = Dispatch(routes, rooms)
    layers = [
        Middleware(RequestId),
        *_cors(config),
        Middleware(RateLimitHeaders),
        Middleware(Boundary, observe=observe, plain=frozenset(rooms)),
        Middleware(HeaderLimit, max_bytes=config.max_header_bytes),
        *([] if tenant_of is None else [Middleware(Authentication, tenant_of=tenant_of)]),
    ]
    for layer, arguments, keywords in reversed(layers):
        app = layer(app, *arguments, **keywords)
    return app


def _routes(
    catalog: GatewayCatalog,
    config: GatewayConfig,
    metrics_text: Callable[[], bytes],
    gate: LimitGate,
    embedders: Mapping[str, Embedder],
    cache: CacheAdministration | None,
    usage: UsageLedger | None,
    version: str,
) -> list[BaseRoute]:
    operations = Operations(catalog, metrics_text)
    models = Models(catalog)
    info = TgiInfo(catalog, version)
    room, pulse = BodyRoom(config.max_all_bodies_bytes), Pulse()
    cache_routes = CacheRoutes(cache)

    def generate(dialect: Dialect[Any]) -> GenerateEndpoint[Any]:
        return GenerateEndpoint(dialect, catalog, config, room, pulse, gate)

    posts: dict[str, ASGIApp] = {
        "/v1/chat/completions": generate(CHAT),
        "/v1/completions": generate(COMPLETIONS),
        "/v1/embeddings": Embeddings(embedders, config, room, gate),
        "/v1/cache/feedback": CacheFeedback(cache, config, room),
        "/tokenize": Tokenize(catalog, config, room),
        "/detokenize": Detokenize(catalog, config, room),
        "/generate": TgiErrors(generate(GENERATE)),
        "/generate_stream": TgiErrors(generate(GENERATE_STREAM)),
        "/": TgiErrors(generate(COMPAT)),
    }
    return [
        *(Route(path, endpoint, methods=["POST"], name=path) for path, endpoint in posts.items()),
        Route("/v1/models", models.index),
        Route("/v1/usage", UsageReport(usage).answer),
        Route("/v1/models/{name:path}", models.one),
        Route("/v1/cache", cache_routes.invalidate, methods=["DELETE"]),
        Route("/v1/cache/{id}", cache_routes.one),
        Route("/info", info.info),
        Route("/health", info.health),
        Route("/health/live", operations.live),
        Route("/health/ready", operations.ready),
        Route("/metrics", operations.metrics),
        Route("/openapi.json", openapi_route(version)),
        Route("/", operations.root),
    ]


def _cors(config: GatewayConfig) -> list[Middleware]:
    if not config.cors_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After", *RATE_LIMIT_HEADERS, *CACHE_HEADERS],
        )
    ]
