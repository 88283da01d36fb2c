"""The HTTP layer of a real server: headers, limits, methods, health."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from tests.process.gateway.served import Served, post, read_all, read_until, serve

from tribar.core.errors import Unavailable
from tribar.core.fake_generator import FakeGenerator, speak
from tribar.core.requests import GenerateRequest, ModelCard, Prepared
from tribar.gateway.config import GatewayConfig

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    config = GatewayConfig(max_body_bytes=100_000, body_timeout_s=0.3, cors_origins=("http://page.test",))
    with serve(config=config, fake=FakeGenerator(speak("a"))) as served:
        yield served


def exchange(served: Served, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to ``request``, which closes the connection."""
    with served.connect(request) as connection:
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines[1:]]
    assert len({name for name, _ in pairs}) == len(pairs), lines
    return int(lines[0].split()[1]), dict(pairs), body


def get(path: str, method: str = "GET", *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]).encode()


def test_stream_headers(served: Served) -> None:
    """BUG-018: nothing buffers or compresses the stream."""
    request = post(CHAT, json.dumps(BODY | {"stream": True}).encode(), "Accept-Encoding: gzip", "Connection: close")
    status, headers, body = exchange(served, request)
    assert status == 200
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in headers
    assert body.count(b"data: [DONE]") == 1
    assert body.count(b'"finish_reason":"stop"') == 1


class _Telling(FakeGenerator):
    """Tells how each answer was made."""

    async def prepare(self, request: GenerateRequest) -> Prepared:
        prepared = await super().prepare(request)
        return replace(prepared, headers=(("x-tribar-n", str(len(self.requests))), ("x-tribar-by", "a fake")))


@pytest.mark.parametrize("is_streamed", [False, True])
def test_what_the_generator_tells_of_an_answer(is_streamed: bool) -> None:
    """It goes out as headers, streamed and whole; of several prompts the first one's does."""
    with serve(fake=_Telling(speak("a"))) as telling:
        body = {"model": "fake", "prompt": ["x", "y"], "n": 2, "stream": is_streamed}
        request = post("/v1/completions", json.dumps(body).encode(), "Connection: close")
        status, headers, answer = exchange(telling, request)
    assert status == 200
    assert (headers["x-tribar-n"], headers["x-tribar-by"]) == ("1", "a fake")
    assert headers["content-type"].partition(";")[0] == ("text/event-stream" if is_streamed else "application/json")
    assert answer.count(b'"finish_reason":"stop"') == 4


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        (b"a", True),
        (b"x" * 128, True),
        (b"x" * 129, False),
        (b"x" * 20_000, False),
        ("💥".encode(), False),
        (b"", False),
    ],
)
def test_request_id(served: Served, sent: bytes, is_kept: bool) -> None:
    """BUG-016: sanitised, and echoed exactly once (``exchange`` refuses a header that comes twice)."""
    raw = get("/health/live")[:-2] + b"X-Request-Id: " + sent + b"\r\n\r\n"
    status, headers, _ = exchange(served, raw)
    assert status == 200
    assert (headers["x-request-id"] == sent.decode()) == is_kept
    assert len(headers["x-request-id"]) <= 128


async def test_equal_request_ids_in_flight(served: Served) -> None:
    """BUG-016: both finish, with ids of their own."""
    async with (
        aiohttp.ClientSession(served.url, headers={"X-Request-Id": "a"}) as session,
        session.post(CHAT, json=BODY) as one,
        session.post(CHAT, json=BODY) as two,
    ):
        assert one.headers["X-Request-Id"] == two.headers["X-Request-Id"] == "a"
        assert (await one.json())["id"] != (await two.json())["id"]


def assert_problem(body: bytes) -> dict[str, Any]:
    problem: dict[str, Any] = json.loads(body)
    assert set(problem) == {"error"}
    assert set(problem["error"]) == {"message", "type", "param", "code"}
    return problem["error"]  # type: ignore[no-any-return]


