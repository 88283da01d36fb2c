import random

import pytest

from tribar.core.errors import Unavailable
from tribar.gateway.upstream.openai.events import EventReader


def read(*chunks: bytes) -> list[bytes]:
    reader = EventReader()
    events = [event for chunk in chunks for event in reader.push(chunk)]
    return events + reader.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_three_ways(end: bytes) -> None:
    assert read(b"data: a" + end + end + b"data:b" + end + end) == [b"a", b"b"]


def test_comments_other_fields_and_empty_events_are_passed_over() -> None:
    text = b": ping\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n\n\nevent: y\n\ndata\n\n"
    assert read(text) == [b"a"]


def test_several_data_lines_are_one_event() -> None:
    assert read(b"data: a\ndata:  b\n\n") == [b"a\n b"]


def test_a_last_event_without_its_line_ends_counts() -> None:
    assert read(b"data: a\n") == [b"a"]
    assert read(b"data: a\r") == [b"a"]
    assert read(b'data: {"error": 1}') == [b'{"error": 1}']
    assert read(b"data: a\n\n") == [b"a"]


@pytest.mark.parametrize("seed", range(20))
def test_however_it_is_cut(seed: int) -> None:
    draw = random.Random(seed)
    end = draw.choice([b"\n", b"\r\n", b"\r"])
    texts = [bytes(draw.choices(b"abc {}\xe4\xbd\xa0: ", k=draw.randint(1, 12))) for _ in range(30)]
    whole = b"\xef\xbb\xbf" + b"".join(b": c" + end + b"data: " + text + end + end for text in texts)
    cuts = sorted(draw.choices(range(len(whole)), k=draw.randint(0, 60)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert read(*chunks) == texts


def test_an_endless_event_is_refused() -> None:
    reader = EventReader(max_event_bytes=100)
    assert reader.push(b"data: " + b"x" * 90) == []
    with pytest.raises(Unavailable, match="more than 100 bytes"):
        reader.push(b"x" * 20)
    many = EventReader(max_event_bytes=100)
    assert many.push(4 * (b"data: " + b"x" * 20 + b"\n")) == []
    with pytest.raises(Unavailable, match="more than 100 bytes"):
        many.push(2 * (b"data: " + b"x" * 20 + b"\n"))
