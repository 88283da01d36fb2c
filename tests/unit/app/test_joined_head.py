"""What an answer's writes become on the line."""

import asyncio
from typing import cast

from tribar.app.joined_head import JoinedHead


class Line:
    """A transport that remembers its writes."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False
        self.limits: list[int | None] = []

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        assert not self.is_closed
        self.limits.append(high)

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True


def joined(*writes: bytes) -> tuple[Line, JoinedHead]:
    line = Line()
    answer = JoinedHead(cast("asyncio.Transport", line))
    for data in writes:
        answer.write(data)
    return line, answer


def test_head_and_first_piece_are_one_write() -> None:
    line, _ = joined(b"head", b"first", b"second")
    assert line.writes == [b"headfirst", b"second"]


def test_only_an_answer_of_several_pieces_waits_for_the_kernel() -> None:
    line, answer = joined(b"head", b"first")
    answer.end()
    assert line.limits == []
    line, answer = joined(b"head", b"first", b"second", b"third")
    assert line.limits == [0]
    answer.end()
    assert line.limits == [0, None]
    line, answer = joined(b"head", b"first", b"second")
    answer.close()
    answer.end()
    assert line.limits == [0]


def test_an_empty_body_sends_the_head() -> None:
    line, answer = joined(b"head", b"")
    answer.flush()
    assert line.writes == [b"head"]


def test_permission_to_go_on_is_sent_at_once() -> None:
    line, answer = joined(b"HTTP/1.1 100 Continue\r\n\r\n", b"head")
    assert line.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    answer.write(b"body")
    assert line.writes[1:] == [b"headbody"]


def test_an_answer_that_ends_without_a_body() -> None:
    """HEAD, or an application that broke off: what it said is sent before the connection closes."""
    line, answer = joined(b"head")
    answer.close()
    assert (line.writes, line.is_closed) == ([b"head"], True)
    line, answer = joined(b"head")
    answer.flush()
    answer.flush()
    assert line.writes == [b"head"]