def test_announced_body_over_the_limit(served: Served) -> None:
    """BUG-084: refused by its announcement, before a byte of it is read."""
    request = post(CHAT, b"", "Connection: close").replace(b"Content-Length: 0", b"Content-Length: 100001")
    status, _, body = exchange(served, request)
    assert status == 413
    assert assert_problem(body)["code"] == "body_too_large"


def test_chunked_body_over_the_limit(served: Served) -> None:
    """BUG-084: no Content-Length; the answer comes while the body is still being sent."""
    head = post(CHAT, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    with served.connect(head + chunk * 11) as connection:
        answer = read_until(connection, b"body_too_large")
    assert b" 413 " in answer


def test_slow_body_is_cut_off(served: Served) -> None:
    """BUG-085: a body that does not arrive is 408 and the connection closes."""
    request = post(CHAT, b"{").replace(b"Content-Length: 1", b"Content-Length: 100")
    status, headers, body = exchange(served, request)
    assert status == 408
    assert headers["connection"] == "close"
    assert_problem(body)


def test_headers_over_the_limit(served: Served) -> None:
    """BUG-085: 431 in the usual shape."""
    many, tiny = (f"X-{i}: {'y' * 100}" for i in range(1000)), (f"{i}: y" for i in range(10_000))
    for headers in (many, tiny):
        status, _, body = exchange(served, get("/health/live", "GET", *headers))
        assert status == 431
        assert_problem(body)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "", "💥"]
)
def test_wrong_content_type(served: Served, content_type: str) -> None:
    """BUG-041: 415."""
    raw = post(CHAT, b"{}", "Connection: close").replace(b"application/json", content_type.encode())
    status, _, body = exchange(served, raw)
    assert status == 415
    assert_problem(body)


@pytest.mark.parametrize(("coding", "is_taken"), [("gzip", False), ("Identity", True), ("identity, br", False)])
def test_content_codings(served: Served, coding: str, is_taken: bool) -> None:
    """BUG-041: a compressed body is 415, not JSON that cannot be read."""
    request = post(CHAT, json.dumps(BODY).encode(), "Connection: close", f"Content-Encoding: {coding}")
    status, headers, body = exchange(served, request)
    assert status == (200 if is_taken else 415)
    if not is_taken:
        assert headers["accept-encoding"] == "identity"
        assert_problem(body)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_wrong_method(served: Served, method: str) -> None:
    """BUG-088: 405 with Allow; HEAD without a body."""
    status, headers, body = exchange(served, get(CHAT, method))
    assert (status, headers["allow"]) == (405, "POST")
    assert body == b"" if method == "HEAD" else "there is no route" in assert_problem(body)["message"]


def test_allow_names_the_methods_of_all_routes_of_a_path(served: Served) -> None:
    status, headers, _ = exchange(served, get("/", "PUT"))
    assert (status, headers["allow"]) == (405, "GET, HEAD, POST")


def test_unknown_route(served: Served) -> None:
    for path in ("/v1/nothing", "/v1/chat/completions/", "/%0d%0aX: y", "/" + "x" * 5000):
        status, _, body = exchange(served, get(path.replace(" ", "%20")))
        assert status == 404
        assert assert_problem(body)["type"] == "not_found_error"
    assert all(len(record.path) <= 200 and record.path.isprintable() for record in served.records)


def test_preflight(served: Served) -> None:
    """BUG-088: answered without credentials; another origin gets no permission."""
    asked = ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization"]
    status, headers, _ = exchange(served, get(CHAT, "OPTIONS", "Origin: http://page.test", *asked))
    assert status == 200
    assert headers["access-control-allow-origin"] == "http://page.test"
    assert "access-control-allow-credentials" not in headers
    status, headers, _ = exchange(served, get(CHAT, "OPTIONS", "Origin: http://evil.test", *asked))
    assert "access-control-allow-origin" not in headers


