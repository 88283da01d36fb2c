import threading
import time

import pytest
from hypothesis import given, settings
from tests.unit.runtime.text.vocabularies import (
    PLAIN_TEXTS,
    SPECIAL,
    TYPED_TEXTS,
    byte_level_backend,
    gguf_text,
    sentencepiece_backend,
)

from tribar.core.errors import InvalidRequest

BYTE_LEVEL = gguf_text(byte_level_backend(), "smollm").tokenizer
SENTENCEPIECE = gguf_text(sentencepiece_backend()).tokenizer


@settings(deadline=None, max_examples=100)
@given(text=TYPED_TEXTS)
def test_typed_text_has_no_control_ids_and_round_trips(text: str) -> None:
    """BUG-046."""
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        ids = tokenizer.encode(text, add_special=False)
        assert tokenizer.special_ids.isdisjoint(ids)
        # SentencePiece cannot tell its own sign for a space from a space.
        expected = text if tokenizer is BYTE_LEVEL else text.replace("▁", " ")
        assert tokenizer.decode(ids) == expected


@settings(deadline=None, max_examples=100)
@given(text=TYPED_TEXTS)
def test_shielded_encoding_with_nothing_to_restore_is_control_encoding(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        assert tokenizer.encode_shielded(text, str) == tokenizer.encode_control(text)


@settings(deadline=None, max_examples=100)
@given(text=PLAIN_TEXTS)
def test_text_without_control_strings_reads_the_same_both_ways(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        assert tokenizer.encode(text, add_special=False) == tokenizer.encode_control(text)


def test_special_ids_and_texts() -> None:
    assert BYTE_LEVEL.special_texts == {text: i for i, text in enumerate(SPECIAL)}
    assert [BYTE_LEVEL.token_bytes[i].decode() for i in range(len(SPECIAL))] == SPECIAL
    assert BYTE_LEVEL.vocab_size == byte_level_backend().get_vocab_size(with_added_tokens=True)


def test_decode_keeps_special_tokens_on_request() -> None:
    ids = [1, *SENTENCEPIECE.encode("fox", add_special=False), 2]
    assert SENTENCEPIECE.decode(ids) == "fox"
    assert SENTENCEPIECE.decode(ids, skip_special=False) == "<s> fox</s>"


def test_a_continuation_keeps_its_space() -> None:
    ids = SENTENCEPIECE.encode("fox", add_special=False)
    assert SENTENCEPIECE.detokenizer().push(ids) == "fox"
    assert SENTENCEPIECE.detokenizer(continues=True).push(ids) == " fox"


@pytest.mark.parametrize("ids", [[-1], [0, 10**6], [BYTE_LEVEL.vocab_size]])
def test_ids_out_of_the_vocabulary_are_refused(ids: list[int]) -> None:
    with pytest.raises(InvalidRequest, match=str(ids[-1])):
        BYTE_LEVEL.decode(ids)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_lone_surrogates_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        BYTE_LEVEL.encode(text, add_special=True)
    with pytest.raises(InvalidRequest, match="surrogate"):
        BYTE_LEVEL.encode_control(text)


def test_threads_may_share_it() -> None:
    texts = [f"<|im_start|>user {i} fox <|im_end|>" for i in range(200)]
    expected = [(BYTE_LEVEL.encode(text, add_special=False), BYTE_LEVEL.encode_control(text)) for text in texts]
    wrong: list[str] = []

    def work() -> None:
        for text, both in zip(texts, expected, strict=True):
            if (BYTE_LEVEL.encode(text, add_special=False), BYTE_LEVEL.encode_control(text)) != both:
                wrong.append(text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    """BUG-086: the event loop shares the interpreter with the threads that encode."""
    text = "The quick brown fox " * 50_000
    worker = threading.Thread(target=BYTE_LEVEL.encode, args=(text,), kwargs={"add_special": True})
    worker.start()
    n_turns = 0
    while worker.is_alive():
        worker.join(0.001)
        n_turns += 1
    assert n_turns > 20


def test_many_control_strings_cost_linear_time() -> None:
    """BUG-046, BUG-086: thousands of typed control strings, each covered by thirty characters."""
    typed = "hello <|im_end|> " * 20_000
    covered_text, covered = BYTE_LEVEL.shield.cover(typed)
    start_s = time.process_time()
    ids = BYTE_LEVEL.encode_shielded("<|im_start|>" + covered_text + "<|im_end|>", covered.restore)
    assert time.process_time() - start_s < 5
    assert BYTE_LEVEL.special_ids.intersection(ids) == {ids[0], ids[-1]}
    assert BYTE_LEVEL.decode(ids) == typed


@settings(deadline=None, max_examples=100)
@given(text=TYPED_TEXTS)
def test_least_tokens_is_a_lower_bound(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text, add_special=False))
    assert BYTE_LEVEL.least_tokens("x" * 100_000) > 1000
