"""The contract of ``Embedder``, for every model off the loop (``OffLoopEmbedder``) and for ``OpenAiEmbedder``."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import pytest_asyncio
from tests.embedding_folders import write_folder
from tests.embedding_models import universal_sentence_encoder
from tests.embedding_servers import MAX_CHARACTERS, embeddings_server

from tribar.core.errors import InvalidRequest, Overloaded, TooLarge, Unavailable
from tribar.core.ports import Embedder
from tribar.gateway.upstream.embeddings import EmbeddingsConfig, OpenAiEmbedder
from tribar.runtime.embed.fake import FakeEmbeddingModel
from tribar.runtime.embed.off_loop import OffLoopEmbedder
from tribar.runtime.embed.onnx_folder import OnnxFolder

Factory = Callable[[AsyncExitStack, Path], Awaitable[Embedder]]
TEXTS = ("how do i get a refund", "where is my cat", "怎么退款？")


async def _remote(stack: AsyncExitStack, _: Path, encoding: str = "float") -> Embedder:
    url = await stack.enter_async_context(embeddings_server(encoding=encoding))
    return await OpenAiEmbedder.connect(EmbeddingsConfig(url, "remote", max_characters=MAX_CHARACTERS, max_waiting=8))


async def _base64(stack: AsyncExitStack, folder: Path) -> Embedder:
    return await _remote(stack, folder, "base64")


async def _fake(_: AsyncExitStack, __: Path) -> Embedder:
    return OffLoopEmbedder(FakeEmbeddingModel(), max_waiting=8)


async def _use(_: AsyncExitStack, __: Path) -> Embedder:
    return OffLoopEmbedder(universal_sentence_encoder(), max_waiting=8)


async def _folder(_: AsyncExitStack, folder: Path) -> Embedder:
    return OffLoopEmbedder(OnnxFolder(write_folder(folder)), max_waiting=8)


FACTORIES: dict[str, Factory] = {
    "fake": _fake, "use": _use, "onnx_folder": _folder, "openai_float": _remote, "openai_base64": _base64,
}  # fmt: skip


@pytest_asyncio.fixture(params=list(FACTORIES.values()), ids=list(FACTORIES))
async def embedder(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Embedder]:
    factory: Factory = request.param
    async with AsyncExitStack() as stack:
        made = await factory(stack, tmp_path)
        yield made
        await made.close()


async def test_rows_are_unit_vectors_in_the_order_of_the_texts(embedder: Embedder) -> None:
    vectors = await embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, embedder.card().dimension)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    backwards = await embedder.embed(TEXTS[::-1])
    np.testing.assert_allclose(backwards[::-1], vectors, atol=1e-5)


async def test_a_row_depends_on_its_own_text_alone(embedder: Embedder) -> None:
    together = await embedder.embed([*TEXTS, "a " * 6])
    for i, text in enumerate(TEXTS):
        np.testing.assert_allclose((await embedder.embed([text]))[0], together[i], atol=1e-5)


async def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert (await embedder.embed([])).shape == (0, embedder.card().dimension)


@pytest.mark.parametrize("empty", ["", "  \n"])
async def test_an_empty_text_is_refused_by_its_index(embedder: Embedder, empty: str) -> None:
    with pytest.raises(InvalidRequest, match="input 1") as raised:
        await embedder.embed(["cat", empty])
    assert raised.value.param == "input"


async def test_an_over_long_text_is_refused_or_cut_never_silently_either_way(embedder: Embedder) -> None:
    """BUG-110: the end of a text must not vanish without anybody having asked for it."""
    limit = embedder.card().max_tokens
    long = "cat " * (limit + 5)
    with pytest.raises(TooLarge, match=f"input 1 .*{limit}"):
        await embedder.embed(["cat", long])
    cut = await embedder.embed(["cat", long], truncate=True)
    longer = await embedder.embed([long + "money back " * 500], truncate=True)
    np.testing.assert_allclose(cut[1], longer[0], atol=1e-5)


async def test_an_enormous_text_costs_little(embedder: Embedder) -> None:
    start = perf_counter()
    with pytest.raises(TooLarge):
        await embedder.embed(["中" * 5_000_000])
    assert perf_counter() - start < 1.0


async def test_calls_that_wait_are_bounded(embedder: Embedder) -> None:
    results = await asyncio.gather(*(embedder.embed(["cat"]) for _ in range(12)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, Overloaded)]
    assert len(refused) == 4
    assert all(error.retry_after_s for error in refused)
    assert (await embedder.embed(["cat"])).shape[0] == 1


async def test_a_closed_embedder_says_so(embedder: Embedder) -> None:
    await embedder.close()
    await embedder.close()
    with pytest.raises(Unavailable):
        await embedder.embed(["cat"])


async def test_the_card_names_model_weights_and_dimension(embedder: Embedder) -> None:
    card = embedder.card()
    assert card.id == f"{card.name}@{card.fingerprint}/{card.dimension}"
    assert len(card.fingerprint) == 16
    assert embedder.card() == card


async def test_the_loop_stays_free_while_texts_are_embedded(embedder: Embedder) -> None:
    """BUG-086: embedding happens elsewhere; a task on the loop runs meanwhile."""
    turns = 0

    async def spin() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    spinner = asyncio.create_task(spin())
    await embedder.embed(["how do i get a refund"] * 100)
    spinner.cancel()
    assert turns, "had it been done on the loop, nobody else would have had a turn before it was over"
