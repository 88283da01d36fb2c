"""A reader that falls behind gets the same text in fewer, larger events; the others notice nothing."""

import json
import socket
from pathlib import Path

from tests.e2e.server_process import TIMEOUT_S, ask, serving, write_model

N_TOKENS = 3000
"""At one event per token, some 600 kB: far less than the kernel alone would take if it were let to."""


def post(port: int, body: dict[str, object]) -> socket.socket:
    """A connection with a small receive buffer on which the request has been sent and nothing read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(TIMEOUT_S)
    connection.connect(("127.0.0.1", port))
    data = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def texts(connection: socket.socket) -> list[str]:
    """The content of each event, up to the end."""
    with connection, connection.makefile("rb") as lines:
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    return [event["choices"][0]["delta"]["content"] for event in events if event["choices"][0]["delta"].get("content")]


def test_a_reader_that_stalls_is_one_line_in_the_access_log(tmp_path: Path) -> None:
    """BUG-017: its request is aborted, and nothing in the log says that the server failed."""
    model = write_model(tmp_path, default="letters", replies=[])
    with serving(str(model), "--stall-timeout", "1") as server:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "stream": True}
        with post(server.port, {**body, "max_tokens": N_TOKENS}):
            server.wait_for_line(r"POST /v1/chat/completions 200 .* Cancelled")
        assert server.stop() == 0
    assert not [line for line in server.lines if " ERROR " in line]


def test_what_a_late_reader_missed_comes_in_few_events(tmp_path: Path) -> None:
    """BUG-017: with one row, the second answer tells that the first one has been generated to its end unread."""
    model = write_model(tmp_path, default="letters", replies=[])
    with serving(str(model), "--max-num-seqs", "1") as server, server.client() as client:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "stream": True}
        late = post(server.port, {**body, "max_tokens": N_TOKENS, "temperature": 0})
        beside = ask(client, "go", max_tokens=N_TOKENS, temperature=0)
        pieces = texts(late)
    assert "".join(pieces) == beside
    assert len(beside) == N_TOKENS
    assert len(pieces) < N_TOKENS / 20
