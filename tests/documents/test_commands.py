"""Every command that the documents and ``--help`` show is one that works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import NAMES
from tests.documents.commands import commands, rehearse
from tests.documents.markdown import DOCUMENTS, ROOT, blocks, read, spans, table_with

from tribar.app.cli import main
from tribar.app.option_kinds import Size
from tribar.app.settings import options
from tribar.gateway.config import GatewayConfig

PLAIN_FLAGS = {"--config", "--debug", "--help", "--url", "--system", "--temperature", "--max-tokens", "--tenant"}
EXTRAS = re.findall(r"^(\w+) = \[", read("pyproject.toml").split("[project.optional-dependencies]")[1], flags=re.M)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model repository and the settings of docs/serving.md; none in the environment."""
    for name in os.environ:
        if name.startswith("TRIBAR_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "tribar.toml").write_text(blocks(read("docs/serving.md"), "toml")[0])
    (tmp_path / "models/resnet/1").mkdir(parents=True)
    (tmp_path / "models/resnet/1/model.onnx").touch()
    return tmp_path


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_blocks(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``curl`` is run in tests/e2e, where there is a server."""
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), flags=re.M))
    for words in (words for block in blocks(read(str(document)), "bash") for words in commands(block)):
        match words:
            case ["tribar", *arguments]:
                rehearse(monkeypatch, arguments)
            case ["make", target, *_]:
                assert target in targets
            case [".venv/bin/python", "-m", "benchmarks", name, *_]:
                assert name in NAMES
            case [".venv/bin/tribar", *arguments]:
                rehearse(monkeypatch, arguments)
            case [".venv/bin/pip", "install", "--editable", package]:
                assert re.fullmatch(rf"\.\[({'|'.join(EXTRAS)})\]", package)
            case [".venv/bin/python", path]:
                assert (ROOT / path).is_file()
            case [command, *_]:
                assert command in {"curl", "echo"}, f"{document.name}: nobody checks {words}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_flags_and_extras_exist(document: Path) -> None:
    settings = {option.flag for option in options().values()}
    switches = {f"--no-{flag[2:]}" for flag in settings}
    for span in spans(read(str(document))):
        unknown = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", span)) - settings - switches - PLAIN_FLAGS
        assert not unknown, f"{document.name}: `{span}`"
        assert set(re.findall(r"\[(torch|hf|models)\]", span)) <= set(EXTRAS)


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("command", ["", "serve", "engine", "pull", "chat", "keys new", "models validate"])
def test_examples_of_help(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    examples = [line for line in lines[lines.index("  Examples:") + 1 :] if line.strip()]
    assert len(examples) >= 2
    for line in examples:
        (words,) = [words for words in commands(re.sub(r" {2,}\S.*", "", line.strip())) if words[0] == "tribar"]
        rehearse(monkeypatch, words[1:])


@pytest.mark.parametrize("name", NAMES)
def test_benchmarks_have_help_and_are_described(name: str) -> None:
    """Nothing is measured here: each one imports, and says what it shows."""
    assert f"| `python -m benchmarks {name}` |" in read("docs/performance.md")
    shown = [sys.executable, "-m", "benchmarks", name, "--help"]
    run = subprocess.run(shown, capture_output=True, text=True, timeout=50, check=True, cwd=ROOT)
    assert f"python -m benchmarks {name}" in run.stdout


def test_options_of_benchmarks_exist() -> None:
    for words in (words for block in blocks(read("docs/performance.md"), "bash") for words in commands(block)):
        source = read(f"benchmarks/{words[3]}.py")
        for flag in words[4:]:
            assert not flag.startswith("--") or f'add_argument("{flag}"' in source


def test_probed_routes_are_those_of_the_server() -> None:
    (probes,) = blocks(read("docs/serving.md"), "yaml")
    source = read("src/tribar/gateway/app.py")
    for path in re.findall(r"path: (/[\w/]+)", probes):
        assert f'Route("{path}"' in source


STRUCTURE = {"upstream", "server", "listen", "server_name", "location", "proxy_pass"}


@pytest.mark.parametrize("document", ["docs/serving.md", "docs/serving.zh-CN.md"])
def test_the_proxy(document: str) -> None:
    """BUG-018: it does not buffer, compress or cut a stream; each directive that matters is explained, and no other."""
    text = read(document)
    (proxy,) = blocks(text, "nginx")
    assert proxy.count("{") == proxy.count("}")
    statements = [re.split(r"\s+", line.strip().rstrip(";")) for line in re.findall(r"^\s+\w.*;", proxy, flags=re.M)]
    assert {"proxy_buffering off", "gzip off", "proxy_http_version 1.1"} <= {
        " ".join(words[:2]) for words in statements
    }
    names = {" ".join(words[: 2 if words[0] == "proxy_set_header" else 1]) for words in statements}
    explained = {name for row in table_with(text, "`proxy_buffering`") for name in re.findall(r"`([^`]+)`", row[0])}
    assert {name for name in names if not name.startswith("ssl_")} - STRUCTURE == explained
    size = dict(words[:2] for words in statements)["client_max_body_size"]
    assert Size().parse(size.replace("m", "MiB")) == GatewayConfig().max_body_bytes
    wait_s = float(dict(words[:2] for words in statements)["proxy_read_timeout"].removesuffix("s"))
    assert wait_s > 2 * GatewayConfig().ping_interval_s
