"""The model repository extension: index, load, unload."""

import asyncio
import base64
import binascii
from typing import Any

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.modelserver.http.body import BodyReader
from tribar.modelserver.http.exchange import Answer, Exchange, empty_answer, json_answer
from tribar.modelserver.http.fields import (
    Json,
    Object,
    as_bool,
    as_object,
    as_text,
    parse_optional_object,
    refuse_unknown,
)
from tribar.modelserver.http.problem import unreadable_json
from tribar.modelserver.repository.overrides import CONFIG, FILE_PREFIX
from tribar.modelserver.service import IndexEntry, LoadParameter, Service
from tribar.modelserver.slowness import SLOW_BYTES


class RepositoryEndpoints:
    """POST routes below ``/v2/repository``."""

    def __init__(self, service: Service, bodies: BodyReader) -> None:
        self._service = service
        self._bodies = bodies

    async def index(self, exchange: Exchange) -> Answer:
        """``/v2/repository/index``; ``{"ready": true}`` leaves out what is not ready."""
        content = await self._content(exchange, "ready")
        is_only_ready = as_bool(content.get("ready", False), "ready")
        entries = await self._service.index()
        return json_answer([_described(entry) for entry in entries if entry.state == "READY" or not is_only_ready])

    async def load(self, exchange: Exchange) -> Answer:
        """``/v2/repository/models/NAME/load``."""
        content = await self._content(exchange, "parameters")
        given = as_object(content.get("parameters", {}), "parameters")
        n_characters = sum([len(value) for value in given.values() if type(value) is str])
        if n_characters > SLOW_BYTES:
            parameters = await asyncio.to_thread(_load_parameters, given)
        else:
            parameters = _load_parameters(given)
        await self._service.load(exchange.model, parameters)
        return empty_answer()

    async def unload(self, exchange: Exchange) -> Answer:
        """``/v2/repository/models/NAME/unload``."""
        content = await self._content(exchange, "parameters")
        given = as_object(content.get("parameters", {}), "parameters")
        refuse_unknown(given, {"unload_dependents"}, "parameters")
        await self._service.unload(exchange.model, unload_dependents=given.get("unload_dependents") is True)
        return empty_answer()

    async def of_named_repository(self, exchange: Exchange) -> Answer:
        """``/v2/repository/REPOSITORY/models/NAME/...``. Raises ``Unsupported``."""
        raise Unsupported("'repository_name' specification is not supported")

    async def _content(self, exchange: Exchange, *known: str) -> Object:
        """The body, which may be absent."""
        body = await self._bodies.read(exchange)
        if len(body) > SLOW_BYTES:
            content = await asyncio.to_thread(parse_optional_object, body)
        else:
            content = parse_optional_object(body)
        refuse_unknown(content, frozenset(known), "the request")
        return content


def _load_parameters(given: Object) -> dict[str, LoadParameter]:
    return {name: _load_parameter(name, value) for name, value in given.items()}


def _load_parameter(name: str, value: Json) -> LoadParameter:
    if name == CONFIG:
        return as_text(value, name)
    if not name.startswith(FILE_PREFIX):
        raise unreadable_json(
            f"unrecognized load parameter '{name[:100]}': not '{CONFIG}' or '{FILE_PREFIX}VERSION/PATH'"
        )
    try:
        return base64.b64decode(as_text(value, name), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"load parameter '{name[:300]}' is not base64", param=name) from None


def _described(entry: IndexEntry) -> dict[str, Any]:
    """Without what is empty: of a model that was never loaded only the name."""
    fields = {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
    return {name: value for name, value in fields.items() if value}
