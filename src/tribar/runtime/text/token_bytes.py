"""Token texts to raw bytes: what each id adds to the output, as bytes rather than as text."""

import re
from enum import Enum

WORD_BOUNDARY = "▁"
"""U+2581, with which SentencePiece writes a space."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(Enum):
    """How a vocabulary writes bytes and spaces in its token texts."""

    BYTE_LEVEL = "byte level"
    SENTENCEPIECE = "sentencepiece"
    WORDS = "words"


def _byte_of_character() -> dict[str, int]:
    """The byte-level alphabet of GPT-2: printable Latin-1 stands for itself, the rest for U+0100 and up in order.

    Source: openai/gpt-2, ``encoder.py``, ``bytes_to_unicode``.
    """
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in itself]
    table = {chr(byte): byte for byte in itself}
    table.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return table


BYTE_OF_CHARACTER = _byte_of_character()


def byte_level(text: str) -> bytes:
    """Bytes of a byte-level token; one with a character outside the alphabet (an added token) is plain text."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in text])
    except KeyError:
        return text.encode()


def byte_of_token(text: str) -> int | None:
    """The byte that a byte token such as ``<0x0A>`` stands for; None for any other token."""
    match = _BYTE_TOKEN.fullmatch(text)
    return int(match[1], 16) if match else None


def sentencepiece(text: str) -> bytes:
    """Bytes of a SentencePiece token: byte tokens are their byte, word boundaries are spaces."""
    byte = byte_of_token(text)
    return text.replace(WORD_BOUNDARY, " ").encode() if byte is None else bytes([byte])


def words(text: str) -> bytes:
    """Bytes of a WordPiece or word-level token: a new word starts with a space, ``##`` continues one."""
    return text[2:].encode() if text.startswith("##") else b" " + text.encode()


DECODERS = {
    Spelling.BYTE_LEVEL: byte_level,
    Spelling.SENTENCEPIECE: sentencepiece,
    Spelling.WORDS: words,
}
