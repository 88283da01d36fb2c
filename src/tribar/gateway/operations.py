"""Routes for operators: health, metrics and the front page."""

from collections.abc import Callable

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tribar.core.ports import ModelCatalog
from tribar.gateway.catalog import require_ready

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Operations:
    """Health and metrics of one front end. ``metrics_text`` renders the Prometheus text format."""

    def __init__(self, catalog: ModelCatalog, metrics_text: Callable[[], bytes]) -> None:
        self._catalog = catalog
        self._metrics_text = metrics_text

    async def live(self, _request: Request) -> Response:
        """200 as long as the event loop turns."""
        return Response(b'{"status":"live"}', media_type="application/json")

    async def ready(self, _request: Request) -> Response:
        """200 when every model that was asked for can serve. Raises ``Unavailable``."""
        require_ready(self._catalog)
        return Response(b'{"status":"ready"}', media_type="application/json")

    async def metrics(self, _request: Request) -> Response:
        """What Prometheus scrapes."""
        return Response(self._metrics_text(), headers={"content-type": _METRICS_TYPE})

    async def root(self, _request: Request) -> Response:
        """What is where."""
        places = {
            "name": "tribar",
            "models": [card.name for card in self._catalog.list()],
            "api": "/v1",
            "openapi": "/openapi.json",
            "health": "/health/ready",
            "metrics": "/metrics",
        }
        return Response(orjson.dumps(places, option=orjson.OPT_INDENT_2), media_type="application/json")
