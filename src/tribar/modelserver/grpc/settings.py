"""The trace and logging extensions: settings that clients read and change."""

from collections.abc import Mapping

from tritonclient.grpc import service_pb2 as pb

from tribar.core.errors import InvalidRequest
from tribar.modelserver.service import Service
from tribar.modelserver.settings import LogValue, ServerSettings, log_kind
from tribar.modelserver.tracing.trace_settings import TraceValue

_FIELDS: dict[type[LogValue], tuple[str, str]] = {
    bool: ("bool_param", "boolean"),
    int: ("uint32_param", "int32"),
    str: ("string_param", "string"),
}


class Settings:
    """Answers calls about settings. Raises as ``ServerSettings``."""

    def __init__(self, settings: ServerSettings, service: Service) -> None:
        self._settings = settings
        self._service = service

    def trace(self, request: pb.TraceSettingRequest) -> pb.TraceSettingResponse:
        """Change what is given, of the server or of a model, and tell all."""
        changes = {name: _trace_value(name, list(value.value)) for name, value in request.settings.items()}
        if request.model_name and not self._service.is_model_ready(request.model_name):
            raise InvalidRequest(f"Request for unknown model : {request.model_name}", param="model_name")
        settings = self._settings.update_trace(changes, request.model_name)
        value_of = pb.TraceSettingResponse.SettingValue
        return pb.TraceSettingResponse(
            settings={
                name: value_of(value=[value] if isinstance(value, str) else value) for name, value in settings.items()
            }
        )

    def log(self, request: pb.LogSettingsRequest) -> pb.LogSettingsResponse:
        """Change what is given, and tell all."""
        settings = self._settings.update_log(_log_changes(request.settings))
        value_of = pb.LogSettingsResponse.SettingValue
        return pb.LogSettingsResponse(
            settings={name: value_of(**{_FIELDS[type(value)][0]: value}) for name, value in settings.items()}
        )


def _trace_value(name: str, values: list[str]) -> TraceValue | None:
    """None, which clears the setting, for no value."""
    if name == "trace_level":
        return values or None
    if len(values) > 1:
        raise InvalidRequest(f"expect only 1 value for '{name}'", param=name)
    return values[0] if values else None


def _log_changes(given: Mapping[str, pb.LogSettingsRequest.SettingValue]) -> dict[str, LogValue]:
    changes: dict[str, LogValue] = {}
    for name, value in given.items():
        field, word = _FIELDS[log_kind(name)]
        if name != "log_file" and value.WhichOneof("parameter_choice") != field:
            raise InvalidRequest(f"expect {word} for '{name}'", param=name)
        changes[name] = getattr(value, field)
    return changes
