"""The default judge of answers."""

import pytest
from tests.embedding_models import universal_sentence_encoder

from tribar.gateway.semantic_cache.answer_judge import SlotAnswerJudge
from tribar.runtime.embed.off_loop import OffLoopEmbedder

REFUND = "Open your order, choose 'Refund', and the money comes back within 5 days."


@pytest.mark.parametrize(
    ("question", "cached", "fresh", "is_same"),
    [
        ("how do I get a refund", REFUND, REFUND + " ", True),
        ("how do I get a refund", REFUND, "Go to the order, press refund; you get the money back in 5 days.", True),
        ("how do I get a refund", REFUND, "Open your order, choose 'Refund'; the money is back within 14 days.", False),
        ("how do I get a refund", REFUND, "Refunds are not possible; the money does not come back.", False),
        ("capital of France", "The capital of France is Paris.", "Paris", True),
        ("capital of France", "The capital of France is Paris.", "The capital of Italy is Rome.", False),
        ("怎么退款", "打开订单，点击退款，5天内到账。", "在订单里申请退款，五天内会到账。", True),
        ("怎么退款", "打开订单，点击退款，5天内到账。", "打开订单，点击退款，15天内到账。", False),
        ("how do I get a refund", REFUND, "Bananas are rich in potassium and grow in the tropics.", False),
        ("how do I get a refund", REFUND, "", False),
    ],
)  # fmt: skip
async def test_same_answers(question: str, cached: str, fresh: str, is_same: bool) -> None:
    embedder = OffLoopEmbedder(universal_sentence_encoder())
    judge = SlotAnswerJudge(embedder)
    assert await judge.is_same(question, cached, fresh) is is_same
    assert await judge.is_same(question, fresh, cached) is is_same
    await embedder.close()
