"""An answer as it is kept, and how it is played again."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tribar.core.requests import Delta, Finish, FinishReason, Timing, Usage
from tribar.gateway.semantic_cache.verdict import Features

PIECE_TOKENS = 16
"""Tokens of one piece of a replayed answer: enough pieces for a reader to see it grow, too few to cost time."""

PROMPT_TAIL = 64
"""Token ids kept of the prompt's end. They tell whether it opens the model's thinking."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Text with its tokens, of which an upstream may tell nothing."""

    text: str
    token_ids: tuple[int, ...]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """A complete answer. Token counts are those of the request that generated it."""

    pieces: tuple[Piece, ...]
    stop: str | int | None
    end: int | None
    prompt_tokens: int
    completion_tokens: int
    prompt_tail: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """About what it takes."""
        return sum(len(piece.text.encode()) + 4 * len(piece.token_ids) for piece in self.pieces)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(piece.text for piece in self.pieces)

    def replay(self) -> Iterator[Delta]:
        """The answer as a generator gave it, in larger pieces; all of its prompt counts as cached."""
        for piece in self.pieces:
            yield Delta(piece.text, piece.token_ids)
        usage = Usage(self.prompt_tokens, self.completion_tokens, cached_tokens=self.prompt_tokens)
        yield Delta(finish=Finish(FinishReason.STOP, usage, Timing(), stop=self.stop, end=self.end))


class Meaning(msgspec.Struct, frozen=True, array_like=True):
    """What the question is compared by. ``partition`` is the semantic one, ``vector`` float16."""

    partition: str
    analyst: str
    features: Features
    vector: bytes


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A question and its answer. ``marks`` are those of ``Freshness``; ``created_s`` is a time of the calendar."""

    tenant: str
    model: str
    question: str
    answer: Answer
    created_s: float
    marks: dict[str, bytes]
    meaning: Meaning | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)


def pack(entry: Entry) -> bytes:
    """The entry as bytes."""
    return _encoder.encode(entry)


def unpack(data: bytes) -> Entry | None:
    """The entry again; None for bytes of another version of this program, which is as good as no entry."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


def answer_of(deltas: Sequence[Delta], finish: Finish, prompt_ids: Sequence[int] | None) -> Answer:
    """What is kept of a generation that ended with ``finish``."""
    usage = finish.usage
    tail = tuple((prompt_ids or ())[-PROMPT_TAIL:])
    pieces = tuple(_merged(deltas))
    return Answer(pieces, finish.stop, finish.end, usage.prompt_tokens, usage.completion_tokens, tail)


def _merged(deltas: Iterable[Delta]) -> Iterator[Piece]:
    texts: list[str] = []
    ids: list[int] = []
    for delta in deltas:
        texts.append(delta.text)
        ids.extend(delta.token_ids)
        if max(len(ids), len(texts)) >= PIECE_TOKENS:
            yield Piece("".join(texts), tuple(ids))
            texts, ids = [], []
    if ids or any(texts):
        yield Piece("".join(texts), tuple(ids))
