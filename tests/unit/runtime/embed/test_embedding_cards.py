"""What tells one embedding model from another."""

from tests.embedding_models import universal_sentence_encoder

from tribar.runtime.embed.fake import FakeEmbeddingModel


def test_a_swapped_fake_of_the_same_dimension_has_another_id() -> None:
    """BUG-099"""
    assert FakeEmbeddingModel("e1").card().id != FakeEmbeddingModel("e2").card().id
    assert FakeEmbeddingModel("e1", dimension=64).card().id != FakeEmbeddingModel("e1", dimension=32).card().id
    assert FakeEmbeddingModel("e1").card() == FakeEmbeddingModel("e1").card()


def test_the_default_embedder_knows_chinese_and_english() -> None:
    vectors = universal_sentence_encoder().encode(["怎么退款？", "how do I get a refund", "the weather in Oslo"])
    assert vectors[0] @ vectors[1] > 0.7
    assert vectors[0] @ vectors[2] < 0.4
