"""For contrast: the same streamed answers from a handler that blocks, one thread for each request.

python -m benchmarks.blocking_server [--tokens-per-s 20] [--core 0]     prints its port
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson

from benchmarks.clock_engine import CARD, N_TICKS, UNIT_S, clock_text
from benchmarks.front import Front
from benchmarks.processes import cores
from tribar.core.requests import Delta, GenerateRequest, IdsPrompt, Prepared
from tribar.gateway.call import AnswerHead
from tribar.gateway.openai.call import OpenAiCall
from tribar.gateway.openai.chat_writer import ChatWriter
from tribar.gateway.sse import DONE
from tribar.gateway.vocabulary import Vocabulary

BACKLOG = 2048


def make_handler(tokens_per_s: float) -> type[BaseHTTPRequestHandler]:
    """The handler's class: all of its threads speak on the same beat, as the rows of one engine do."""
    token_bytes = clock_text().tokenizer.token_bytes
    period_s = 1 / tokens_per_s
    request = GenerateRequest(model=CARD.name, prompt=IdsPrompt(()))
    call = OpenAiCall((request,), n=1, stream=True)
    head = AnswerHead(call, [Prepared(request, 0, ())], Vocabulary(token_bytes), "chatcmpl-0", 0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            writer = ChatWriter(head)
            beat_s = time.monotonic() // period_s * period_s
            for _ in range(body["max_tokens"]):
                beat_s += period_s  # who is late leaves none out: an engine would not wait either
                time.sleep(max(0.0, beat_s - time.monotonic()))
                token = int(beat_s / UNIT_S) % N_TICKS  # when an engine would have sent it
                self._write(writer.chunk(0, Delta(token_bytes[token].decode(), (token,))))
            self._write(DONE)
            self._write(b"")

        def _write(self, event: bytes) -> None:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def blocking_server(tokens_per_s: float) -> Iterator[Front]:
    """The server on the first core; the last one is for the load generator."""
    core, other_core = cores()
    command = [sys.executable, "-m", "benchmarks.blocking_server", "--tokens-per-s", str(tokens_per_s)]
    with subprocess.Popen([*command, "--core", str(core)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Front(process.pid, int(process.stdout.readline()), core, other_core)
        finally:
            process.kill()


class _Server(ThreadingHTTPServer):
    request_queue_size = BACKLOG
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients that hang up at the end of the run are no news."""


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens-per-s", type=float, default=20.0)
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    threading.stack_size(256 * 1024)
    server = _Server(("127.0.0.1", 0), make_handler(options.tokens_per_s))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
