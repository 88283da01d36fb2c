"""A conversation with a server that misbehaves."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tribar.app.remote_chat import RemoteChat
from tribar.core.errors import InvalidRequest, TribarError, Unavailable

ASK = [{"role": "user", "content": "hello"}]


class Handler(BaseHTTPRequestHandler):
    """Answers every request with the server's ``answer``."""

    def do_GET(self) -> None:
        self._answer(self.server.listing)  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.server.answer)  # type: ignore[attr-defined]

    def _answer(self, body: bytes) -> None:
        self.server.authorizations.append(self.headers["Authorization"])  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Scripted(ThreadingHTTPServer):
    status = 200
    listing = b'{"data": [{"id": "m"}]}'
    answer = b""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.authorizations: list[str | None] = []


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def chat(server: Scripted) -> RemoteChat:
    return RemoteChat(f"http://127.0.0.1:{server.server_address[1]}/v1/")


def chunk(text: str) -> bytes:
    return b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % text.encode()


def test_pieces_until_done(server: Scripted) -> None:
    server.answer = (
        b": ping\n\n" + chunk("a") + b'data: {"choices": []}\n\n' + chunk("b") + b"data: [DONE]\n\n" + chunk("c")
    )
    assert "".join(chat(server).stream_chat(ASK)) == "ab"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b'data: {"error": {"message": "the engine stopped"}}\n\n', "the engine stopped"),
        (b"", "broke off before its answer was complete"),
        (b"data: {\n\n", "not JSON"),
        (b"data: []\n\n", "not a JSON object"),
    ],
)
def test_a_stream_that_goes_wrong_is_an_error(server: Scripted, answer: bytes, message: str) -> None:
    """BUG-013, from the reading side."""
    server.answer = chunk("a") + answer
    pieces = chat(server).stream_chat(ASK)
    assert next(pieces) == "a"
    with pytest.raises(TribarError, match=message):
        list(pieces)


def test_a_refusal_says_why(server: Scripted) -> None:
    talk = chat(server)
    server.status, server.answer = 503, b'{"error": {"message": "too much to do"}}'
    with pytest.raises(TribarError, match="too much to do"):
        list(talk.stream_chat(ASK))
    server.answer = b"<html>Bad Gateway</html>"
    with pytest.raises(TribarError, match="Bad Gateway"):
        list(talk.stream_chat(ASK))


def test_a_server_without_models(server: Scripted) -> None:
    server.listing = b'{"data": []}'
    with pytest.raises(Unavailable, match="serves no model"):
        chat(server)


def test_the_key_goes_along(server: Scripted) -> None:
    server.answer = chunk("a") + b"data: [DONE]\n\n"
    url = f"http://127.0.0.1:{server.server_address[1]}"
    assert list(RemoteChat(url, api_key="k" * 16).stream_chat(ASK)) == ["a"]
    assert list(RemoteChat(url).stream_chat(ASK)) == ["a"]
    assert server.authorizations == [f"Bearer {'k' * 16}"] * 2 + [None] * 2
    with pytest.raises(InvalidRequest, match="printable ASCII"):
        RemoteChat(url, api_key="k\r\nX: y")
