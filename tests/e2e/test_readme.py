"""The README's examples run word for word (the port apart) against ``tribar serve`` with its default model."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.server import serving
from tests.e2e.server_process import serving as model_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.S)


def block(language: str, containing: str) -> str:
    found = [text for name, text in BLOCKS if name == language and containing in text]
    assert len(found) == 1, f"the README should have one {language} block with {containing!r}"
    return found[0]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


def at(url: str, text: str) -> str:
    assert "http://127.0.0.1:8000" in text
    return text.replace("http://127.0.0.1:8000", url)


@pytest.mark.timeout(180)
def test_the_curl_example(url: str) -> None:
    run = subprocess.run(["bash", "-ec", at(url, block("bash", "curl"))], capture_output=True, text=True, check=True)
    answer = json.loads(run.stdout)
    assert answer["choices"][0]["message"]["content"].strip()
    assert 1 <= answer["usage"]["completion_tokens"] <= 64


@pytest.mark.timeout(180)
def test_the_openai_example(url: str) -> None:
    code = at(url, block("python", "OpenAI("))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip()


@pytest.mark.timeout(180)
def test_the_python_example() -> None:
    code = block("python", "LLM()")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Paris" in run.stdout


@pytest.mark.parametrize("document", ["README.md", "docs/model-server.md"])
def test_the_examples_of_the_model_server(document: str) -> None:
    """Over gRPC in both, with curl where there is a command for it."""
    blocks = re.findall(r"```(?:python|bash)\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), flags=re.S)
    with model_server("--model-repository", str(ROOT / "examples/models"), "--grpc-port", "0") as server:
        grpc = server.wait_for_line(r"gRPC +(127\.0\.0\.1:\d+)")[1]
        (code,) = (block for block in blocks if "InferenceServerClient" in block)
        assert _run([sys.executable, "-c", code.replace("127.0.0.1:8001", grpc)]).strip() == "[[2. 2. 2. 2.]]"
        for command in (block for block in blocks if "/infer" in block):
            answer = json.loads(_run(["bash", "-ec", at(server.url, command)]))
            assert answer["outputs"][0]["data"] == [2, 3, 4, 5]


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_every_block_is_covered() -> None:
    covered = ("curl", "OpenAI(", "LLM()", "make serve", "make test", "InferenceServerClient", "--model-repository")
    uncovered = [text for _, text in BLOCKS if not any(word in text for word in covered)]
    assert not uncovered
