"""An answer cut into pieces of any length, parsed, and put together again."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from tribar.gateway.openai.reading.pieces import (
    AnswerParser,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Piece,
    Reasoning,
)


def fold(pieces: Iterable[Piece]) -> list[Any]:
    """Neighbouring texts joined; calls as (name, arguments, is whole)."""
    items: list[Any] = []
    for piece in pieces:
        match piece:
            case CallStart(index, call_id, name):
                assert index == sum(isinstance(item, tuple) for item in items)
                assert call_id.startswith("call_")
                assert len(call_id) == 29
                items.append((name, "", False))
            case CallArguments(_, text):
                assert text
                items[-1] = (items[-1][0], items[-1][1] + text, False)
            case CallEnd():
                items[-1] = (*items[-1][:2], True)
            case Content(text) | Reasoning(text):
                label = f"{type(piece).__name__}: "
                if items and isinstance(items[-1], str) and items[-1].startswith(label):
                    items[-1] += text
                else:
                    items.append(label + text)
    return items


def parse(parser: AnswerParser, chunks: Sequence[str]) -> list[Any]:
    """What ``chunks`` say together."""
    return fold([piece for chunk in chunks for piece in parser.push(chunk)] + parser.finish())


def cuts(text: str) -> st.SearchStrategy[list[str]]:
    """``text`` in pieces, some of them empty."""
    places = st.lists(st.integers(0, len(text)), max_size=len(text))
    return places.map(lambda found: [text[a:b] for a, b in _neighbours([0, *sorted(found), len(text)])])


def _neighbours(places: list[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(places))
