"""What is known of the server and its models: health, metadata, configuration, statistics."""

from typing import Any, Final

from tribar.modelserver import server_metadata
from tribar.modelserver.http.exchange import Answer, Exchange, Header, json_answer, probe_answer
from tribar.modelserver.http.problem import error_body
from tribar.modelserver.http.statistics import statistics_json
from tribar.modelserver.model_config.json_form import config_to_json
from tribar.modelserver.service import Service
from tribar.modelserver.signature import Signature, TensorSpec

_TEXT: Final[Header] = (b"content-type", b"text/plain")


class ModelEndpoints:
    """GET routes of the server and of models."""

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._version = version

    async def live(self, exchange: Exchange) -> Answer:
        """``/v2/health/live``."""
        return probe_answer("live", is_well=self._service.is_live())

    async def ready(self, exchange: Exchange) -> Answer:
        """``/v2/health/ready``."""
        return probe_answer("ready", is_well=self._service.is_ready())

    async def server(self, exchange: Exchange) -> Answer:
        """``/v2``."""
        return json_answer(
            {
                "name": server_metadata.NAME,
                "version": self._version,
                "extensions": server_metadata.EXTENSIONS,
            }
        )

    async def model_ready(self, exchange: Exchange) -> Answer:
        """``/v2/models/NAME/ready``."""
        if self._service.is_model_ready(exchange.model, exchange.version):
            return Answer(headers=(_TEXT,))  # its status says all
        return Answer(400, (error_body("Model version not ready"),))

    async def metadata(self, exchange: Exchange) -> Answer:
        """``/v2/models/NAME``."""
        signature = self._service.signature(exchange.model, exchange.version)
        return json_answer(
            {
                "name": signature.name,
                "versions": signature.versions,
                "platform": signature.platform,
                "inputs": [_described(signature, spec) for spec in signature.inputs.values()],
                "outputs": [_described(signature, spec) for spec in signature.outputs.values()],
            }
        )

    async def config(self, exchange: Exchange) -> Answer:
        """``/v2/models/NAME/config``."""
        return json_answer(config_to_json(self._service.config(exchange.model, exchange.version)))

    async def statistics(self, exchange: Exchange) -> Answer:
        """``/v2/models/stats`` and ``/v2/models/NAME/stats``."""
        found = self._service.statistics(exchange.model, exchange.version)
        return json_answer({"model_stats": [statistics_json(one) for one in found]})


def _described(signature: Signature, spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": signature.full_shape(spec)}
