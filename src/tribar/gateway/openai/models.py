"""``GET /v1/models`` and ``GET /v1/models/{id}``: a view of the catalog."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tribar.core.requests import ModelCard
from tribar.gateway.catalog import GatewayCatalog


class Models:
    """The two routes over one catalog."""

    def __init__(self, catalog: GatewayCatalog) -> None:
        self._catalog = catalog

    async def index(self, _request: Request) -> Response:
        """Every model that can be asked now."""
        models = [_model(card.name, card) for card in self._catalog.list()]
        return _json({"object": "list", "data": models})

    async def one(self, request: Request) -> Response:
        """One model. Raises ``NotFound`` naming what exists."""
        name = request.path_params["name"]
        return _json(_model(name, self._catalog.get(name).card()))


def _model(name: str, card: ModelCard) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": card.created_s,
        "owned_by": "tribar",
        "max_model_len": card.max_model_len,
    }


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
