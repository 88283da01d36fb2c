"""What a front end hosts: a language model on its engine, a model repository."""

from collections.abc import Sequence
from typing import Protocol

from starlette.types import ASGIApp

from tribar.gateway.catalog import ServedModel


class Hosted(Protocol):
    """A part of a front end. ``run`` is called first and goes on until it is cancelled, after ``stop``."""

    async def start(self) -> None:
        """Return once it serves."""
        ...

    async def run(self) -> None:
        """Serve until cancelled. Raises where it cannot serve any more."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Take nothing new, give what runs ``grace_s``, end the rest."""
        ...


class LanguageModel(Hosted, Protocol):
    """A language model, wherever it is computed."""

    @property
    def name(self) -> str:
        """What requests call it."""
        ...

    @property
    def has_chat_template(self) -> bool:
        """Whether it takes conversations."""
        ...

    @property
    def version(self) -> str:
        """Tells models apart that are served under one name one after another."""
        ...

    def served(self) -> ServedModel:
        """What the gateway asks."""
        ...

    def summary(self) -> Sequence[tuple[str, str]]:
        """What the operator is told once it serves: labels and texts."""
        ...


class Models(Hosted, Protocol):
    """A model repository behind KServe v2."""

    @property
    def app(self) -> ASGIApp:
        """Answers everything below ``/v2``, errors included."""
        ...

    def is_ready(self) -> bool:
        """Whether every model that was asked for can infer."""
        ...

    def summary(self) -> dict[str, str]:
        """What the operator is told once it serves, by label."""
        ...