def test_errors_carry_cors_headers(served: Served) -> None:
    _, headers, _ = exchange(served, get("/v1/models/none", "GET", "Origin: http://page.test"))
    assert headers["access-control-allow-origin"] == "http://page.test"


def test_operators_routes(served: Served) -> None:
    assert exchange(served, get("/health/live"))[0] == 200
    assert exchange(served, get("/health/ready"))[0] == 200
    status, headers, body = exchange(served, get("/metrics"))
    assert (status, headers["content-type"], body) == (200, "text/plain; version=0.0.4; charset=utf-8", b"up 1\n")
    assert json.loads(exchange(served, get("/"))[2])["models"] == ["fake"]
    assert exchange(served, get("/health/live", "HEAD"))[2] == b""


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"n": 5}, "n"),
        ("/v1/completions", {"prompt": "a", "n": 5}, "n"),
        ("/v1/completions", {"prompt": ["a"] * 5}, "prompt"),
        ("/v1/completions", {"prompt": [[1]] * 3, "n": 2}, "prompt"),
        ("/v1/completions", {"prompt": ["", 1] * 3}, "prompt"),
    ],
)
def test_choices_are_bounded(path: str, fields: dict[str, Any], param: str) -> None:
    with serve(config=GatewayConfig(max_choices=4), fake=FakeGenerator(speak("a"))) as served:
        body = (BODY if path == CHAT else {"model": "fake"}) | fields
        status, _, answer = exchange(served, post(path, json.dumps(body).encode(), "Connection: close"))
        problem = assert_problem(answer)
        assert (status, problem["param"]) == (400, param)
        assert "exceed 4 choices" in problem["message"]
        fits = BODY | {"n": 4} if path == CHAT else {"model": "fake", "prompt": [1] * 9, "n": 4}
        assert exchange(served, post(path, json.dumps(fits).encode(), "Connection: close"))[0] == 200


def test_not_ready() -> None:
    class Loading(FakeGenerator):
        def card(self) -> ModelCard:
            raise Unavailable("the model is loading", retry_after_s=2.5)

    with serve(fake=Loading(speak("a"))) as served:
        status, headers, body = exchange(served, get("/health/ready"))
        assert (status, headers["retry-after"], assert_problem(body)["code"]) == (503, "1", "not_ready")
        status, headers, body = exchange(served, get("/health"))
        assert (status, headers["retry-after"], json.loads(body)["error_type"]) == (503, "1", "healthcheck")
        status, headers, body = exchange(served, post(CHAT, json.dumps(BODY).encode(), "Connection: close"))
        assert (status, headers["retry-after"]) == (503, "3")
        assert json.loads(exchange(served, get("/v1/models"))[2])["data"] == []


