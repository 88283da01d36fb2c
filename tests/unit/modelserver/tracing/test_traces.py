"""Sampling, settings and files of traces."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.modelserver.tracing import Traces, trace_file, traces
from tribar.modelserver.tracing.trace_file import TraceFile

ON: dict[str, Any] = {"trace_level": ["TIMESTAMPS"]}


def read(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_bytes())
    assert isinstance(found, list)
    return found


def took(made: Traces, model: str, n_requests: int) -> list[int]:
    """Which of so many requests were taken."""
    return [index for index in range(n_requests) if made.takes(model)]


@pytest.fixture
def made(tmp_path: Path) -> Traces:
    return Traces(tmp_path / "trace.json")


def test_everything_is_off_at_first(made: Traces) -> None:
    assert not made.is_on
    assert took(made, "m", 2000) == []


def test_one_request_in_so_many_until_the_count_is_reached(made: Traces) -> None:
    made.update({**ON, "trace_rate": "3", "trace_count": "2"})
    assert made.is_on
    assert took(made, "m", 12) == [2, 5]
    assert made.settings()["trace_count"] == "0"
    made.update({"trace_count": "1"})
    assert took(made, "m", 12) == [2]
    made.update({"trace_count": None})
    assert made.settings()["trace_count"] == "-1"
    assert len(took(made, "m", 12)) == 4


def test_models_have_settings_of_their_own(made: Traces) -> None:
    made.update({**ON, "trace_rate": "2"}, "a")
    assert made.is_on
    assert (took(made, "a", 4), took(made, "b", 4)) == ([1, 3], [])
    made.update({**ON, "trace_rate": "1", "trace_count": "3"})
    made.update({"trace_level": ["OFF"]}, "c")
    assert [len(took(made, name, 2)) for name in "bacd"] == [2, 1, 0, 0]  # those without a count share the server's
    assert made.settings("a")["trace_rate"] == "2"
    made.update({"trace_level": None, "trace_rate": None}, "a")
    assert made.settings("a") == made.settings()


def test_a_rate_of_zero_traces_nothing(made: Traces) -> None:
    made.update({**ON, "trace_rate": "0"})
    assert not made.is_on


@pytest.mark.parametrize(
    ("changes", "model", "text"),
    [
        ({"trace_level": ["TENSORS"]}, "", "trace level TENSORS: tensors are not traced"),
        ({"trace_level": ["TIMESTAMPS", "TENSORS"]}, "", "trace level TENSORS"),
        ({"trace_mode": "opentelemetry"}, "", "trace_mode is 'triton', got 'opentelemetry'"),
        ({"trace_file": "/tmp/x"}, "", "trace file location can not be updated"),
        ({"log_frequency": "5"}, "m", "log_frequency is the server's"),
    ],
)
def test_what_is_not_done_is_refused_by_its_name(made: Traces, changes: dict[str, Any], model: str, text: str) -> None:
    before = made.settings(model)
    with pytest.raises(Unsupported, match=text):
        made.update({"trace_rate": "5"} | changes, model)
    assert made.settings(model) == before


@pytest.mark.parametrize(
    "changes",
    [{"trace_rate": "-1"}, {"trace_rate": "x"}, {"trace_count": "-2"}, {"trace_level": ["NOPE"]}, {"nope": "1"}],
)
def test_values_that_cannot_be_are_refused(made: Traces, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(changes))):
        made.update(changes)


def test_without_a_file_there_are_no_traces() -> None:
    made = Traces()
    with pytest.raises(
        Unsupported, match="TIMESTAMPS: there is no file for traces, start the server with --trace-file"
    ):
        made.update(ON)
    made.update({"trace_level": ["OFF"], "trace_rate": "5"})
    assert made.settings()["trace_rate"] == "5"


async def test_the_layout_of_the_file(made: Traces, tmp_path: Path) -> None:
    made.update(ON)
    made.add("m", "3", 'a "request"', [("REQUEST_START", 5), ("REQUEST_END", 9)])
    made.add("m", "3", "", [("REQUEST_START", 6)])
    await made.close()
    assert read(tmp_path / "trace.json") == [
        {"id": 1, "model_name": "m", "model_version": 3, "request_id": 'a "request"'},
        {"id": 1, "timestamps": [{"name": "REQUEST_START", "ns": 5}, {"name": "REQUEST_END", "ns": 9}]},
        {"id": 2, "model_name": "m", "model_version": 3},
        {"id": 2, "timestamps": [{"name": "REQUEST_START", "ns": 6}]},
    ]
    assert not made.is_on


def test_a_file_is_whole_after_every_write(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("of an earlier run")
    file = TraceFile(path)
    for end in range(1, 4):
        file.write([b"%d" % end], 0)
        assert json.loads(path.read_bytes()) == list(range(1, end + 1))


def test_so_many_traces_in_each_file(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "t")
    file.write([b"%d" % index for index in range(5)], 2)
    file.write([b"5"], 2)
    file.write([b"6"], 0)
    file.write([b"7", b"8"], 3)
    found = {path.name: json.loads(path.read_bytes()) for path in sorted(tmp_path.iterdir())}
    assert found == {"t": [6], "t.0": [0, 1], "t.1": [2, 3], "t.2": [4, 5, 7], "t.3": [8]}


async def test_files_are_bounded(made: Traces, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made._file = TraceFile(tmp_path / "trace.json", max_bytes=300)
    made.update(ON)
    for _ in range(3):
        assert made.is_on
        made.add("m", "1", "", [("REQUEST_START", 1)])
        assert made._writing is not None
        await made._writing
    assert not made.is_on
    assert (tmp_path / "trace.json").stat().st_size <= 300
    assert [found["id"] for found in read(tmp_path / "trace.json")] == [1, 1, 2, 2]
    assert "tracing is off until its settings are changed" in caplog.text


async def test_a_disk_that_is_too_slow_loses_traces_and_says_so(
    made: Traces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(traces, "MAX_WAITING", 10)
    made.update(ON)
    with caplog.at_level(logging.WARNING):
        for _ in range(25):
            made.add("m", "1", "", [("REQUEST_START", 1)])
        assert len(made._waiting) == 10
        await made.close()
    assert len(read(tmp_path / "trace.json")) == 20
    assert "15 traces were lost" in caplog.text


def test_the_bound_of_the_files_is_what_the_documentation_says() -> None:
    assert trace_file.MAX_BYTES == 1 << 30
