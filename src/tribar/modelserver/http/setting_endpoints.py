"""The trace and logging extensions: settings are read with GET and changed with POST."""

from tribar.core.errors import InvalidRequest
from tribar.modelserver.http.body import BodyReader
from tribar.modelserver.http.exchange import Answer, Exchange, json_answer
from tribar.modelserver.http.fields import Json, Object, as_bool, as_list, as_text, as_unsigned, parse_json
from tribar.modelserver.service import Service
from tribar.modelserver.settings import LogValue, ServerSettings, log_kind
from tribar.modelserver.tracing.trace_settings import TraceValue


class SettingEndpoints:
    """``/v2/trace/setting``, ``/v2/models/NAME/trace/setting`` and ``/v2/logging``."""

    def __init__(self, service: Service, bodies: BodyReader, settings: ServerSettings) -> None:
        self._service = service
        self._bodies = bodies
        self._settings = settings

    async def trace(self, exchange: Exchange) -> Answer:
        """The trace settings of the server, or of the model in the path."""
        self._check_model(exchange.model)
        return json_answer(self._settings.trace(exchange.model))

    async def update_trace(self, exchange: Exchange) -> Answer:
        """Change some; null goes back to the server's setting, or the default."""
        self._check_model(exchange.model)
        content = await self._content(exchange)
        changes = {name: _trace_value(name, value) for name, value in content.items()}
        return json_answer(self._settings.update_trace(changes, exchange.model))

    async def log(self, exchange: Exchange) -> Answer:
        """The log settings."""
        return json_answer(self._settings.log())

    async def update_log(self, exchange: Exchange) -> Answer:
        """Change some."""
        content = await self._content(exchange)
        changes = {name: _log_value(name, value) for name, value in content.items()}
        return json_answer(self._settings.update_log(changes))

    def _check_model(self, name: str) -> None:
        if name and not self._service.is_model_ready(name):
            raise InvalidRequest(f"Request for unknown model : {name}", param="model_name")

    async def _content(self, exchange: Exchange) -> Object:
        body = await self._bodies.read(exchange)
        value = parse_json(body)
        return value if type(value) is dict else {}


def _trace_value(name: str, value: Json) -> TraceValue | None:
    if value is None:
        return None
    if name == "trace_level":
        return [as_text(level, name) for level in as_list(value, name)]
    return as_text(value, name) if name.startswith(("trace_", "log_")) else ""


def _log_value(name: str, value: Json) -> LogValue:
    kind = log_kind(name)
    if kind is bool:
        return as_bool(value, name)
    return as_unsigned(value, name) if kind is int else as_text(value, name)
