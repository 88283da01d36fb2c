"""An OpenAI-compatible server that answers at once with the same text, so that what stands in front of it can be seen.

python -m benchmarks.fake_upstream [--core 1]     prints its port
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httptools
import orjson
import uvloop

from benchmarks.server import Served

MODEL = "fake"
TEXTS = ("The ", "tribar ", "is ", "an ", "impossible ", "triangle", ".")

_HEAD = {"id": "chatcmpl-1", "created": 1, "model": MODEL}
_USAGE = {"prompt_tokens": 20, "completion_tokens": len(TEXTS), "total_tokens": 20 + len(TEXTS)}


def _chunk(**fields: object) -> bytes:
    return b"data: " + orjson.dumps({**_HEAD, "object": "chat.completion.chunk", **fields}) + b"\n\n"


def _streamed() -> bytes:
    deltas = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in TEXTS]
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events = [_chunk(choices=[choice]) for choice in (*deltas, last)]
    body = b"".join([*events, _chunk(choices=[], usage=_USAGE), b"data: [DONE]\n\n"])
    chunked = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked


def _whole(document: object) -> bytes:
    body = orjson.dumps(document)
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


STREAMED = _streamed()
WHOLE = _whole(
    {
        **_HEAD,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "".join(TEXTS)}, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
)
MODELS = _whole({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "nobody"}]})
HEALTHY = _whole({})


class Connection(asyncio.Protocol):
    """Answers by path, and by whether the body asks for a stream."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._url.startswith(b"/v1/chat"):
            is_streamed = orjson.loads(b"".join(self._body)).get("stream", False)
            self._transport.write(STREAMED if is_streamed else WHOLE)
        else:
            self._transport.write(MODELS if self._url.startswith(b"/v1/models") else HEALTHY)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def fake_upstream(core: int) -> Iterator[Served]:
    """Start one in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.fake_upstream", "--core", str(core)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout as lines:
        try:
            yield Served(process.pid, f"http://127.0.0.1:{int(lines.readline())}")
        finally:
            process.kill()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, required=True)
    os.sched_setaffinity(0, {parser.parse_args().core})
    uvloop.run(_serve())


if __name__ == "__main__":
    main()
