"""The log's queue: nobody waits for its reader, what has no room is counted, nothing is lost at the end."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, NamedTuple

import pytest

from tribar.telemetry import line_writer
from tribar.telemetry.line_writer import LineHandler

PIPE_BYTES = 64 * 2**10


class Pipe(NamedTuple):
    reader: IO[bytes]
    writer: IO[str]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "w") as writer:
        yield Pipe(reader, writer)


def record(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("tribar.test", logging.INFO, "", 0, text, arguments, None)


TOLD = re.compile(r"(\d+) log lines were dropped")


def n_told(lines: list[str]) -> int:
    return sum(int(told[1]) for line in lines if (told := TOLD.match(line)))


def read_lines(reader: IO[bytes], n_lines: int) -> list[str]:
    return [reader.readline().decode().rstrip("\n") for _ in range(n_lines)]


def test_lines_come_in_order_and_a_flush_waits_for_them(pipe: Pipe) -> None:
    handler = LineHandler(pipe.writer)
    for i in range(100):
        handler.emit(record("line %d", i))
    handler.flush()
    os.set_blocking(pipe.reader.fileno(), False)
    assert pipe.reader.read().decode() == "".join(f"line {i}\n" for i in range(100))
    handler.close()


def test_a_stalled_reader_holds_up_nobody_and_learns_what_it_missed(pipe: Pipe) -> None:
    text = "x" * 1023
    max_lines = 256
    handler = LineHandler(pipe.writer, max_waiting_chars=max_lines * 1024)
    n_lines = 0
    while not handler.n_dropped:  # nobody reads: the pipe fills, then the queue, and no call waits
        handler.emit(record(text))
        n_lines += 1
    n_lines -= 1
    assert n_lines <= PIPE_BYTES // 1024 + max_lines
    for _ in range(9):
        handler.emit(record(text))
    lines = read_lines(pipe.reader, n_lines)
    while n_told(lines) < 10:  # no further line has to come for that
        lines += read_lines(pipe.reader, 1)
    assert n_told(lines) == 10
    assert [line for line in lines if not TOLD.match(line)] == [text] * n_lines
    handler.flush()
    handler.emit(record("the last"))
    assert read_lines(pipe.reader, 1) == ["the last"]
    handler.close()


def test_a_line_longer_than_the_queue_is_told_of(pipe: Pipe) -> None:
    handler = LineHandler(pipe.writer, max_waiting_chars=1024)
    handler.emit(record("x" * 1024))
    assert n_told(read_lines(pipe.reader, 1)) == 1
    handler.close()
    assert handler.n_dropped == 0


def test_a_pipe_that_does_not_block_gets_everything(pipe: Pipe) -> None:
    """A shell's job control or another process may have set the shared descriptor so."""
    os.set_blocking(pipe.writer.fileno(), False)
    handler = LineHandler(pipe.writer)
    lines = [f"{i:01023}" for i in range(2 * PIPE_BYTES // 1024)]
    for line in lines:
        handler.emit(record(line))
    assert read_lines(pipe.reader, len(lines)) == lines
    handler.close()


def test_a_closed_log_is_no_error_of_those_who_log(pipe: Pipe) -> None:
    handler = LineHandler(pipe.writer)
    pipe.reader.close()
    handler.emit(record("to nobody"))
    handler.flush()
    handler.emit(record("to nobody"))
    handler.close()
    assert handler.n_dropped == 2


def test_a_record_that_cannot_be_formatted_is_dropped(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler = LineHandler(pipe.writer)
    handler.emit(record("%d", "no number"))
    handler.emit(record("end"))
    assert read_lines(pipe.reader, 1) == ["end"]
    handler.close()


def test_closing_gives_up_on_a_stalled_reader(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "FLUSH_S", 0.05)
    handler = LineHandler(pipe.writer)
    handler.emit(record("x" * 2 * PIPE_BYTES))
    handler.close()
    handler.emit(record("after the end"))
    assert handler.n_dropped == 1
    assert pipe.reader.read(PIPE_BYTES) == b"x" * PIPE_BYTES  # lets the thread end


SCRIPT = """
import logging, sys
from tribar.telemetry import line_writer
from tribar.telemetry.logs import configure_logging
line_writer.FLUSH_S = {flush_s}
configure_logging("human", stream=sys.stderr)
for i in range({n_lines}):
    logging.getLogger("tribar").info("line %d of a process that ends", i)
print("done")
"""


def test_the_end_of_the_process_writes_what_is_queued() -> None:
    script = SCRIPT.format(n_lines=1000, flush_s=2.0)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stderr.count("\n") == 1000
    assert ended.stderr.splitlines()[-1].endswith("line 999 of a process that ends")


def test_a_process_ends_well_though_nobody_reads_its_log(pipe: Pipe) -> None:
    script = SCRIPT.format(n_lines=10_000, flush_s=0.05)
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=pipe.writer, check=True)
    assert ended.stdout == b"done\n"
