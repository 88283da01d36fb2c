"""Keys, tenants, deadlines and the end of a server, over HTTP and with a real engine behind it."""

import http.client
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.e2e.server_process import Server, ask, deadline, serving, stream, write_model

from tribar.app.api_keys import entry_for, new_key

ALICE, BOB = new_key(), new_key()
BLOCK = 16
SECRET = "The number of the safe is 27-13-99; nobody else may ever know it. " * 4
PUBLIC = "You answer for the city library, in one sentence and without opinions. "


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("edge")
    write_model(made, context_length=1 << 16)  # room for an answer that outlasts every deadline
    (made / "keys.toml").write_text(entry_for(ALICE, "alice") + entry_for(BOB, "bob"))
    (made / "prefix.txt").write_text(PUBLIC + "\n")
    return made


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Server]:
    model, keys, prefix = (str(directory / name) for name in ("tiny.fake.json", "keys.toml", "prefix.txt"))
    with serving(model, "--api-keys-file", keys, "--public-prefix", prefix) as running:
        yield running


def n_cached(server: Server, key: str, *turns: tuple[str, str]) -> int:
    """Cached tokens of a chat (or of a plain prompt, where the only turn has no role)."""
    client: Any = openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
    with client:
        if turns[0][0]:
            messages = [{"role": role, "content": content} for role, content in turns]
            usage = client.chat.completions.create(model="tiny", messages=messages, max_tokens=1).usage
        else:
            usage = client.completions.create(model="tiny", prompt=turns[0][1], max_tokens=1).usage
    return int(usage.prompt_tokens_details.cached_tokens)


def test_one_tenants_prompt_is_not_in_the_others_cache(server: Server) -> None:
    """BUG-030: the same prompt is new for the other tenant, and stays a hit for its own."""
    assert n_cached(server, ALICE, ("user", SECRET)) < BLOCK
    assert n_cached(server, BOB, ("user", SECRET)) < BLOCK
    for key in (ALICE, BOB):
        assert n_cached(server, key, ("user", SECRET)) >= len(SECRET) - BLOCK


@pytest.mark.parametrize("n_guessed", [BLOCK, 4 * BLOCK, len(SECRET)])
def test_guesses_of_another_tenants_prompt_never_hit(server: Server, n_guessed: int) -> None:
    """BUG-030: nor do they make the owner's own hits go away."""
    secret = f"{n_guessed}: {SECRET}"
    assert n_cached(server, ALICE, ("", secret)) == 0
    assert n_cached(server, BOB, ("", secret[:n_guessed] + "?" * BLOCK)) == 0
    assert n_cached(server, ALICE, ("", secret)) == len(secret) // BLOCK * BLOCK


def test_the_public_prefix_is_shared_and_no_more(server: Server) -> None:
    """BUG-030: as a system message and as the beginning of a plain prompt; the file's last line feed is no part."""
    whole_blocks = len(PUBLIC) // BLOCK * BLOCK
    n_cached(server, ALICE, ("system", PUBLIC), ("user", SECRET))
    n_public = n_cached(server, BOB, ("system", PUBLIC), ("user", SECRET))
    assert whole_blocks <= n_public < len(PUBLIC) + 4 * BLOCK
    assert n_cached(server, ALICE, ("", PUBLIC + SECRET)) in {0, whole_blocks}
    assert n_cached(server, BOB, ("", PUBLIC + SECRET)) == whole_blocks
    assert n_cached(server, ALICE, ("", PUBLIC + SECRET)) > len(SECRET)


def test_without_a_key_nothing_is_served(server: Server) -> None:
    """BUG-088: through the whole server; and with one it is known whose request it was only inside."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=ALICE[:-1], max_retries=0)
    with client, pytest.raises(openai.AuthenticationError, match="not valid"):
        ask(client, "hello")
    for path, key, status in (("/metrics", "", 401), ("/metrics", BOB, 200), ("/health/ready", "", 200)):
        assert get(server, path, key)[0] == status
    assert not any(key in line for key in (ALICE, BOB) for line in server.lines)


def test_a_deadline_ends_an_answer(server: Server) -> None:
    """504, or an error event after the text that came in time; and the engine is free again."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=ALICE, max_retries=0) as client:
        soon = {"x-tribar-deadline-ms": "1500"}
        with pytest.raises(openai.InternalServerError, match="deadline") as ended:
            ask(client, "endless", extra_headers=soon)
        assert ended.value.status_code == 504
        pieces = stream(client, "endless", extra_headers=soon)
        assert next(pieces)
        with pytest.raises(openai.APIError, match="deadline"):
            list(pieces)
        assert ask(client, "a fish?", extra_headers={"x-tribar-deadline-ms": "30000"}) == "A fish: \N{FISH}."


