"""The embeddings endpoint of somebody else: whatever it answers becomes vectors or one error of the tree."""

import pytest
from tests.embedding_servers import embeddings_server

from tribar.core.errors import InvalidRequest, TooLarge, TribarError, Unavailable
from tribar.gateway.upstream.embeddings import EmbeddingsConfig, OpenAiEmbedder


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidRequest),
        (404, InvalidRequest),
        (413, TooLarge),
        *((status, Unavailable) for status in (401, 429, 500)),
    ],
)
async def test_a_status_becomes_an_error(status: int, error: type[TribarError]) -> None:
    async with embeddings_server(status=status, body="sorry") as url:
        with pytest.raises(error, match=f"{status}: sorry"):
            await OpenAiEmbedder.connect(EmbeddingsConfig(url, "m"))


@pytest.mark.parametrize(
    "body",
    [
        "<html>",
        '{"data": []}',
        '{"data": [{"index": 0, "embedding": []}]}',
        '{"data": [{"index": 0, "embedding": "%%%"}]}',
        '{"data": [{"index": 0, "embedding": "AAA="}]}',
        '{"data": [{"index": 0, "embedding": [1, null]}]}',
        '{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}',
    ],
)
async def test_nonsense_is_named_as_such(body: str) -> None:
    async with embeddings_server(body=body) as url:
        with pytest.raises(Unavailable, match="answered"):
            await OpenAiEmbedder.connect(EmbeddingsConfig(url, "m"))


async def test_nobody_there() -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        await OpenAiEmbedder.connect(EmbeddingsConfig("http://127.0.0.1:9/v1", "m", timeout_s=2))


async def test_many_texts_go_in_several_requests() -> None:
    async with embeddings_server() as url:
        embedder = await OpenAiEmbedder.connect(EmbeddingsConfig(url, "m"))
        texts = [f"text {i}" for i in range(600)]
        vectors = await embedder.embed(texts)
        assert vectors.shape == (600, 64)
        assert (vectors[599] == (await embedder.embed([texts[599]]))[0]).all()
        await embedder.close()


async def test_address_and_model_are_the_identity() -> None:
    """BUG-099: what a remote name stands for cannot be hashed, so its address and name are."""
    async with embeddings_server() as url, embeddings_server() as other_url:
        cards = []
        for base_url, model in ((url, "m"), (url, "n"), (other_url, "m")):
            embedder = await OpenAiEmbedder.connect(EmbeddingsConfig(base_url, model))
            cards.append(embedder.card().id)
            await embedder.close()
        assert len(set(cards)) == 3
