import pytest

from tribar.core.errors import InvalidRequest, NotFound, Unavailable
from tribar.core.fake_generator import BYTE_TOKENS, FAKE_CARD, FakeGenerator, speak
from tribar.core.requests import ModelCard
from tribar.gateway.catalog import ServedModel, StaticCatalog, named_or_only
from tribar.gateway.vocabulary import Vocabulary


class Loading(FakeGenerator):
    def card(self) -> ModelCard:
        raise Unavailable("loading")


def test_served_models() -> None:
    fake = FakeGenerator(speak())
    vocabulary = Vocabulary(BYTE_TOKENS)
    catalog = StaticCatalog({"b": ServedModel(fake, vocabulary), "a": ServedModel(fake)})
    assert catalog.get("b") is fake
    assert catalog.vocabulary("b") is vocabulary
    assert list(catalog.vocabulary("a").token_bytes) == []
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


def test_a_request_without_a_model_means_the_only_one() -> None:
    fake, loading = ServedModel(FakeGenerator(speak())), ServedModel(Loading(speak()))
    assert named_or_only(StaticCatalog({"fake": fake}), None) == "fake"
    assert named_or_only(StaticCatalog({}), "named") == "named"
    with pytest.raises(InvalidRequest, match="several models"):
        named_or_only(StaticCatalog({"a": fake, "b": fake}), None)
    with pytest.raises(Unavailable):
        named_or_only(StaticCatalog({"a": loading}), None)
