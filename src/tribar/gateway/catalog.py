"""The served models, as the gateway sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tribar.core.errors import InvalidRequest, NotFound, Unavailable
from tribar.core.ports import ModelCatalog, TextGenerator
from tribar.core.requests import ModelCard
from tribar.gateway.vocabulary import Vocabulary


class GatewayCatalog(ModelCatalog, Protocol):
    """A ``ModelCatalog`` that also knows each model's vocabulary, which answers about tokens are written with."""

    def vocabulary(self, name: str) -> Vocabulary:
        """The tokens of ``name``. Raises ``NotFound``."""
        ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A generator and its tokens."""

    generator: TextGenerator
    vocabulary: Vocabulary = Vocabulary()


class StaticCatalog:
    """A fixed set of models by name. Implements ``GatewayCatalog``; a model is ready when its card can be had."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = dict(models)

    def replace(self, models: Mapping[str, ServedModel]) -> None:
        """Serve ``models`` instead from now on; what runs goes on."""
        self._models = dict(models)

    def list(self) -> Sequence[ModelCard]:
        """Cards of the models that are ready now."""
        cards = (_card(model) for model in self._models.values())
        return [card for card in cards if card is not None]

    def get(self, name: str) -> TextGenerator:
        """The generator behind ``name``. Raises ``NotFound`` naming what exists."""
        return self._served(name).generator

    def vocabulary(self, name: str) -> Vocabulary:
        """The tokens of ``name``. Raises ``NotFound``."""
        return self._served(name).vocabulary

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


def named_or_only(catalog: ModelCatalog, name: str | None) -> str:
    """``name``, or without one the name of the only model that is served.

    Raises ``Unavailable`` while there is none, ``InvalidRequest`` where there are several.
    """
    if name is not None:
        return name
    names = [card.name for card in catalog.list()]
    if not names:
        raise _not_ready("no model is ready")
    if len(names) > 1:
        raise InvalidRequest(f"several models are served: name one of {', '.join(names)}", param="model")
    return names[0]


def require_ready(catalog: ModelCatalog) -> None:
    """Raise ``Unavailable`` unless every model that was asked for can serve."""
    if not catalog.is_ready():
        raise _not_ready("not every model is ready")


def _not_ready(message: str) -> Unavailable:
    return Unavailable(message, code="not_ready", retry_after_s=1)


def _card(model: ServedModel) -> ModelCard | None:
    try:
        return model.generator.card()
    except Unavailable:
        return None
