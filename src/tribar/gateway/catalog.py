"""The served models, as the gateway sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tribar.core.errors import NotFound, Unavailable
from tribar.core.ports import ModelCatalog, TextGenerator
from tribar.core.requests import ModelCard


class GatewayCatalog(ModelCatalog, Protocol):
    """A ``ModelCatalog`` that also knows each model's vocabulary, which log-probabilities are written with."""

    def token_bytes(self, name: str) -> Sequence[bytes]:
        """Token id -> bytes; empty where an upstream keeps its vocabulary to itself. Raises ``NotFound``."""
        ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A generator and its id-to-bytes table."""

    generator: TextGenerator
    token_bytes: Sequence[bytes] = ()


class StaticCatalog:
    """A fixed set of models by name. Implements ``GatewayCatalog``; a model is ready when its card can be had."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = dict(models)

    def list(self) -> Sequence[ModelCard]:
        """Cards of the models that are ready now."""
        cards = (_card(model) for model in self._models.values())
        return [card for card in cards if card is not None]

    def get(self, name: str) -> TextGenerator:
        """The generator behind ``name``. Raises ``NotFound`` naming what exists."""
        return self._served(name).generator

    def token_bytes(self, name: str) -> Sequence[bytes]:
        """The vocabulary of ``name``. Raises ``NotFound``."""
        return self._served(name).token_bytes

    def is_ready(self) -> bool:
        """Whether every model can serve."""
        return all(_card(model) is not None for model in self._models.values())

    def _served(self, name: str) -> ServedModel:
        model = self._models.get(name)
        if model is None:
            known = ", ".join(sorted(self._models)) or "none"
            raise NotFound(
                f"the model {name[:100]!r} does not exist; served models: {known}",
                param="model",
                code="model_not_found",
            )
        return model


def _card(model: ServedModel) -> ModelCard | None:
    try:
        return model.generator.card()
    except Unavailable:
        return None
