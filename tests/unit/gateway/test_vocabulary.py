from tribar.gateway.vocabulary import Vocabulary

VOCABULARY = Vocabulary([b"<s>", b" Hi", b" \xf0\x9f", b"\x90\x9f"], frozenset({0}), strips_leading_space=True)


def test_text_of_ids() -> None:
    """Specials are shown, the tokenizer's own space at the start is not, padding ids have no text."""
    assert VOCABULARY.text([1, 1]) == "Hi Hi"
    assert VOCABULARY.text([0, 1, 9]) == "<s> Hi"
    assert VOCABULARY.text([1, 2, 3]) == "Hi \U0001f41f"
    assert VOCABULARY.text([3]) == "\ufffd\ufffd"
    assert Vocabulary([b" a"]).text([0]) == " a"


def test_names_of_tokens() -> None:
    """BUG-015: half a character still has a name."""
    assert [VOCABULARY.name(i) for i in (0, 1, 2, 9)] == ["<s>", " Hi", "bytes:\\x20\\xf0\\x9f", ""]
