"""The tables of a settings file that make a pool of engines::

[[upstream]]
name = "gpu-a"
url = "http://10.0.0.5:8000"
model = "qwen3-8b"                     # its name there
dialect = "vllm"

[[route]]                              # a model for callers; without one, upstreams of equal models belong together
name = "chat"
upstreams = ["gpu-a", "gpu-b"]
fallbacks = ["small"]

[alias]
"gpt-4o" = "chat"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tribar.app.files import read_text
from tribar.app.option import option
from tribar.app.option_kinds import Choice, Integer, Number, Switch, Text, Texts
from tribar.core.errors import InvalidRequest
from tribar.gateway.router import ModelRoute
from tribar.gateway.upstream.openai.dialects import DIALECTS

TABLES = ("upstream", "route", "alias")
MAX_UPSTREAMS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTable:
    """One ``[[upstream]]``."""

    name: str = option("", Text("NAME"), "What it is called in headers, metrics and logs.")
    kind: str = option("openai", Choice(("openai", "kserve", "engine")), "Its protocol; engine: this server's own.")
    url: str = option(
        "", Text("URL"), "http(s)://host:port of an OpenAI-compatible server, host:port of KServe's gRPC."
    )
    model: str = option("", Text("NAME"), "The model's name there.")
    dialect: str = option(
        "openai", Choice(tuple(DIALECTS)), "Which server it is: what it takes beyond OpenAI's fields."
    )
    weight: float = option(1.0, Number(0.01, 1000), "Its share of the work, relative to the others.")
    max_outstanding: int = option(256, Integer(1, 65536), "Most requests at a time; more wait, or go elsewhere.")
    api_key_env: str = option("", Text("VARIABLE"), "Environment variable with the key that it is asked with.")
    api_key_file: str = option("", Text("FILE"), "File with that key.")
    max_model_len: int | None = option(None, Integer(2, 1 << 24), "Its context; by default what it tells.")
    has_chat_template: bool = option(True, Switch(), "Whether it takes conversations.", key="chat")
    n_preopened: int = option(2, Integer(0, 256), "Connections that are opened at start.", key="preopened")
    connect_timeout_s: float = option(5.0, Number(0.01, 600), "Seconds to connect.", key="connect_timeout")
    first_token_timeout_s: float = option(
        120.0, Number(0.01, 86400), "Seconds to its first token.", key="first_token_timeout"
    )
    idle_timeout_s: float = option(60.0, Number(0.01, 86400), "Seconds between its tokens.", key="idle_timeout")

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"upstream {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """One ``[[route]]``."""

    name: str = option("", Text("NAME"), "The model's name for callers.")
    upstreams: tuple[str, ...] = option((), Texts("NAMES"), "The upstreams that serve it.")
    fallbacks: tuple[str, ...] = option((), Texts("NAMES"), "Models that stand in where none of them can, in order.")
    smaller: str | None = option(None, Text("NAME"), "A model that answers under pressure where that is allowed.")
    smaller_for: tuple[str, ...] = option((), Texts("TENANTS"), "Tenants for which it always is; * is all.")


@dataclass(frozen=True, slots=True)
class PoolTables:
    """What the file says. ``path`` is the file, for reading it again."""

    upstreams: tuple[UpstreamTable, ...] = ()
    routes: tuple[RouteTable, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None

    @property
    def has_engine(self) -> bool:
        """Whether the server's own engine is an upstream."""
        return any(upstream.kind == "engine" for upstream in self.upstreams)


T = TypeVar("T", UpstreamTable, RouteTable)


def take_pool_tables(document: dict[str, Any], path: Path) -> PoolTables:
    """Take the pool's tables out of ``document``. Raises ``InvalidRequest`` naming the table and the key."""
    upstreams, routes, aliases = (document.pop(name, None) for name in TABLES)
    tables = PoolTables(
        _read_all(upstreams, UpstreamTable, f"{path}: [[upstream]]"),
        _read_all(routes, RouteTable, f"{path}: [[route]]"),
        _read_aliases(aliases, f"{path}: [alias]"),
        path,
    )
    if not tables.upstreams and (tables.routes or tables.aliases):
        raise InvalidRequest(f"{path}: [[route]] and [alias] need an [[upstream]]", param="upstream")
    if len(tables.upstreams) > MAX_UPSTREAMS:
        raise InvalidRequest(f"{path}: more than {MAX_UPSTREAMS} upstreams", param="upstream")
    for upstream in tables.upstreams:
        _check(upstream, path)
    return tables


