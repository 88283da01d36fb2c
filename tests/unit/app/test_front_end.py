"""An engine that cannot start ends the front end, with the engine's own last words."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import tribar.app.hosted_engine
from tribar.app.config import ModelConfig, ServeConfig
from tribar.app.edge import Edge
from tribar.app.front_end import FrontEnd
from tribar.app.hosted_engine import MAX_EARLY_DEATHS
from tribar.app.listener import bind
from tribar.app.machine import MachineFacts
from tribar.app.model import OpenedModel, open_model
from tribar.app.resolve import ResolvedConfig, resolve
from tribar.core.errors import Internal
from tribar.engine.client import EngineClient

MACHINE = MachineFacts(cores=1, memory_bytes=4 << 30, available_bytes=4 << 30)


@pytest.fixture
def opened(tmp_path: Path) -> OpenedModel:
    path = tmp_path / "tiny.fake.json"
    path.write_text(json.dumps({}))
    return open_model(ModelConfig(model=str(path)))


async def run(opened: OpenedModel, resolved: ResolvedConfig, directory: Path) -> int:
    with bind("127.0.0.1", 0) as listener:
        front_end = FrontEnd(
            ServeConfig().server, MACHINE, listener, directory, Edge(), language_model=(opened, resolved)
        )
        return await asyncio.wait_for(front_end.run(Console(quiet=True), 0.0), 30)


async def test_a_model_that_the_engine_refuses(opened: OpenedModel, tmp_path: Path) -> None:
    resolved = resolve(ServeConfig(), MACHINE, opened.facts)
    vanished = replace(resolved, runner_config=replace(resolved.runner_config, model_path=tmp_path / "gone.fake.json"))
    with pytest.raises(Internal, match=r"^\S+gone\.fake\.json: cannot be read: No such file or directory$"):
        await run(opened, vanished, tmp_path)


async def test_an_engine_that_crashes_while_it_starts(
    opened: OpenedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started again, but not for ever: a server that never was ready gives up."""
    starts = tmp_path / "starts"
    (tmp_path / "crashing_engine.py").write_text(
        f"import sys; open({str(starts)!r}, 'a').write('x'); sys.exit('no luck')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tribar.app.hosted_engine, "ENGINE_TARGET", "crashing_engine")
    with pytest.raises(Internal, match="the engine ended with exit code 1 while it started: no luck"):
        await run(opened, resolve(ServeConfig(), MACHINE, opened.facts), tmp_path)
    assert len(starts.read_text()) == MAX_EARLY_DEATHS


async def test_a_client_that_breaks_ends_the_server(
    opened: OpenedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose line to its engine is served by nobody would accept requests and answer none."""

    async def breaks(_client: EngineClient) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(EngineClient, "run", breaks)
    with pytest.raises(RuntimeError, match="a bug"):
        await run(opened, resolve(ServeConfig(), MACHINE, opened.facts), tmp_path)
