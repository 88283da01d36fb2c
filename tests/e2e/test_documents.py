"""The ``curl`` commands and the routes of docs/serving.md, word for word (the port apart), against a scripted model."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from tests.documents.markdown import blocks, read, spans
from tests.e2e.server_process import serving, write_model

DOCUMENT = read("docs/serving.md")
CURLS = [block for block in blocks(DOCUMENT, "bash") if block.startswith("curl")]
ROUTES = [span.removeprefix("GET ") for span in spans(DOCUMENT) if span.startswith("GET /")]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zurich"}}\n</tool_call>'
    replies = [{"match": "in Zurich?", "steps": [call]}]
    model = write_model(tmp_path_factory.mktemp("model"), replies=replies)
    with serving(str(model), "--served-model-name", "smollm2", "--tool-call-parser", "hermes") as server:
        yield server.url


def answer_to(command: str, url: str) -> str:
    assert "http://127.0.0.1:8000" in command
    here = command.replace("http://127.0.0.1:8000", url)
    return subprocess.run(["bash", "-ec", here], capture_output=True, text=True, timeout=50, check=True).stdout


def the_one(route: str) -> str:
    """The command of docs/serving.md that asks ``route``."""
    (command,) = [command for command in CURLS if f"8000{route} " in command and "tools" not in command]
    return command


def test_a_whole_answer(url: str) -> None:
    answer = json.loads(answer_to(the_one("/v1/chat/completions"), url))
    assert answer["choices"][0]["message"]["content"].strip()


def test_a_streamed_answer(url: str) -> None:
    events = re.findall(r"^data: (.*)$", answer_to(the_one("/v1/completions"), url), flags=re.M)
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] > 0


def test_tokens(url: str) -> None:
    answer = json.loads(answer_to(the_one("/tokenize"), url))
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])


def test_a_stream_of_tgi(url: str) -> None:
    events = re.findall(r"^data:(.*)$", answer_to(the_one("/generate_stream"), url), flags=re.M)
    assert json.loads(events[-1])["details"]["generated_tokens"] == len(events)


def test_a_client_of_tgi(url: str) -> None:
    (program,) = [program for program in blocks(DOCUMENT, "python") if "huggingface_hub" in program]
    assert "http://127.0.0.1:8000" in program
    command = [sys.executable, "-c", program.replace("http://127.0.0.1:8000", url)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout
    whole, streamed = said.split("\n", 1)
    assert whole == streamed != ""


def test_a_call_of_a_tool(url: str) -> None:
    (command,) = [command for command in CURLS if "tools" in command]
    choice = json.loads(answer_to(command, url))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Zurich"}'}


def test_every_command_is_run() -> None:
    assert len(CURLS) == 5


@pytest.mark.parametrize("route", sorted(set(ROUTES) - {"/v1/cache/{id}"}))  # that one needs an answer that is kept
def test_a_route(route: str, url: str) -> None:
    with urllib.request.urlopen(url + route.replace("{name}", "smollm2")) as response:
        assert response.status == 200
