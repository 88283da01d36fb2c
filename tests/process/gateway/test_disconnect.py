"""A client that leaves, or that never reads, ends its generation: with the full middleware stack on (BUG-011)."""

import asyncio
import json
import logging
import socket
from collections.abc import Iterable, Iterator

import pytest
from tests.process.gateway.served import post, read_all, read_until, serve

from tribar.core.fake_generator import FakeGenerator, speak
from tribar.core.requests import Delta, GenerateRequest, Prepared
from tribar.gateway.config import GatewayConfig

CHAT = "/v1/chat/completions"


def body(*, stream: bool, n: int = 1, model: str = "fake") -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": model, "messages": messages, "stream": stream, "n": n}).encode()


def one_then_silence(_: Prepared) -> Iterator[Delta | asyncio.Event]:
    yield Delta(text="a", token_ids=(97,))
    yield asyncio.Event()


def silence(_: Prepared) -> Iterator[asyncio.Event]:
    yield asyncio.Event()


def test_leaving_a_stream_aborts() -> None:
    """BUG-009: after the first chunk."""
    fake = FakeGenerator(one_then_silence)
    with serve(fake=fake) as served:
        connection = served.connect(post(CHAT, body(stream=True)))
        read_until(connection, b'"content":"a"')
        connection.close()
        served.until(fake, lambda f: f.n_aborted == 1 and f.n_running == 0)
    assert [(r.status, r.error) for r in served.records] == [(200, "Cancelled")]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_leaving_before_the_first_token_aborts(is_streamed: bool, n: int) -> None:
    """BUG-009: while queued or in prefill, streamed or not; every choice is closed."""
    fake = FakeGenerator(silence)
    with serve(fake=fake) as served:
        connection = served.connect(post(CHAT, body(stream=is_streamed, n=n)))
        served.until(fake, lambda f: f.n_running == n)
        connection.close()
        served.until(fake, lambda f: f.n_aborted == n and f.n_running == 0)
    assert [r.status for r in served.records] == [499]


def test_leaving_while_the_prompt_is_prepared_cancels_it() -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    class Slow(FakeGenerator):
        async def prepare(self, request: GenerateRequest) -> Prepared:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
            return await super().prepare(request)

    with serve(fake=Slow(silence)) as served:
        connection = served.connect(post(CHAT, body(stream=False)))
        served.wait(entered.wait())
        connection.close()
        served.wait(left.wait())


def test_a_normal_end_aborts_nothing() -> None:
    """BUG-009: generators are read to their end, so no useless abort is sent."""
    fake = FakeGenerator(speak("a", "b"))
    with serve(fake=fake) as served:
        for is_streamed in (True, False):
            for n in (1, 2):
                request = post(CHAT, body(stream=is_streamed, n=n), "Connection: close")
                with served.connect(request) as connection:
                    assert b"stop" in read_all(connection)
    assert (fake.n_finished, fake.n_aborted, fake.n_running) == (6, 0, 0)


def test_a_failing_choice_closes_the_others() -> None:
    starts = 0

    def script(prepared: Prepared) -> Iterable[Delta | asyncio.Event | Exception]:
        nonlocal starts
        starts += 1
        return [ValueError("x")] if starts == 3 else silence(prepared)

    fake = FakeGenerator(script)
    with serve(fake=fake) as served, served.connect(post(CHAT, body(stream=False, n=3), "Connection: close")) as c:
        assert b" 500 " in read_all(c)
    assert (fake.n_failed, fake.n_aborted, fake.n_running) == (1, 2, 0)


def test_500_leave_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """BUG-089: all are aborted, the next request is normal, one record each and no other log line."""
    caplog.set_level(logging.INFO)
    fake, other = FakeGenerator(one_then_silence), FakeGenerator(speak("ok"))
    with serve(fake=fake, other=other) as served:
        request = post(CHAT, body(stream=True))
        connections = [served.connect(request) for _ in range(500)]
        served.until(fake, lambda f: f.n_running == 500)
        for connection in connections:
            connection.close()
        served.until(fake, lambda f: f.n_aborted == 500 and f.n_running == 0)
        with served.connect(post(CHAT, body(stream=False, model="other"), "Connection: close")) as connection:
            assert b'"content":"ok"' in read_all(connection)
    assert len(served.records) == 501
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_a_reader_that_never_reads_is_aborted() -> None:
    """BUG-017: what is generated for it stays bounded, and another stream goes on meanwhile."""
    n_drawn = 0
    piece = "x" * 10_000

    def flood(_: Prepared) -> Iterator[Delta]:
        nonlocal n_drawn
        while True:
            n_drawn += 1
            yield Delta(text=piece)

    fake, other = FakeGenerator(flood), FakeGenerator(speak("ok"))
    with serve(config=GatewayConfig(stall_timeout_s=0.3), fake=fake, other=other) as served:
        request = post(CHAT, body(stream=True))
        connections = [served.connect(request, receive_buffer=4096) for _ in range(10)]
        served.until(fake, lambda f: f.n_running + f.n_aborted == 10)
        with served.connect(post(CHAT, body(stream=True, model="other"), "Connection: close")) as connection:
            assert b"[DONE]" in read_all(connection)
        served.until(fake, lambda f: f.n_aborted == 10 and f.n_running == 0)
        for one in connections:
            _reset(one)
    assert n_drawn * len(piece) < 10 * 8 * 2**20


def _reset(connection: socket.socket) -> None:
    """Close without lingering, so that the server need not wait for what it could never send."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
