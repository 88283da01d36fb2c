"""EDGE_CASES G with the whole stack on: request id, CORS, boundary, limits, keys, on our own connections."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
from tests.process.app.stack import CHAT, WITH_KEY, Answer, chat, first_bytes, parse, request, running

from tribar.app.http_connection import ConnectionLimits
from tribar.core.errors import DeadlineExceeded
from tribar.core.fake_generator import FakeGenerator, speak
from tribar.core.requests import Delta, Prepared
from tribar.gateway.config import GatewayConfig

QUICK = ConnectionLimits(head_s=0.3, linger_s=0.3)
CONFIG = GatewayConfig(max_body_bytes=50_000, body_timeout_s=0.3, cors_origins=("http://page.test",))
CHUNKED = ("Content-Type: application/json", "Transfer-Encoding: chunked")


def fake() -> FakeGenerator:
    return FakeGenerator(speak("ok"))


def endless(_: Prepared) -> Iterator[Delta | asyncio.Event]:
    yield Delta(text="a", token_ids=(97,))
    yield asyncio.Event()


async def test_a_chunked_body_over_the_limit() -> None:
    """BUG-084: ten times the limit, refused as soon as it is crossed; the connection does not last."""
    async with running(config=CONFIG, limits=QUICK, fake=fake()) as stack:
        reader, writer = await stack.connect(request("POST", CHAT, WITH_KEY, *CHUNKED))
        for _ in range(6):
            writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        async with asyncio.timeout(20):
            answer = parse(await reader.readuntil(b"}}"))
            assert (answer.status, answer.error["code"]) == (413, "body_too_large")
            while not writer.transport.is_closing():
                writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
                await asyncio.sleep(0)
        assert (await stack.ask(chat())).status == 200


async def test_an_announced_body_over_the_limit() -> None:
    """BUG-084: refused before a byte of it has come."""
    async with running(config=CONFIG, limits=QUICK, fake=fake()) as stack:
        headers = ("Content-Type: application/json", "Content-Length: 50001")
        reader, _ = await stack.connect(request("POST", CHAT, WITH_KEY, *headers))
        async with asyncio.timeout(20):
            assert parse(await reader.readuntil(b"}}")).status == 413


async def test_a_length_that_lies_smuggles_nothing() -> None:
    """BUG-084: a request behind a body longer than its announcement is not run with the first one's key."""
    async with running(config=CONFIG, limits=QUICK, fake=fake()) as stack:
        sent = chat().replace(b"Connection: close\r\n", b"") + request("GET", "/metrics")
        reader, _ = await stack.connect(sent)
        async with asyncio.timeout(20):
            answers = await reader.read()
        assert answers.count(b"HTTP/1.1 200") == 1
        assert b"up 1" not in answers


