"""The catalog that closes."""

import pytest

from tribar.app.draining import DrainingCatalog
from tribar.core.errors import NotFound, Unavailable
from tribar.core.fake_generator import FakeGenerator
from tribar.gateway.catalog import ServedModel, StaticCatalog
from tribar.gateway.vocabulary import Vocabulary


def test_a_drained_catalog_is_not_ready_and_hands_out_nothing() -> None:
    generator = FakeGenerator(lambda _: ())
    catalog = DrainingCatalog(StaticCatalog({"m": ServedModel(generator, Vocabulary((b"a",)))}), retry_after_s=7)
    assert catalog.is_ready()
    assert catalog.get("m") is generator
    with pytest.raises(NotFound):
        catalog.get("other")
    catalog.drain()
    catalog.drain()
    assert not catalog.is_ready()
    assert [card.name for card in catalog.list()] == [generator.card().name]
    assert catalog.vocabulary("m").token(0) == b"a"
    with pytest.raises(Unavailable, match="shutting down") as refused:
        catalog.get("m")
    assert refused.value.retry_after_s == 7
