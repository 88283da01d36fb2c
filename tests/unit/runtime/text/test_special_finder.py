"""Against the library, which finds special tokens by encoding the whole text."""

import random
import time

import tokenizers
from tests.unit.runtime.text.vocabularies import byte_level_backend
from tokenizers import AddedToken

from tribar.runtime.text.special_finder import SpecialFinder

TEXTS = ["<a>", "<a><b>", "<b>", "ab", "a", "<ab", "b>"]
PIECES = ["<", "a", ">", "b", " ", "\n", "<a>", "<b>", "_", "é", "\u3000", "\x1c"]


def test_it_finds_what_the_library_finds() -> None:
    """BUG-046: overlapping tokens, and tokens that own the white space beside them."""
    model, pre_tokenizer = byte_level_backend().model, byte_level_backend().pre_tokenizer
    n_found = 0
    for seed in range(300):
        rng = random.Random(seed)
        added = [
            AddedToken(text, special=True, normalized=False, lstrip=rng.random() < 0.4, rstrip=rng.random() < 0.4)
            for text in rng.sample(TEXTS, 3)
        ]
        backend = tokenizers.Tokenizer(model)
        backend.pre_tokenizer = pre_tokenizer
        backend.add_special_tokens(added)
        texts = {backend.token_to_id(token.content): token.content for token in added}
        finder = SpecialFinder(texts.values(), backend.get_added_tokens_decoder())
        for _ in range(30):
            text = "".join(rng.choices(PIECES, k=rng.randint(0, 14)))
            encoding = backend.encode(text, add_special_tokens=False)
            found = list(finder.find(text))
            assert found == [
                (texts[i], begin, end)
                for i, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True)
                if i in texts
            ], (text, added)
            n_found += len(found)
    assert n_found > 5000


def test_white_space_costs_linear_time() -> None:
    strips = AddedToken("<a>", special=True, normalized=False, lstrip=True, rstrip=True)
    finder = SpecialFinder(["<a>"], {0: strips})
    start_s = time.process_time()
    assert sum(1 for _ in finder.find((" " * 100 + "<a>") * 20_000)) == 20_000
    assert time.process_time() - start_s < 5


def test_a_vocabulary_without_special_tokens() -> None:
    assert list(SpecialFinder([], {}).find("<a>")) == []