def test_sighup_reads_the_keys_again(directory: Path, tmp_path: Path) -> None:
    """One that was taken out is refused, a new one is served; a broken file changes nothing."""
    file = tmp_path / "keys.toml"
    file.write_text(entry_for(ALICE, "alice"))
    with serving(str(directory / "tiny.fake.json"), "--api-keys-file", str(file)) as server:
        assert (get(server, "/v1/models", ALICE)[0], get(server, "/v1/models", BOB)[0]) == (200, 401)
        file.write_text(entry_for(BOB, "bob"))
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_line("1 API keys are valid now")
        assert (get(server, "/v1/models", ALICE)[0], get(server, "/v1/models", BOB)[0]) == (401, 200)
        file.write_text("[[keys")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_line("the API keys stay as they were: .*keys.toml")
        assert get(server, "/v1/models", BOB)[0] == 200
        assert server.stop() == 0


@pytest.fixture
def unlike_nohup() -> Iterator[None]:
    """A child inherits what is ignored: so does a server of tests that nohup runs."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("unlike_nohup")
def test_a_hangup_without_keys_drains(directory: Path) -> None:
    """BUG-087: a closed terminal cuts no answer short and leaves nothing behind."""
    with serving(str(directory / "tiny.fake.json")) as server:
        client = server.client()
        held = stream(client, "brief")
        first = next(held)
        server.process.send_signal(signal.SIGHUP)
        assert first + "".join(held) == "tick " * 20
        client.close()
        assert server.wait() == 0
        assert server.left_files() == []


def test_keys_in_the_environment(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They protect the server, and the engine's process does not get them."""
    monkeypatch.setenv("TRIBAR_API_KEYS", f"alice:{ALICE},{BOB}")
    with serving(str(directory / "tiny.fake.json")) as server:
        assert [get(server, "/v1/models", key)[0] for key in (ALICE, BOB, "x" * 16)] == [200, 200, 401]
        environment = Path(f"/proc/{server.engine().pid}/environ").read_bytes()
        assert b"PATH=" in environment
        assert ALICE.encode() not in environment


@pytest.mark.parametrize("with_keys", [False, True])
def test_only_a_public_server_without_keys_warns(directory: Path, with_keys: bool) -> None:
    keys = ["--api-keys-file", str(directory / "keys.toml")] if with_keys else []
    with serving(str(directory / "tiny.fake.json"), "--host", "0.0.0.0", *keys) as server:
        server.wait_for_line(r"URL +http://localhost:\d+")
        warned = [line for line in server.lines if "can be reached from the network" in line]
        assert len(warned) == (0 if with_keys else 1)


def test_a_broken_keys_file_keeps_the_server_from_starting(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text("[[keys]]")
    with serving(str(directory / "tiny.fake.json"), "--api-keys-file", str(tmp_path / "keys.toml")) as server:
        assert server.wait() == 2
        assert server.lines[-1].startswith("error: ")
        assert "entry 1: hash must be" in server.lines[-1]


def test_a_drain_delay_serves_while_unready(directory: Path) -> None:
    """BUG-087: load balancers are given time to notice; a second signal does not wait for it."""
    with serving(str(directory / "tiny.fake.json"), "--drain-delay", "600") as server:
        client = server.client()
        assert ask(client, "a fish?")
        kept = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        server.process.send_signal(signal.SIGTERM)
        until_unready(server)
        assert ask(client, "a fish?") == "A fish: \N{FISH}."
        assert "".join(stream(client, "brief")) == "tick " * 20
        with kept:  # a client with a connection of its own is sent away with its next answer
            kept.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while piece := kept.recv(4096):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM


def test_after_the_delay_it_drains(directory: Path) -> None:
    """BUG-087: whoever is refused is told to come back, on another connection; what runs goes on."""
    with serving(str(directory / "tiny.fake.json"), "--drain-delay", "0.1") as server:
        client = server.client()
        held = stream(client, "endless")
        assert next(held)
        server.process.send_signal(signal.SIGTERM)
        give_up_s = deadline()
        while (refused := post(server, b'{"model":"tiny","prompt":"x"}'))[0] == 200:
            assert time.monotonic() < give_up_s
        assert (refused[0], refused[1]["connection"]) == (503, "close")
        assert int(refused[1]["retry-after"]) >= 1
        assert next(held)
        held.close()  # type: ignore[attr-defined]
        assert server.wait() == 0


def get(server: Server, path: str, key: str = "") -> tuple[int, http.client.HTTPMessage]:
    return exchange(server, "GET", path, None, {"Authorization": f"Bearer {key}"} if key else {})


def post(server: Server, body: bytes) -> tuple[int, http.client.HTTPMessage]:
    return exchange(server, "POST", "/v1/completions", body, {"Content-Type": "application/json"})


def exchange(
    server: Server, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers
    finally:
        connection.close()


def until_unready(server: Server) -> None:
    give_up_s = deadline()
    while get(server, "/health/ready")[0] == 200:
        assert time.monotonic() < give_up_s