def model_routes(tables: PoolTables) -> dict[str, ModelRoute]:
    """The models by name. Raises ``InvalidRequest`` naming a table that leads nowhere, or two to the same place.

    Upstreams that no route names are the route of their model.
    """
    known = {upstream.name: upstream for upstream in tables.upstreams}
    routed = {name for route in tables.routes for name in route.upstreams}
    groups: dict[str, list[str]] = {}
    for upstream in tables.upstreams:
        if upstream.name not in routed:
            groups.setdefault(upstream.model, []).append(upstream.name)
    routes = {model: ModelRoute(tuple(names)) for model, names in groups.items()}
    for route in tables.routes:
        where = f"[[route]] {route.name!r}"
        if route.name in routes:
            names = ", ".join(routes[route.name].upstreams)
            raise InvalidRequest(f"{where} has the name of the model of {names}: add them to it", param="route")
        if not route.upstreams:
            raise InvalidRequest(f"{where} has no upstreams", param="route")
        for name in route.upstreams:
            _require(name, known, f"{where}: upstreams")
        routes[route.name] = ModelRoute(route.upstreams, route.fallbacks, route.smaller, frozenset(route.smaller_for))
    for model, one in routes.items():
        for name in (*one.fallbacks, *(() if one.smaller is None else (one.smaller,))):
            _require(name, routes, f"[[route]] {model!r}: fallbacks and smaller")
    for alias, model in tables.aliases.items():
        _require(model, routes, f"[alias] {alias!r}")
        if alias in routes:
            raise InvalidRequest(f"[alias] {alias!r} is the name of a model", param="alias")
    return routes


def api_key(table: UpstreamTable, environ: Mapping[str, str]) -> str:
    """The key that the upstream is asked with; empty for none. Raises ``InvalidRequest``, which never quotes it."""
    if table.api_key_env:
        found = environ.get(table.api_key_env, "").strip()
        where = f"{table.place}: the environment variable {table.api_key_env}"
    elif table.api_key_file:
        found = read_text(Path(table.api_key_file), "api_key_file").strip()
        where = f"{table.place}: {table.api_key_file}"
    else:
        return ""
    if not found or not found.isascii() or not found.isprintable():
        raise InvalidRequest(f"{where} does not hold one line with a key", param="upstream")
    return found


def _read_all(value: object, cls: type[T], where: str) -> tuple[T, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidRequest(f"{where} must be tables in double brackets", param=where)
    tables = tuple(_read(one, cls, f"{where} {i}") for i, one in enumerate(value, 1))
    names: set[str] = set()
    for table in tables:
        if table.name in names:
            raise InvalidRequest(f"{where}: two have the name {table.name!r}", param="name")
        names.add(table.name)
    return tables


def _read(value: Mapping[str, Any], cls: type[T], where: str) -> T:
    keys = {item.metadata["key"] or item.name: item for item in fields(cls)}
    values = {}
    for key, given in value.items():
        if key not in keys:
            raise InvalidRequest(f"{where}: unknown key {key}; known: {', '.join(keys)}", param=key)
        try:
            values[keys[key].name] = keys[key].metadata["kind"].check(given)
        except ValueError as error:
            raise InvalidRequest(f"{where}: {key}: {error}", param=key) from error
    if not values.get("name"):
        raise InvalidRequest(f"{where} needs a name", param="name")
    return cls(**values)


def _read_aliases(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(model, str) for model in value.values()):
        raise InvalidRequest(f'{where} must be a table of lines such as "alias" = "model"', param="alias")
    return dict(value)


def _check(table: UpstreamTable, path: Path) -> None:
    where = f"{path}: {table.place}"
    if table.kind == "engine":
        if table.url:
            raise InvalidRequest(f"{where} is this server's own engine, which has no url", param="url")
        return
    if not table.model or not table.url:
        raise InvalidRequest(f"{where} needs url and model", param="url")
    if table.api_key_env and table.api_key_file:
        raise InvalidRequest(f"{where}: api_key_env and api_key_file exclude each other", param="api_key_env")
    url = urlsplit(table.url if "://" in table.url else f"//{table.url}")
    if "@" in url.netloc or url.query:
        raise InvalidRequest(f"{where}: keys belong into api_key_env or api_key_file, not into the url", param="url")
    schemes = {"http", "https"} if table.kind == "openai" else {"", "grpc", "grpcs"}
    if url.scheme not in schemes or not url.hostname:
        shown = "http://host:port" if table.kind == "openai" else "host:port"
        raise InvalidRequest(f"{where}: url must be {shown}", param="url")


def _require(name: str, known: Mapping[str, object] | Sequence[str], where: str) -> None:
    if name not in known:
        raise InvalidRequest(f"{where}: {name!r} is not known; there are {', '.join(known) or 'none'}", param="route")
