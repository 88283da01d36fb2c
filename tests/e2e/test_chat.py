"""``tribar chat`` with a pipe on standard input, with and without a server."""

from pathlib import Path

from tests.e2e.server_process import serving, write_model
from tests.e2e.tribar_command import run_tribar


def test_a_conversation_through_a_pipe(tmp_path: Path) -> None:
    talk = "a fish?\n\n/clear\n/help\nhello\n/quit\nnot read\n"
    result = run_tribar("chat", str(write_model(tmp_path)), "--max-tokens", "40", text=talk)
    assert result.returncode == 0, result.stderr
    first, help_line, *rest = result.stdout.splitlines()
    assert first == "A fish: \N{FISH}."
    assert help_line.startswith("/clear forgets")
    assert rest == ["user: hello", "assistant: "]
    assert result.stderr == ""


def test_a_question_that_fails_is_reported_and_the_talk_goes_on(tmp_path: Path) -> None:
    model = str(write_model(tmp_path, context_length=64))
    result = run_tribar("chat", model, text="x" * 200 + "\na fish?\n")
    assert result.returncode == 1
    assert result.stderr.startswith("error: the prompt has ")
    assert result.stdout == "A fish: \N{FISH}.\n"


def test_a_conversation_with_a_server(tmp_path: Path) -> None:
    with serving(str(write_model(tmp_path))) as server:
        result = run_tribar("chat", "--url", server.url, "--system", "Be brief", text="hello\n")
        assert (result.returncode, result.stdout, result.stderr) == (0, "tick " * 20 + "\n", "")
        result = run_tribar("chat", "other", "--url", f"{server.url}/v1", text="a fish?\n")
        assert result.returncode == 1
        assert result.stderr == "error: the model 'other' does not exist; served models: tiny\n"


def test_without_a_server() -> None:
    result = run_tribar("chat", "--url", "http://127.0.0.1:9", text="hello\n")
    assert result.returncode == 1
    assert result.stderr.startswith("error: no server answers at http://127.0.0.1:9")
    assert "try: tribar serve" in result.stderr
    assert run_tribar("chat", "--url", "ftp://x", text="hello\n").stderr.startswith("error: not a server's URL")
