"""Every file in ``examples/`` runs as it stands, against a scripted model."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.server_process import serving, write_model

EXAMPLES = Path(__file__).parents[2] / "examples"
COVERED = {"offline_batch.py", "stream_async.py", "many_conversations.py"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with serving(str(model)) as server:
        yield server.url


def run(name: str, *arguments: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout.splitlines()


def test_offline_batch(model: Path) -> None:
    lines = run("offline_batch.py", str(model))
    assert len(lines) == 4
    assert lines[0] == "The capital of France is'The capi' (8 tokens, length)"


def test_stream_async(url: str) -> None:
    *lines, cost = run("stream_async.py", url)
    assert "Name three rivers" in "\n".join(lines)
    assert re.fullmatch(r"\[\d+ tokens in, \d+ out\]", cost)


def test_many_conversations(url: str) -> None:
    lines = run("many_conversations.py", url)
    assert len(lines) == 8
    for line in lines:
        turns = [tuple(map(int, turn)) for turn in re.findall(r"(\d+) of (\d+)", line)]
        assert len(turns) == 3
        (_, first), (cached, second), (cached_later, _) = turns
        assert cached >= first // 16 * 16 - 16
        assert cached_later >= second // 16 * 16 - 16


def test_every_example_is_covered() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == COVERED
