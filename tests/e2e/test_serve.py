"""``tribar serve`` from outside: start, answers, a killed engine, the end."""

import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.e2e.server_process import Server, ask, deadline, serving, stream, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def server(model: Path) -> Iterator[Server]:
    with serving(str(model)) as running:
        yield running


def test_the_openai_client_is_served_and_sigterm_ends_it(server: Server) -> None:
    client = server.client()
    assert [listed.id for listed in client.models.list()] == ["tiny"]
    assert ask(client, "a fish?") == "A fish: \N{FISH}."
    assert "".join(stream(client, "a fish?")) == "A fish: \N{FISH}."
    assert client.completions.create(model="tiny", prompt="again").choices[0].text == "again"
    curl = server.wait_for_line(r"^curl http://127\.0\.0\.1:\d+/v1/chat/completions .*\"model\":\"tiny\"")
    assert curl
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        assert b'tribar_generation_tokens_total{model="tiny"}' in response.read()
    engine = server.engine()
    assert server.stop() == 0
    assert engine.has_ended()
    assert server.left_files() == []
    assert not any("Traceback" in line or "WARNING" in line for line in server.lines)


def test_a_killed_engine_ends_its_streams_with_an_error_and_comes_back(server: Server) -> None:
    """Law 3, BUG-013: kill -9 in mid-stream."""
    client = server.client()
    open_stream = stream(client, "endless")
    assert next(open_stream)
    first = server.engine()
    first.kill()
    with pytest.raises(openai.APIError, match="engine"):
        for _ in open_stream:
            pass
    server.wait_for_line("the engine of tiny is ready", occurrence=2)
    assert ask(client, "a fish?") == "A fish: \N{FISH}."
    assert server.engine().pid != first.pid
    assert server.wait_for_line("ended with exit code -9; starting again")


def test_an_engine_killed_while_it_loads_is_started_again(model: Path) -> None:
    with serving(str(model)) as server:
        server.engine_to_be().kill()
        assert ask(server.client(), "hello") == ask(server.client(), "hello")
        assert server.stop() == 0


def test_while_the_engine_is_away_requests_are_refused_at_once(server: Server) -> None:
    client = server.client()
    ask(client, "hello")
    engine = server.engine()
    engine.kill()
    with pytest.raises(openai.InternalServerError) as refused:
        ask(client, "hello")
    assert refused.value.status_code == 503
    assert int(refused.value.response.headers["retry-after"]) >= 1
    server.wait_for_line("the engine of tiny is ready", occurrence=2)
    assert ask(client, "hello")


def test_the_engine_does_not_outlive_a_killed_front_end(server: Server) -> None:
    assert server.port
    engine = server.engine()
    server.process.kill()
    engine.wait()


def test_open_streams_finish_after_sigterm(model: Path) -> None:
    """BUG-087: ready 503 first, no new work, streams go on, idle sockets do not hold up the exit."""
    with serving(str(model)) as server:
        client = server.client()
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        streams = [stream(client, "brief") for _ in range(8)]
        texts = [next(one) for one in streams]
        # One endless stream keeps the server draining until the test has looked at everything.
        held = stream(client, "endless")
        assert next(held)
        server.process.send_signal(signal.SIGTERM)
        until_status(f"{server.url}/health/ready", 503)
        with pytest.raises(openai.InternalServerError, match="shutting down"):
            ask(client, "hello")
        with urllib.request.urlopen(f"{server.url}/health/live") as response:
            assert response.status == 200
        for i, one in enumerate(streams):
            assert texts[i] + "".join(one) == "tick " * 20
        held.close()  # type: ignore[attr-defined]
        port = server.port
        assert server.wait() == 0
        for connection in idle:
            assert connection.recv(1) == b""
            connection.close()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))


def test_streams_longer_than_the_grace_end_with_an_error_event(model: Path) -> None:
    """BUG-087: also when one reader never reads."""
    with serving(str(model), "--drain-timeout", "0.2") as server:
        never_reads = socket.create_connection(("127.0.0.1", server.port))
        body = b'{"model":"tiny","messages":[{"role":"user","content":"flood"}],"stream":true}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        never_reads.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        open_stream = stream(server.client(), "endless")
        assert next(open_stream)
        engine = server.engine()
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError):
            for _ in open_stream:
                pass
        assert server.wait() == 0
        assert engine.has_ended()
        never_reads.close()


def test_a_second_signal_ends_at_once(model: Path) -> None:
    with serving(str(model)) as server:
        open_stream = stream(server.client(), "endless")
        assert next(open_stream)
        engine = server.engine()
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_line("draining")
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM
        engine.wait()
        assert server.left_files() == []


def test_a_restart_takes_the_port_over_at_once(model: Path) -> None:
    with serving(str(model)) as server:
        assert ask(server.client(), "a")
        port = server.port
        assert server.stop() == 0
    with serving(str(model), "--port", str(port)) as server:
        assert server.port == port


def test_health_is_answered_under_load(server: Server) -> None:
    client = server.client()
    done = threading.Event()

    def load() -> None:
        for text in ("fish", "brief", "hello" * 100):
            ask(client, text)
        done.set()

    worker = threading.Thread(target=load)
    worker.start()
    while not done.is_set():
        with urllib.request.urlopen(f"{server.url}/health/live", timeout=5) as response:
            assert response.status == 200
    worker.join()


def until_status(url: str, status: int) -> None:
    """Ask until the answer has ``status``; a signal takes effect a moment after it was sent."""
    give_up_s = deadline()
    while time.monotonic() < give_up_s:
        try:
            with urllib.request.urlopen(url) as response:
                seen = response.status
        except urllib.error.HTTPError as error:
            with error:
                seen = error.code
        if seen == status:
            return
    raise AssertionError(f"{url} never answered {status}")
