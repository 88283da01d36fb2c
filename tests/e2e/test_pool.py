"""A gateway in front of two servers of our own, one of which is killed under traffic and comes back."""

import signal
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import openai
import pytest
from tests.e2e.server_process import Server, ask, deadline, serving, write_model

SETTINGS = """
[pool]
health_interval = 0.2
breaker_failures = 2
breaker_pause = 0.2
retry_budget = 100

[[upstream]]
name = "a"
url = "{a}"
model = "tiny"
dialect = "tribar"

[[upstream]]
name = "b"
url = "{b}/v1"
model = "tiny"
dialect = "tribar"

[alias]
"gpt-4o" = "tiny"
"""


@contextmanager
def _on_port(port: int, model: Path) -> Iterator[Server]:
    server = Server("--port", str(port), str(model))
    try:
        yield server
    finally:
        server.end()


class Traffic:
    """Threads that ask one question after another; each question ends in exactly one of ``outcomes``."""

    def __init__(self, client: openai.OpenAI, n_threads: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.n_asked = 0
        self._client = client
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask_on, args=(i,)) for i in range(n_threads)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a request never ended"

    def _ask_on(self, number: int) -> None:
        i = 0
        while not self._is_over.is_set():
            i += 1
            with self._lock:
                self.n_asked += 1
            outcome = self._ask(f"brief {number} {i}")
            with self._lock:
                self.outcomes[outcome] += 1

    def _ask(self, text: str) -> str:
        said, finishes = "", []
        try:
            with self._client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": text}], stream=True
            ) as chunks:
                for chunk in chunks:
                    said += chunk.choices[0].delta.content or ""
                    finishes += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
        except openai.APIStatusError as error:
            return f"status {error.status_code}"
        except openai.APIError:
            return "broken off" if not finishes else "failed after its end"
        is_whole = said == "tick " * 20 and finishes == ["stop"]
        return "whole" if is_whole else f"{said!r} {finishes}"


def _metrics(server: Server) -> dict[str, float]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if name.startswith("trib")
    }


def _until(gateway: Server, condition: Callable[[dict[str, float]], bool]) -> None:
    end = deadline()
    while not condition(_metrics(gateway)):
        assert time.monotonic() < end


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path)


@pytest.mark.timeout(180)  # four servers start
def test_an_upstream_is_killed_under_traffic_and_comes_back(model: Path, tmp_path: Path) -> None:
    """Every request ends exactly once: whole, or with an error event where its upstream died in the middle."""
    with ExitStack() as stack:
        a, b = (stack.enter_context(serving(str(model))) for _ in range(2))
        settings = tmp_path / "tribar.toml"
        settings.write_text(SETTINGS.format(a=a.url, b=b.url))
        gateway = stack.enter_context(serving("--config", str(settings)))
        traffic = Traffic(gateway.client(), n_threads=4)
        stack.callback(traffic.end)
        ended = 'tribar_upstream_requests_total{{outcome="ok",upstream="{}"}}'
        _until(gateway, lambda now: now.get(ended.format("a"), 0) > 0 and now.get(ended.format("b"), 0) > 0)

        port = a.port
        a.process.send_signal(signal.SIGKILL)
        _until(gateway, lambda now: now['tribar_upstream_up{upstream="a"}'] == 0)
        since = _metrics(gateway)[ended.format("b")]
        _until(gateway, lambda now: now[ended.format("b")] > since + 5)

        before = _metrics(gateway)[ended.format("a")]
        stack.enter_context(_on_port(port, model))
        _until(gateway, lambda now: now[ended.format("a")] > before)
        traffic.end()

        outcomes = traffic.outcomes
        assert outcomes.total() == traffic.n_asked
        assert set(outcomes) <= {"whole", "broken off"}, outcomes
        assert outcomes["broken off"] <= 4, "at most what ran there when it died"
        now = _metrics(gateway)
        assert (
            now['tribar_upstream_open_requests{upstream="a"}'] == now['tribar_upstream_open_tokens{upstream="b"}'] == 0
        )
        gateway.wait_for_line("the upstream a is left alone|the upstream a is down")
        assert gateway.stop() == 0


@pytest.mark.long
def test_alias_header_and_reload(model: Path, tmp_path: Path) -> None:
    """A hangup makes the gateway read its upstreams again."""
    with ExitStack() as stack:
        a, b = (stack.enter_context(serving(str(model))) for _ in range(2))
        settings = tmp_path / "tribar.toml"
        settings.write_text(SETTINGS.format(a=a.url, b=b.url))
        gateway = stack.enter_context(serving("--config", str(settings)))
        client = gateway.client()
        assert {one.id for one in client.models.list()} == {"tiny", "gpt-4o"}
        raw = client.chat.completions.with_raw_response.create(
            model="gpt-4o", messages=[{"role": "user", "content": "fish"}]
        )
        assert raw.headers["x-tribar-upstream"] in {"a", "b"}
        answer = raw.parse()
        assert (answer.model, answer.choices[0].message.content) == ("gpt-4o", "A fish: 🐟.")
        assert answer.usage is not None
        assert answer.usage.completion_tokens > 5

        settings.write_text("[[upstream]]\nname = 'a'\n")
        gateway.process.send_signal(signal.SIGHUP)
        gateway.wait_for_line("the upstreams stay as they were: .*needs url and model")
        settings.write_text(SETTINGS.format(a=a.url, b=b.url).replace('"gpt-4o"', '"other"').replace('"a"', '"c"'))
        gateway.process.send_signal(signal.SIGHUP)
        gateway.wait_for_line("2 upstreams serve tiny, other")
        assert {one.id for one in client.models.list()} == {"tiny", "other"}
        assert ask(client, "fish") == "A fish: 🐟."


@pytest.mark.long
def test_the_own_engine_in_a_pool(model: Path, tmp_path: Path) -> None:
    with serving(str(model)) as far:
        settings = tmp_path / "tribar.toml"
        settings.write_text(
            f'[[upstream]]\nname = "far"\nurl = "{far.url}"\nmodel = "tiny"\ndialect = "tribar"\n'
            '[[upstream]]\nname = "here"\nkind = "engine"\n[pool]\nhealth_interval = 0.1\n'
        )
        with serving("--config", str(settings), str(model)) as gateway:
            _until(gateway, lambda now: now['tribar_upstream_up{upstream="here"}'] == 1)
            client = gateway.client()
            told = Counter(
                client.chat.completions.with_raw_response.create(
                    model="tiny", messages=[{"role": "user", "content": f"question {i}"}], max_tokens=2
                ).headers["x-tribar-upstream"]
                for i in range(24)
            )
            assert set(told) == {"far", "here"}
