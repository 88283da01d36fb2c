"""``huggingface_hub.InferenceClient``, unmodified, against a server with a scripted model."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import ValidationError
from tests.e2e.server_process import Server, serving, write_model

PROMPT = "a fish, please"
SAID = "A fish: 🐟."
"""What the script answers to it, one token per byte after the first words."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(str(write_model(tmp_path_factory.mktemp("model")))) as server:
        assert server.port
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    return InferenceClient(server.url, timeout=30)


def get(server: Server, path: str) -> bytes:
    with urllib.request.urlopen(server.url + path) as response:
        assert response.status == 200
        return bytes(response.read())


def post(server: Server, path: str, body: object) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(asked) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_text_alone(client: Any) -> None:
    assert client.text_generation(PROMPT) == SAID
    assert client.text_generation(PROMPT, return_full_text=True) == PROMPT + SAID
    assert client.text_generation(PROMPT, max_new_tokens=3) == SAID[:3]


def test_details(client: Any) -> None:
    answer = client.text_generation(PROMPT, details=True, decoder_input_details=True, top_n_tokens=2)
    details = answer.details
    assert answer.generated_text == SAID
    assert (details.finish_reason, details.seed) == ("eos_token", None)
    assert details.generated_tokens == len(details.tokens) == len(SAID.encode()) + 1
    assert [token.special for token in details.tokens] == [False] * len(SAID.encode()) + [True]
    assert "".join(token.text for token in details.tokens if not token.special) == SAID
    assert "".join(token.text for token in details.prefill) == PROMPT
    assert [token.logprob is None for token in details.prefill] == [True] + [False] * (len(PROMPT) - 1)
    assert [len(tokens) for tokens in details.top_tokens] == [2] * len(details.tokens)
    assert all(token.logprob <= 0 for token in details.tokens)


def test_streams(client: Any, server: Server) -> None:
    """BUG-001, and the last event has the whole text and the details."""
    assert "".join(client.text_generation(PROMPT, stream=True)).startswith(SAID)
    events = list(client.text_generation(PROMPT, stream=True, details=True))
    assert [event.index for event in events] == list(range(1, len(events) + 1))
    assert "".join(event.token.text for event in events if not event.token.special) == SAID
    assert [event.generated_text for event in events] == [None] * (len(events) - 1) + [SAID]
    details = events[-1].details
    assert (details.finish_reason, details.generated_tokens, details.input_length) == ("eos_token", len(events), 14)
    assert not any("\ufffd" in event.token.text for event in events)

    async def again() -> list[Any]:
        async with AsyncInferenceClient(server.url, timeout=30) as other:
            stream = await other.text_generation(PROMPT, stream=True, details=True)
            return [event async for event in stream]

    assert asyncio.run(again()) == events


@pytest.mark.parametrize("is_streamed", [False, True])
def test_how_an_answer_ends(client: Any, is_streamed: bool) -> None:
    def ended(**parameters: Any) -> tuple[str, str]:
        answer = client.text_generation(PROMPT, stream=is_streamed, details=True, **parameters)
        last = list(answer)[-1] if is_streamed else answer
        return last.generated_text, last.details.finish_reason

    assert ended() == (SAID, "eos_token")
    assert ended(max_new_tokens=2) == ("A ", "length")
    assert ended(stop=["sh", "zzz"]) == ("A fish", "stop_sequence")


def test_a_drawn_answer_tells_its_seed(client: Any) -> None:
    drawn = client.text_generation(PROMPT, do_sample=True, temperature=0.9, top_k=5, top_p=0.9, details=True)
    assert isinstance(drawn.details.seed, int)
    given = client.text_generation(PROMPT, do_sample=True, seed=11, details=True)
    assert given.details.seed == 11


def test_the_rest_of_the_parameters(client: Any) -> None:
    neutral = {"best_of": 1, "typical_p": 1.0, "watermark": False, "adapter_id": None, "grammar": None}
    shaped = {"repetition_penalty": 1.2, "frequency_penalty": 0.5, "truncate": 14}
    assert client.text_generation(PROMPT, **neutral, **shaped) == SAID


def test_errors(client: Any, server: Server) -> None:
    with pytest.raises(ValidationError, match="watermark"):
        client.text_generation(PROMPT, watermark=True)
    with pytest.raises(ValidationError, match="inputs"):
        client.text_generation("")
    with pytest.raises(ValidationError, match="context"):
        client.text_generation("x" * 5000)
    for path in ("/generate", "/generate_stream", "/"):
        status, body = post(server, path, {"inputs": "x", "parameters": {"nonsense": 1}})
        assert status == 422
        assert body == {"error": "unknown field 'parameters.nonsense'", "error_type": "validation"}


def test_routes(server: Server) -> None:
    asked = {"inputs": PROMPT}
    assert post(server, "/generate", asked) == (200, {"generated_text": SAID})
    assert post(server, "/", asked) == (200, [{"generated_text": SAID}])
    assert get(server, "/health") == b""
    info = json.loads(get(server, "/info"))
    assert (info["model_id"], info["max_total_tokens"]) == ("tiny", 4096)
    assert "openapi" in json.loads(get(server, "/"))
    schemas = json.loads(get(server, "/openapi.json"))
    assert {"/generate", "/generate_stream", "/", "/info", "/health", "/tokenize", "/detokenize"} <= set(
        schemas["paths"]
    )
    assert "get" in schemas["paths"]["/"]
    assert "max_new_tokens" in schemas["components"]["schemas"]["GenerateParameters"]["properties"]
