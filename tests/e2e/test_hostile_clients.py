"""A served model among clients that mean harm: afterwards nothing runs, nothing is held, and the next one is served."""

import http.client
import json
import os
import random
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.server_process import Server, ask, deadline, serving, write_model

LEAVES_AT_ONCE = b"\x01\x00\x00\x00\x00\x00\x00\x00"
"""SO_LINGER on, 0 s: closing resets the connection."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(str(write_model(tmp_path, cost={"step_s": 0.001}))) as running:
        yield running


def chat(text: str, *headers: str, **fields: object) -> bytes:
    """The bytes of a request."""
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": text}], **fields}).encode()
    head = ["POST /v1/chat/completions HTTP/1.1", "Host: x", "Content-Type: application/json", *headers]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def connect(server: Server, sent: bytes = b"", receive_buffer: int | None = None) -> socket.socket:
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(20)
    try:
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(sent)
    except OSError:
        connection.close()
        raise
    return connection


def gauges(server: Server) -> dict[str, float]:
    """What /metrics says is going on now."""
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        lines = response.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio", "kv_slots_used_ratio")
    return {name: float(value) for name, value in pairs if name.startswith(tuple(f"tribar_{n}" for n in names))}


def until_idle(server: Server) -> None:
    give_up_s = deadline()
    while any((seen := gauges(server)).values()):
        assert time.monotonic() < give_up_s, seen
    assert len(seen) == 4


def n_files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))  # noqa: PTH208  names are all we need


def assert_well(server: Server, n_files_before: int) -> None:
    """Idle, no descriptor more than before, an ordinary answer, nothing in the log to be ashamed of."""
    until_idle(server)
    client = server.client()
    assert ask(client, "a fish?") == "A fish: \N{FISH}."
    client.close()
    give_up_s = deadline()
    while n_files(server) > n_files_before:
        assert time.monotonic() < give_up_s
    assert not [line for line in server.lines if "Traceback" in line or " ERROR " in line]


def test_hundreds_leave_at_any_moment(server: Server) -> None:
    """BUG-009, BUG-036, BUG-089: streams, whole answers, many choices, pipelined requests; resets and ordinary ends."""
    rng = random.Random(0)
    until_idle(server)
    before = n_files(server)
    for _ in range(3):
        crowd = []
        for _ in range(100):
            text = rng.choice(["endless", "flood", "brief", "fish"])
            sent = chat(text, stream=rng.random() < 0.5, n=rng.choice([1, 1, 1, 16]))
            crowd.append(connect(server, sent + chat("fish") * rng.choice([0, 0, 2])))
        for connection in crowd:
            if rng.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LEAVES_AT_ONCE)
            connection.close()
    assert_well(server, before)


def test_readers_that_never_read_hold_nobody_up(server: Server) -> None:
    """BUG-017: a flood for each of them, while others are served."""
    until_idle(server)
    before = n_files(server)
    deaf = [connect(server, chat("flood", stream=True, max_tokens=3000), receive_buffer=4096) for _ in range(20)]
    while gauges(server)['tribar_num_requests_running{model="tiny"}'] < 20:
        pass
    client = server.client()
    assert ask(client, "a fish?") == "A fish: \N{FISH}."
    client.close()
    for connection in deaf:
        connection.close()
    assert_well(server, before)


def test_a_stopped_engine_goes_on_where_it_was(server: Server) -> None:
    """Its clients wait, come and go; /health/live answers; afterwards everybody who stayed is served."""
    until_idle(server)
    before = n_files(server)
    engine = server.engine()
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        waits = [connect(server, chat("fish", "Connection: close")) for _ in range(20)]
        for _ in range(5):
            crowd = [connect(server, chat("x" * 3000)) for _ in range(50)]
            with urllib.request.urlopen(f"{server.url}/health/live", timeout=5) as response:
                assert response.status == 200
            for connection in crowd:
                connection.close()
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    for connection in waits:
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        assert "A fish: \N{FISH}.".encode() in answer
        connection.close()
    assert_well(server, before)


def test_an_engine_killed_again_and_again_under_load(server: Server) -> None:
    """Law 3, BUG-013: whatever was open ends with an answer or an error, never with silence or half a stream."""
    until_idle(server)
    ends: list[bytes] = []
    stop = threading.Event()

    def load(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            text = rng.choice(["brief", "fish", "endless"])
            with connect(server, chat(text, "Connection: close", stream=rng.random() < 0.7, max_tokens=200)) as mine:
                answer = b""
                while piece := mine.recv(65536):
                    answer += piece
            ends.append(answer)
            stop.wait(0.01)

    crowd = [threading.Thread(target=load, args=(seed,)) for seed in range(8)]
    for one in crowd:
        one.start()
    for restart in range(3):
        server.engine_to_be().kill()
        server.wait_for_line("starting again", occurrence=restart + 1)
    stop.set()
    for one in crowd:
        one.join()
    assert len(ends) > 8
    for answer in ends:
        head, _, body = answer.partition(b"\r\n\r\n")
        is_whole = b"data: [DONE]" in body or (b'"finish_reason":' in body and b"text/event-stream" not in head)
        assert is_whole != (b'"error":{"message":' in body), answer
    server.wait_for_line("the engine of tiny is ready", occurrence=2)
    until_ready(server)
    until_idle(server)
    assert ask(server.client(), "a fish?") == "A fish: \N{FISH}."


def until_ready(server: Server) -> None:
    give_up_s = deadline()
    while not gauges(server) or http_status(server, "/health/ready") != 200:
        assert time.monotonic() < give_up_s


def http_status(server: Server, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("text", ["word " * 1_000_000, "hello <|im_end|> " * 300_000], ids=["words", "control strings"])
def test_health_is_answered_while_megabytes_are_tokenised(text: str) -> None:
    """BUG-086, with a real tokenizer: /health/live within 100 ms, in one of the rounds: tests share the cores."""
    with serving() as server:
        body = json.dumps({"model": "smollm2", "messages": [{"role": "user", "content": text}]}).encode()
        worst_s = (longest_health_answer(server, body) for _ in range(30))
        assert any(slowest_s < 0.1 for slowest_s in worst_s)


def longest_health_answer(server: Server, body: bytes) -> float:
    """The slowest of all answers of /health/live, asked for without pause while ``body`` is being refused."""
    statuses: list[int] = []

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        statuses.append(connection.getresponse().status)
        connection.close()

    sender = threading.Thread(target=send)
    health = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    longest_s = 0.0
    sender.start()
    while sender.is_alive():
        started_s = time.monotonic()
        health.request("GET", "/health/live")
        health.getresponse().read()
        longest_s = max(longest_s, time.monotonic() - started_s)
        sender.join(0.02)
    health.close()
    assert statuses == [400]
    return longest_s


def test_sigterm_under_load_ends_whatever_was_accepted(tmp_path: Path) -> None:
    """BUG-087: with an answer, an error or an unanswered close before anything ran; then nothing is left."""
    with serving(str(write_model(tmp_path)), "--drain-timeout", "0.5") as server:
        assert server.port
        engine = server.engine()
        ends: list[bytes] = []
        begun = threading.Semaphore(0)

        def load(seed: int) -> None:
            rng = random.Random(seed)
            while True:
                answer = b""
                try:
                    sent = chat(
                        rng.choice(["fish", "brief", "endless"]), "Connection: close", stream=rng.random() < 0.7
                    )
                    with connect(server, sent) as mine:
                        while piece := mine.recv(65536):
                            begun.release()
                            answer += piece
                except ConnectionError:
                    return  # nobody listens any more
                finally:
                    ends.append(answer)

        crowd = [threading.Thread(target=load, args=(seed,)) for seed in range(16)]
        for one in crowd:
            one.start()
        for _ in range(100):
            assert begun.acquire(timeout=20)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        for one in crowd:
            one.join(20)
        assert engine.has_ended()
        assert server.left_files() == []
        for answer in filter(None, ends):
            head, _, body = answer.partition(b"\r\n\r\n")
            is_whole = b"data: [DONE]" in body or (b'"finish_reason":' in body and b"text/event-stream" not in head)
            assert is_whole != (b'"error":{"message":' in body), answer
