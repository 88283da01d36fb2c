"""``GET /info`` and ``GET /health`` as text-generation-inference answers them."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tribar.core.errors import Unavailable
from tribar.core.ports import ModelCatalog
from tribar.gateway.catalog import named_or_only, require_ready
from tribar.gateway.openai.shared_fields import MAX_STOPS
from tribar.gateway.tgi.problem import unhealthy


class TgiInfo:
    """The two routes over one catalog."""

    def __init__(self, catalog: ModelCatalog, version: str) -> None:
        self._catalog = catalog
        self._version = version

    async def info(self, _request: Request) -> Response:
        """The served model and its limits. What we have no value for is null. Raises ``Unavailable``."""
        card = self._catalog.get(named_or_only(self._catalog, None)).card()
        answer = {
            "model_id": card.name,
            "model_sha": None,
            "model_pipeline_tag": "text-generation",
            "max_concurrent_requests": card.max_num_seqs,
            "max_best_of": 1,
            "max_stop_sequences": MAX_STOPS,
            "max_input_tokens": card.max_model_len - 1,
            "max_total_tokens": card.max_model_len,
            "validation_workers": 1,
            "max_client_batch_size": 1,
            "router": "tribar",
            "version": self._version,
            "sha": None,
            "docker_label": None,
        }
        return Response(orjson.dumps(answer), media_type="application/json")

    async def health(self, _request: Request) -> Response:
        """200 without a body when the model can serve."""
        try:
            require_ready(self._catalog)
        except Unavailable as error:
            return unhealthy(error)
        return Response(b"")
