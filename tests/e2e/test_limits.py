"""The whole server under limits: from its files, over a Valkey that is killed and comes back, watched for blocks."""

import json
import re
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.e2e.server_process import Server, ask, deadline, serving, stream, write_model
from tests.servers.valkey import Valkey, valkey

from tribar.app.api_keys import digest_of

KEYS = {"alice": "sk-tribar-alice-0123456789", "bob": "sk-tribar-bob-0123456789", "carol": "sk-tribar-carol-012345678"}

LIMITS = """
[[limits]]
tenant = "*"
requests_per_day = 3

[[limits]]
tenant = "bob"
requests_per_day = 5
"""


def _keys_file(directory: Path) -> Path:
    entries = [
        f'[[keys]]\ntenant = "{tenant}"\nhash = "sha256:{digest_of(key.encode()).hex()}"\n'
        for tenant, key in KEYS.items()
    ]
    path = directory / "keys.toml"
    path.write_text("\n".join(entries) + "requests_per_day = 2\n")  # of the last one, carol's
    return path


def _n_answers(server: Server, tenant: str) -> int:
    """How many requests pass before one is refused."""
    with server.client(api_key=KEYS[tenant]) as client:
        for n in range(10):
            try:
                ask(client, "hi", max_tokens=4)
            except openai.RateLimitError:
                return n
    raise AssertionError("nothing was refused")


def _usage(server: Server, tenant: str, query: str = "") -> Any:
    headers = {"Authorization": f"Bearer {KEYS[tenant]}"}
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/v1/usage{query}", headers=headers)) as answer:
        usage = json.load(answer)
    assert usage["tenant"] == tenant
    return usage


def _scrape(server: Server, key: str) -> str:
    request = urllib.request.Request(f"{server.url}/metrics", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()  # type: ignore[no-any-return]


def _value(text: str, sample: str) -> float:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def test_limits_of_the_settings_and_of_the_keys(tmp_path: Path) -> None:
    """Each tenant by itself, a named one instead, a key on top of its tenant; refusals are counted.

    What was used is written down, told to its tenant alone, and there again after a restart.
    """
    config = tmp_path / "tribar.toml"
    config.write_text(LIMITS)
    keys, database = _keys_file(tmp_path), tmp_path / "usage.db"
    arguments = [str(write_model(tmp_path)), "--config", str(config), "--api-keys-file", str(keys)]
    with serving(*arguments, "--usage-database", str(database)) as server:
        assert [_n_answers(server, tenant) for tenant in KEYS] == [3, 5, 2]
        text = _scrape(server, KEYS["alice"])
        assert _value(text, 'tribar_limit_refused_total{reason="requests"}') == 3
        assert "alice" not in text
        end = deadline()
        while _usage(server, "bob")["total"]["requests"] != 5:  # it is written down once a second
            assert time.monotonic() < end
        assert _usage(server, "alice", "?start=2020-01-01&end=2020-02-01")["data"] == []
        with pytest.raises(urllib.error.HTTPError) as wrong:
            _usage(server, "alice", "?start=yesterday")
        with wrong.value as answer:
            assert (answer.code, json.load(answer)["error"]["param"]) == (400, "start")
        with server.client(api_key=KEYS["carol"]) as client, pytest.raises(openai.RateLimitError):
            ask(client, "hi")
        assert server.stop() == 0
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT tenant, model, sum(n_requests) FROM tribar_usage GROUP BY 1, 2 ORDER BY 1")
        assert rows.fetchall() == [("alice", "tiny", 3), ("bob", "tiny", 5), ("carol", "tiny", 2)]


class _Traffic:
    """Clients that ask without pause and note how each request ended."""

    def __init__(self, server: Server, n_clients: int = 6) -> None:
        self.outcomes: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._is_over = False
        self._threads = [threading.Thread(target=self._ask, args=(server, i)) for i in range(n_clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self, server: Server, number: int) -> None:
        with server.client() as client:
            while not self._is_over:
                try:
                    outcome = self._one(client, number)
                except openai.APIStatusError as error:
                    outcome = f"{error.status_code} {error.code} {error.response.headers.get('retry-after')}"
                with self._changed:
                    self.outcomes[outcome] += 1
                    self._changed.notify_all()

    def _one(self, client: openai.OpenAI, number: int) -> str:
        if number % 2:
            return "answer" if ask(client, "hi", max_tokens=8) else "empty"
        return "stream" if "".join(stream(client, "hi", max_tokens=8)) else "empty"

    def until(self, outcome: str, n_more: int) -> None:
        with self._changed:
            goal = self.outcomes[outcome] + n_more
            assert self._changed.wait_for(lambda: self.outcomes[outcome] >= goal, 20), self.outcomes

    def stop(self) -> Counter[str]:
        self._is_over = True
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "a request hangs"
        return self.outcomes


def test_valkey_killed_and_restarted_during_traffic(tmp_path: Path) -> None:
    """Every request ends: with its answer, or with a clear 503 while the limits are away. Nothing is restarted.

    The server starts without it, too; and nothing blocks the event loop meanwhile for longer than 100 ms.
    """
    config = tmp_path / "tribar.toml"
    config.write_text("[[limits]]\nrequests_per_minute = 1_000_000\nconcurrent_requests = 100\n")
    model = str(write_model(tmp_path))
    with valkey() as store:
        store.stop()
        with serving(model, "--config", str(config), "--redis-url", store.url) as server:
            _kill_and_restart(store, server)


def _kill_and_restart(store: Valkey, server: Server) -> None:
    server.wait_for_line("does not answer.*starts without it")
    assert server.port
    traffic = _Traffic(server)
    try:
        traffic.until("503 redis_unavailable 1", 10)
        store.start()
        for _ in range(2):
            traffic.until("answer", 10)
            traffic.until("stream", 10)
            store.kill()
            traffic.until("503 redis_unavailable 1", 10)
            store.start()
            traffic.until("answer", 10)
            traffic.until("stream", 10)
    finally:
        outcomes = traffic.stop()
    assert set(outcomes) == {"answer", "stream", "503 redis_unavailable 1"}
    text = _scrape(server, "none")
    assert _value(text, 'tribar_limit_refused_total{reason="unavailable"}') == outcomes["503 redis_unavailable 1"]
    assert _value(text, "tribar_event_loop_blocks_total") == 0, "\n".join(server.lines)
    assert _value(text, "tribar_event_loop_lag_seconds_count") > 10
