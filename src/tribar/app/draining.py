"""A catalog that can be told to close: nothing new begins, what runs goes on."""

from collections.abc import Sequence

from tribar.core.errors import Unavailable
from tribar.core.ports import TextGenerator
from tribar.core.requests import ModelCard
from tribar.gateway.catalog import GatewayCatalog
from tribar.gateway.vocabulary import Vocabulary


class DrainingCatalog:
    """Passes everything on to ``catalog`` until ``drain``; then it is not ready and hands out no generator.

    Implements ``GatewayCatalog``. ``retry_after_s`` is what refused clients are told: by then another server, or this
    one restarted, should answer.
    """

    def __init__(self, catalog: GatewayCatalog, *, retry_after_s: float = 5.0) -> None:
        self._catalog = catalog
        self._retry_after_s = retry_after_s
        self._is_draining = False

    def drain(self) -> None:
        """Close. Idempotent; there is no way back."""
        self._is_draining = True

    def list(self) -> Sequence[ModelCard]:
        """See ``ModelCatalog``."""
        return self._catalog.list()

    def get(self, name: str) -> TextGenerator:
        """See ``ModelCatalog``. Raises ``Unavailable`` once draining."""
        if self._is_draining:
            raise Unavailable("the server is shutting down", retry_after_s=self._retry_after_s)
        return self._catalog.get(name)

    def vocabulary(self, name: str) -> Vocabulary:
        """See ``GatewayCatalog``."""
        return self._catalog.vocabulary(name)

    def is_ready(self) -> bool:
        """See ``ModelCatalog``: never while draining."""
        return not self._is_draining and self._catalog.is_ready()
