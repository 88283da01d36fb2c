from dataclasses import replace
from pathlib import Path

import pytest

from tribar.core.errors import InvalidRequest
from tribar.core.requests import ModelCard
from tribar.engine.config import SchedulerConfig
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.engine.spec import EngineSpec
from tribar.runtime.runner import RunnerInfo
from tribar.runtime.runners import RunnerConfig

SPEC = EngineSpec(
    name="m",
    runner="fake",
    runner_config=RunnerConfig(model_path=Path("/models/é.gguf"), n_blocks=64, max_model_len=512),
    scheduler=SchedulerConfig(max_num_seqs=4, max_model_len=256, batching="dynamic", dynamic_delay_s=0.25),
    architecture="llama",
    has_chat_template=True,
    tool_format="hermes",
    reasoning_format="think",
    created_s=7,
    grace_s=1.5,
    vocabulary=Vocabulary((b"a", b"\xff", b"", b"<end>"), frozenset({3}), frozenset({3})),
)


def test_a_spec_survives_json() -> None:
    assert EngineSpec.from_json(SPEC.to_json()) == SPEC


@pytest.mark.parametrize(
    ("document", "where"),
    [
        (b"", "truncated"),
        (b"\xff", "not valid"),
        (b"[]", "object"),
        (b'{"name": "m"}', "runner"),
        (SPEC.to_json().replace(b'"n_blocks":64', b'"n_blocks":"64"'), r"\$\.runner_config\.n_blocks"),
        (SPEC.to_json().replace(b'"dynamic"', b'"sometimes"'), r"\$\.scheduler\.batching"),
        (SPEC.to_json().replace('"/models/é.gguf"'.encode(), b"5"), r"\$\.runner_config\.model_path"),
    ],
)
def test_a_broken_spec_says_what_and_where(document: bytes, where: str) -> None:
    with pytest.raises(InvalidRequest, match=where):
        EngineSpec.from_json(document)


def test_the_card_tells_the_tighter_of_the_limits() -> None:
    info = RunnerInfo(
        n_blocks=64, block_size=16, max_rows=8, vocab_size=300, max_model_len=512, capabilities=frozenset({"logprobs"})
    )
    assert SPEC.card(info) == ModelCard(
        name="m",
        architecture="llama",
        max_model_len=256,
        vocab_size=300,
        n_blocks=64,
        block_size=16,
        max_num_seqs=4,
        created_s=7,
        has_chat_template=True,
        capabilities=frozenset({"logprobs"}),
        tool_format="hermes",
        reasoning_format="think",
    )


def test_the_card_promises_no_more_than_the_pool_holds() -> None:
    """A client would else fill in a ``max_tokens`` that the engine cuts short."""
    info = RunnerInfo(n_blocks=5, block_size=16, max_rows=8, vocab_size=300, max_model_len=512)
    assert SPEC.card(info).max_model_len == 64


@pytest.mark.parametrize("capabilities", [set(), {"masks"}])
@pytest.mark.parametrize("vocabulary", [SPEC.vocabulary, Vocabulary(), Vocabulary((b"a",))])
def test_grammars_need_a_runner_with_masks_and_a_vocabulary_with_an_end(
    capabilities: set[str], vocabulary: Vocabulary
) -> None:
    info = RunnerInfo(
        n_blocks=64, block_size=16, max_rows=8, vocab_size=4, max_model_len=512, capabilities=frozenset(capabilities)
    )
    card = replace(SPEC, vocabulary=vocabulary).card(info)
    assert ("grammars" in card.capabilities) == bool(capabilities and vocabulary.end_ids)