def test_openapi_names_every_field(served: Served) -> None:
    document = json.loads(exchange(served, get("/openapi.json"))[2])
    schema = document["components"]["schemas"]["ChatCompletionRequest"]
    assert schema["required"] == ["model", "messages"]
    assert {"temperature", "tools", "max_completion_tokens"} <= set(schema["properties"])
    posting = document["paths"]["/v1/completions"]["post"]
    assert posting["requestBody"]["required"]
    assert [parameter["name"] for parameter in posting["parameters"]] == ["x-tribar-deadline-ms"]
    assert set(document["components"]["securitySchemes"]) == {"bearer"}
    fields = document["components"]["schemas"]["CompletionRequest"]["properties"]
    assert fields["best_of"]["enum"] == [None, 1]
    answer = posting["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert answer == "#/components/schemas/Completion"
    assert document["paths"]["/detokenize"]["post"]["parameters"] == []


BAD_BODIES: dict[str, bytes] = {
    "array": b"[]",
    "string": b'"x"',
    "null": b"null",
    "number": b"1",
    "open": b"{",
    "empty": b"",
    "deep": b"[" * 90_000,
    "deep in a field": b'{"model":"fake","messages":[{"role":"user","content":' + b"[" * 90_000,
    "deep in kwargs": b'{"model":"fake","chat_template_kwargs":{"a":' + b"[" * 90_000,
    "surrogate in model": b'{"model":"\\ud800","messages":[]}',
    "surrogate in user": b'{"user":"\\udc00","model":"fake"}',
    "surrogate in stop": b'{"stop":["\\ud800\\u0041"],"model":"fake"}',
    "duplicate": b'{"model":"fake","model":"fake"}',
    "duplicate, escaped": b'{"model":"fake","\\u006dodel":"fake"}',
    "utf-16": '{"model":"fake"}'.encode("utf-16"),
    "utf-16 without mark": '{"model":"fake"}'.encode("utf-16-le"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "latin-1": b'{"model":"\xe9"}',
    "format": b'{"model":"fake","messages":[{"role":"user","content":"x"}],"response_format":"json"}',
    "quotes": b'{"' + b'\\"' * 40_000,
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_body(served: Served, name: str) -> None:
    """BUG-041, BUG-021: a clear 400 in less than 100 ms, and a record."""
    n_records = len(served.records)
    seconds = []
    for _ in range(3):  # the machine is shared: the quickest of three counts
        started_s = time.perf_counter()
        status, _, body = exchange(served, post(CHAT, BAD_BODIES[name], "Connection: close"))
        seconds.append(time.perf_counter() - started_s)
        assert status == 400
        assert "Traceback" not in assert_problem(body)["message"]
    assert min(seconds) < 0.1
    assert len(served.records) == n_records + 3


def test_large_bodies_are_parsed_beside_the_loop(served: Served) -> None:
    """BUG-086: above ``offload_bytes`` the answer, good or bad, is the same."""
    padding = b" " * 80_000
    for body, expected in ((json.dumps(BODY).encode(), 200), (b'{"model":', 400), (b'{"model":"none"}', 400)):
        status, _, _ = exchange(served, post(CHAT, body + padding, "Connection: close"))
        assert status == expected


def test_request_smuggled_after_a_refused_body_is_not_run(served: Served) -> None:
    """BUG-084: a Content-Length that lies does not desynchronise the connection."""
    request = post(CHAT, b"{}").replace(b"Content-Length: 2", b"Content-Length: 100001") + get("/metrics")
    with served.connect(request) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert b"up 1" not in read_all(connection)


def test_many_short_prompts_leave_the_loop_its_turns() -> None:
    """BUG-086: each is tokenised on the loop, but all of them together do not hold it."""
    turns: list[int] = []
    n_turns = 0

    async def tick() -> None:
        nonlocal n_turns
        while True:
            n_turns += 1
            await asyncio.sleep(0)

    class Counting(FakeGenerator):
        async def prepare(self, request: GenerateRequest) -> Prepared:
            turns.append(n_turns)
            return await super().prepare(request)

    async def post_with_ticks(url: str) -> int:
        async with aiohttp.ClientSession(url) as session:
            body = {"model": "fake", "prompt": ["x"] * 100}
            async with session.post("/v1/completions", json=body) as answer:
                return answer.status

    with serve(fake=Counting(speak("a"))) as served:

        async def start_ticking() -> asyncio.Task[None]:
            return asyncio.create_task(tick())

        ticking = served.wait(start_ticking())
        assert asyncio.run(post_with_ticks(served.url)) == 200
        served.call(ticking.cancel)
    assert len(set(turns)) == 100


def test_log_probabilities_of_prompts_are_bounded(served: Served) -> None:
    """They are held until the answer is complete: many long prompts with many alternatives are refused early."""
    body = {"model": "fake", "prompt": [[1] * 8000] * 3, "prompt_logprobs": 20, "max_tokens": 1}
    status, _, answer = exchange(served, post("/v1/completions", json.dumps(body).encode(), "Connection: close"))
    assert status == 413
    assert "504000 log-probabilities of prompt tokens" in assert_problem(answer)["message"]
