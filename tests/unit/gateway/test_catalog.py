import pytest

from tribar.core.errors import NotFound, Unavailable
from tribar.core.fake_generator import BYTE_TOKENS, FAKE_CARD, FakeGenerator, speak
from tribar.core.requests import ModelCard
from tribar.gateway.catalog import ServedModel, StaticCatalog


class Loading(FakeGenerator):
    def card(self) -> ModelCard:
        raise Unavailable("loading")


def test_served_models() -> None:
    fake = FakeGenerator(speak())
    catalog = StaticCatalog({"b": ServedModel(fake, BYTE_TOKENS), "a": ServedModel(fake)})
    assert catalog.get("b") is fake
    assert catalog.token_bytes("b") is BYTE_TOKENS
    assert list(catalog.token_bytes("a")) == []
    assert list(catalog.list()) == [FAKE_CARD, FAKE_CARD]
    assert catalog.is_ready()
    with pytest.raises(NotFound, match=r"'x+' does not exist; served models: a, b$") as caught:
        catalog.get("x" * 10_000)
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")
    assert len(caught.value.message) < 300


def test_a_loading_model_is_not_listed_and_not_ready() -> None:
    catalog = StaticCatalog({"a": ServedModel(Loading(speak())), "b": ServedModel(FakeGenerator(speak()))})
    assert list(catalog.list()) == [FAKE_CARD]
    assert not catalog.is_ready()
    assert isinstance(catalog.get("a"), Loading)