@pytest.mark.parametrize("sent", [b"GET /health/live HTTP/1.1\r\n", request("POST", CHAT, WITH_KEY, *CHUNKED)])
async def test_slowloris(sent: bytes) -> None:
    """BUG-085: a byte at a time, of head or body: 408 for all; others are answered meanwhile, a stream goes on."""
    async with running(config=CONFIG, limits=QUICK, fake=fake(), slow=FakeGenerator(endless)) as stack:
        stream, _ = await stack.connect(chat(model="slow", stream=True))
        assert (await stream.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        crowd = [await stack.connect(sent) for _ in range(100)]
        ends = [asyncio.create_task(reader.readuntil(b"}}")) for reader, _ in crowd]
        piece = b"1\r\nx\r\n" if b"chunked" in sent else b"x"
        async with asyncio.timeout(30):
            while not all(end.done() for end in ends):
                for (_, writer), end in zip(crowd, ends, strict=True):
                    if not end.done() and not writer.is_closing():
                        writer.write(piece)
                assert (await stack.ask(chat())).status == 200
        answers = [parse(end.result()) for end in ends]
        assert {answer.status for answer in answers} == {408}
        assert not stream.at_eof()


async def test_headers_over_the_limit() -> None:
    """BUG-085: a megabyte in one, or ten thousand of them."""
    async with running(config=CONFIG, limits=QUICK, fake=fake()) as stack:
        for headers in (["X-A: " + "y" * 100_000], [f"X-{i}: y" for i in range(10_000)]):
            answer = await stack.ask(request("GET", "/v1/models", WITH_KEY, *headers))
            assert answer.status == 431
            assert answer.error["type"] == "invalid_request_error"
        reader, _ = await stack.connect(request("GET", "/v1/models", WITH_KEY, "X-A: " + "y" * 1_000_000))
        assert (await first_bytes(reader))[9:] in {b"431", b""}
        assert (await stack.ask(chat())).status == 200


async def test_a_flood_of_request_ids() -> None:
    """BUG-016: the same one at the same time, hostile ones; each is answered, with a clean id, once."""
    hostile = ["x" * 129, "x" * 60_000, "\N{COLLISION SYMBOL}", "a b", "a\tb", ""]
    async with running(fake=fake()) as stack:
        same = await asyncio.gather(*(stack.ask(chat("X-Request-Id: a")) for _ in range(50)))
        assert {answer.headers["x-request-id"] for answer in same} == {"a"}
        assert len({json.loads(answer.body)["id"] for answer in same}) == 50
        for sent in hostile:
            answer = await stack.ask(chat(f"X-Request-Id: {sent}"))
            assert answer.status == 200
            given = answer.headers["x-request-id"]
            assert given != sent
            assert given.isprintable()
            assert len(given) <= 128
        answer = await stack.ask(chat("X-Request-Id: a\r\nX-Y: b"))
        assert answer.headers["x-request-id"] == "a"
        assert "x-y" not in answer.headers


async def test_deep_json() -> None:
    async with running(fake=fake()) as stack:
        deep = b'{"model":"fake","messages":[],"metadata":' + b"[" * 90_000
        answer = await stack.ask(request("POST", CHAT, WITH_KEY, body=deep))
        assert (answer.status, answer.error["code"]) == (400, "json_too_deep")


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_who_leaves_is_noticed(is_streamed: bool) -> None:
    """BUG-009, BUG-011: behind every middleware."""
    generator = FakeGenerator(endless)
    async with running(fake=generator) as stack, asyncio.timeout(20):
        _, writer = await stack.connect(chat(stream=is_streamed))
        await generator.until(lambda f: f.n_running == 1)
        writer.close()
        await generator.until(lambda f: f.n_aborted == 1 and f.n_running == 0)


async def test_hundreds_leave_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """BUG-089: one record each, no other line, and the next request is an ordinary one."""
    caplog.set_level(logging.INFO, "tribar")
    crowd_generator = FakeGenerator(endless)
    async with running(fake=fake(), slow=crowd_generator) as stack, asyncio.timeout(40):
        crowd = [await stack.connect(chat(model="slow", stream=True)) for _ in range(200)]
        await crowd_generator.until(lambda f: f.n_running == 200)
        for _, writer in crowd:
            writer.transport.abort()
        await crowd_generator.until(lambda f: f.n_aborted == 200 and f.n_running == 0)
        assert (await stack.ask(chat())).status == 200
        await stack.until_recorded(201)
        assert [record.name for record in caplog.records] == ["tribar.gateway.access"] * 201


async def test_a_deadline_is_a_504_or_an_error_event() -> None:
    """With whatever had been said before it; the header's value reaches the generator."""

    def late(_: Prepared) -> Iterator[Delta | Exception]:
        yield Delta(text="so", token_ids=(1, 2))
        yield DeadlineExceeded("the request's deadline passed")

    generator = FakeGenerator(late)
    async with running(fake=generator) as stack:
        answer = await stack.ask(chat("X-Tribar-Deadline-Ms: 60000"))
        assert (answer.status, answer.error["type"]) == (504, "timeout_error")
        answer = await stack.ask(chat("x-tribar-deadline-ms: 60000", stream=True))
        assert answer.status == 200
        assert b'"content":"so"' in answer.body
        assert b'"type":"timeout_error"' in answer.body
        assert b"[DONE]" not in answer.body
        refused = await stack.ask(chat("x-tribar-deadline-ms: 0"))
        assert (refused.status, refused.error["param"]) == (400, "x-tribar-deadline-ms")
    assert len(generator.requests) == 2
    assert all(asked.deadline_s is not None and 0 < asked.deadline_s <= 60 for asked in generator.requests)


async def test_a_priority_reaches_the_generator() -> None:
    generator = fake()
    async with running(fake=generator) as stack:
        for priority in (-1000, 1000, None):
            assert (await stack.ask(chat(priority=priority))).status == 200
        assert (await stack.ask(chat(priority=1001))).error["param"] == "priority"
    assert [asked.priority for asked in generator.requests] == [0, 1000, 0]


async def test_leaving_then_draining() -> None:
    """BUG-087: first unready but serving, then 503; every answer from then on ends its connection."""

    def keeping(sent: bytes) -> bytes:
        return sent.replace(b"Connection: close\r\n", b"")

    async def status(sent: bytes) -> Answer:
        reader, _ = await stack.connect(keeping(sent))
        async with asyncio.timeout(20):
            return parse(await reader.read())  # to the end: the server closes, though it was not asked to

    release = asyncio.Event()

    def held(_: Prepared) -> Iterator[Delta | asyncio.Event]:
        yield Delta(text="a", token_ids=(97,))
        yield release
        yield from speak("b")(_)  # type: ignore[misc]  # only Deltas

    slow = FakeGenerator(held)
    async with running(fake=fake(), slow=slow) as stack:
        stream, _ = await stack.connect(keeping(chat(model="slow", stream=True)))
        await slow.until(lambda f: f.n_running == 1)
        stack.catalog.leave()
        ready = await status(request("GET", "/health/ready"))
        assert (ready.status, ready.headers["connection"]) == (503, "close")
        served = await status(chat())
        assert (served.status, served.headers["connection"]) == (200, "close")
        stack.catalog.drain()
        refused = await status(chat())
        assert (refused.status, refused.headers["connection"], refused.headers["retry-after"]) == (503, "close", "5")
        assert (await status(request("GET", "/health/live"))).status == 200
        release.set()
        async with asyncio.timeout(20):
            assert b'"content":"b"' in await stream.readuntil(b"[DONE]")
