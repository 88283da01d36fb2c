import pytest
from tokenizers import pre_tokenizers

from tribar.runtime.text.token_bytes import BYTE_OF_CHARACTER, byte_level, byte_of_token, sentencepiece, words


def test_the_byte_level_alphabet_is_the_librarys() -> None:
    assert set(BYTE_OF_CHARACTER) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(BYTE_OF_CHARACTER.values()) == list(range(256))
    cutter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for text in ("a b\n\x00\xadé", "漢字🫠", "".join(map(chr, range(0x100, 0x250)))):
        spelled = "".join(piece for piece, _ in cutter.pre_tokenize_str(text))
        assert byte_level(spelled) == text.encode()


def test_byte_level_tokens_outside_the_alphabet_are_text() -> None:
    assert byte_level("a b") == b"a b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<0x0A>", b"\n"),
        ("<0xF0>", b"\xf0"),
        ("▁fox", b" fox"),
        ("▁▁", b"  "),
        ("<0xZZ>", b"<0xZZ>"),
        ("é", "é".encode()),
    ],
)
def test_sentencepiece_spelling(text: str, expected: bytes) -> None:
    assert sentencepiece(text) == expected


def test_byte_tokens() -> None:
    assert [byte_of_token(f"<0x{byte:02X}>") for byte in range(256)] == list(range(256))
    assert byte_of_token("x<0x0A>") is None


def test_word_spelling() -> None:
    assert b"".join(map(words, ["token", "##ise", "it"])) == b" tokenise it"
