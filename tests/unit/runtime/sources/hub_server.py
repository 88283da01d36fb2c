"""As much of the Hugging Face Hub as a download needs, on this host."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import huggingface_hub.constants
import pytest

COMMIT = "a" * 40
Repositories = dict[str, dict[str, bytes]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "HubServer"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0].removeprefix("/")
        self.server.paths.append(path)
        parts = path.split("/")
        if path.startswith("api/models/"):
            self.api("/".join(parts[2:4]), is_tree="tree" in parts[4:])
        elif len(parts) > 4 and parts[2] == "resolve":
            self.file(self.server.repositories["/".join(parts[:2])].get("/".join(parts[4:])))
        else:
            self.answer(404, b"")

    def api(self, repository: str, *, is_tree: bool) -> None:
        if repository == "owner/gated":
            self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif repository not in self.server.repositories:
            self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        else:
            files = self.server.repositories[repository].items()
            tree = [{"type": "file", "path": name, "size": len(data), "oid": etag(data)} for name, data in files]
            siblings = [{"rfilename": name, "size": len(data), "blobId": etag(data)} for name, data in files]
            answer = tree if is_tree else {"id": repository, "sha": COMMIT, "siblings": siblings}
            self.answer(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def file(self, data: bytes | None) -> None:
        if data is None:
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self.answer(200, data, {"ETag": f'"{etag(data)}"', "X-Repo-Commit": COMMIT})

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests read ``paths`` instead."""


def etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


class HubServer(ThreadingHTTPServer):
    """``paths`` lists what was asked for."""

    daemon_threads = True

    def __init__(self, repositories: Repositories) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.paths: list[str] = []


@contextmanager
def hub_server(monkeypatch: pytest.MonkeyPatch, cache: Path, repositories: Repositories) -> Iterator[HubServer]:
    """Serve ``repositories``, with the library's endpoint and cache set to them."""
    server = HubServer(repositories)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
