"""The engine as a process: law 3 whatever happens to it, exit codes, and that it never outlives its parent."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from tests.process.engines import DEFAULT_MODEL, Engines, Served, client_of, environment
from tests.unit.engine.client_rig import collect, request

from tribar.core.errors import TribarError, Unavailable
from tribar.core.requests import Delta, TextPrompt
from tribar.wire.messages import Hello, ToEngine
from tribar.wire.unix_socket import UnixSocketChannel, UnixSocketEndpoint


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[Engines]:
    made = Engines(tmp_path)
    yield made
    await made.kill_all()


async def open_streams(served: Served, n_streams: int, max_tokens: int = 4000) -> list[AsyncGenerator[Delta, None]]:
    """Streams that have all begun and have, at a millisecond per step, seconds to go."""
    await served.client.wait_ready()
    prepared = await served.client.prepare(request(max_tokens=max_tokens))
    streams = [served.client.generate(prepared) for _ in range(n_streams)]
    for stream in streams:
        await anext(stream)
    return streams


async def ends(streams: list[AsyncGenerator[Delta, None]]) -> list[str]:
    """How each stream ends: the finish reason or the error's name. Anything after that fails."""

    async def end(stream: AsyncGenerator[Delta, None]) -> str:
        word = ""
        try:
            async for delta in stream:
                assert not word
                word = "" if delta.finish is None else delta.finish.reason.value
        except TribarError as error:
            word = type(error).__name__
        assert [delta async for delta in stream] == []
        return word

    return list(await asyncio.gather(*map(end, streams)))


async def text(served: Served, **changes: object) -> str:
    return "".join(delta.text for delta in await collect(served.client, request(**changes)))


async def test_an_idle_engine_ends_at_sigterm_and_takes_its_socket_along(engines: Engines) -> None:
    process = await engines.start(engines.write_spec(DEFAULT_MODEL))
    async with client_of(engines) as served:
        card = await served.client.wait_ready()
        assert (card.name, card.max_model_len, card.vocab_size) == ("m", 8192, 257)
        assert len(await text(served, max_tokens=20)) == 20
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert not engines.socket.exists()


async def test_kill_9_fails_every_open_stream_once_and_the_next_engine_serves(engines: Engines) -> None:
    """Law 3, BUG-013: the second engine takes over the stale socket file; the client finds it by itself."""
    spec = engines.write_spec(DEFAULT_MODEL)
    process = await engines.start(spec)
    async with client_of(engines) as served:
        streams = await open_streams(served, 8)
        waiting = [asyncio.create_task(text(served)) for _ in range(4)]
        process.kill()
        assert await ends(streams) == ["Unavailable"] * 8
        assert [type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == [Unavailable] * 4
        await process.wait()
        with pytest.raises(Unavailable):
            await text(served)
        assert engines.socket.exists()
        await engines.start(spec)
        await served.client.wait_ready()
        assert len(await text(served, max_tokens=5)) == 5
        *failed, last = [report.reason for report in served.observer.reports]
        assert len(failed) >= 8
        assert set(failed) == {"Unavailable"}
        assert last == "length"


async def test_an_engine_that_kills_itself_mid_stream(engines: Engines) -> None:
    """BUG-013: the text so far is delivered, then an error, never a normal end."""
    model = {**DEFAULT_MODEL, "replies": [{"match": "die", "steps": ["last words", {"fault": "kill"}]}]}
    process = await engines.start(engines.write_spec(model))
    async with client_of(engines) as served:
        streams = await open_streams(served, 2)
        dying = served.client.generate(await served.client.prepare(request(prompt=TextPrompt("die"))))
        deltas: list[Delta] = []
        with pytest.raises(Unavailable):
            await read_into(deltas, dying)
        assert "".join(delta.text for delta in deltas) == "last words"
        assert [delta.finish for delta in deltas] == [None] * len(deltas)
        assert await ends(streams) == ["Unavailable"] * 2
        assert await process.wait() == -signal.SIGKILL


async def read_into(deltas: list[Delta], stream: AsyncGenerator[Delta, None]) -> None:
    async for delta in stream:
        deltas.append(delta)  # noqa: PERF401  (what came before an error must be kept)


async def test_a_crash_in_a_step_is_told_to_everybody_and_ends_the_process_with_70(engines: Engines) -> None:
    """BUG-013."""
    model = {**DEFAULT_MODEL, "replies": [{"match": "crash", "steps": ["xy", {"fault": "raise"}]}]}
    process = await engines.start(engines.write_spec(model))
    async with client_of(engines) as served:
        streams = await open_streams(served, 3)
        streams.append(served.client.generate(await served.client.prepare(request(prompt=TextPrompt("crash")))))
        assert await ends(streams) == ["Internal"] * 4
        assert await process.wait() == 70


async def test_sigterm_lets_open_streams_finish_and_refuses_new_ones(engines: Engines) -> None:
    """BUG-087."""
    process = await engines.start(engines.write_spec({"cost": {"step_s": 0.005}}))
    async with client_of(engines) as served:
        streams = await open_streams(served, 3, max_tokens=200)
        process.send_signal(signal.SIGTERM)
        late = "length"
        while late == "length":  # until the signal has been noticed
            [late] = await ends([served.client.generate(await served.client.prepare(request(max_tokens=1)))])
        assert late == "Unavailable"
        assert await ends(streams) == ["length"] * 3
        assert await process.wait() == 0


@pytest.mark.parametrize("grace_s", [0.1, 1000.0])
async def test_streams_left_after_the_grace_are_aborted(engines: Engines, grace_s: float) -> None:
    """Law 3 on a drain; a second SIGTERM does not wait for a long grace."""
    process = await engines.start(engines.write_spec({"cost": {"step_s": 0.01}}, grace_s))
    async with client_of(engines) as served:
        streams = await open_streams(served, 3)
        process.send_signal(signal.SIGTERM)
        if grace_s > 1:
            while await ends([served.client.generate(await served.client.prepare(request(max_tokens=1)))]) == [
                "length"
            ]:
                pass
            process.send_signal(signal.SIGTERM)
        assert await ends(streams) == ["Unavailable"] * 3
        assert await process.wait() == 0
        reasons = [report.reason for report in served.observer.reports]
        assert reasons.count("drain") == 3


async def stderr_of(process: asyncio.subprocess.Process) -> tuple[int, str]:
    _, stderr = await process.communicate()
    assert process.returncode is not None
    return process.returncode, stderr.decode()


async def test_what_cannot_be_loaded_is_one_line_and_78(engines: Engines) -> None:
    good = engines.write_spec(DEFAULT_MODEL)
    broken_spec = engines.directory / "broken.json"
    broken_spec.write_bytes(good.read_bytes().replace(b'"fake"', b'"steam"'))
    for spec, word in [(broken_spec, "steam"), (engines.directory / "none.json", "none.json")]:
        code, stderr = await stderr_of(await engines.start(spec))
        assert (code, stderr.count("\n")) == (78, 1)
        assert stderr.startswith("error: ")
        assert word in stderr
        assert not engines.socket.exists()
    engines.model.write_text('{"depth": "two"}')
    code, stderr = await stderr_of(await engines.start(good))
    assert (code, stderr.count("\n")) == (78, 1)
    assert engines.model.name in stderr


async def test_a_client_of_an_engine_that_fails_to_load_keeps_being_refused(engines: Engines) -> None:
    """Law 3 during load: the Hello of a loading engine is never answered, the line just ends."""
    endpoint = UnixSocketEndpoint(engines.socket)
    engines.model.write_text("{}")
    async with client_of(engines) as served:
        received: list[tuple[int, ToEngine | None]] = []
        while not received:
            received = await asyncio.to_thread(endpoint.poll, 10.0)
        [(_, message)] = received
        assert isinstance(message, Hello)
        endpoint.close()
        with pytest.raises(Unavailable):
            await served.client.prepare(request())
        await engines.start(engines.write_spec(DEFAULT_MODEL))
        await served.client.wait_ready()


async def test_a_second_engine_does_not_take_a_live_socket(engines: Engines) -> None:
    spec = engines.write_spec(DEFAULT_MODEL)
    await engines.start(spec)
    async with client_of(engines) as served:
        await served.client.wait_ready()
        code, stderr = await stderr_of(await engines.start(spec))
        assert code == 70
        assert "another engine listens" in stderr
        assert len(await text(served, max_tokens=3)) == 3


async def connect_for_ever(path: Path) -> None:
    """Until it fails: the kernel closes a dying process's sockets one after the other, the listening one last."""
    while True:
        channel = await UnixSocketChannel.connect(path)
        await channel.close()


async def test_an_engine_dies_with_its_parent(engines: Engines) -> None:
    """Seen from its socket: it ends though nobody signalled it."""
    command = engines.command(engines.write_spec(DEFAULT_MODEL))
    script = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *command, env=environment(), stderr=subprocess.DEVNULL
    )
    engines.started.append(parent)
    async with client_of(engines) as served:
        streams = await open_streams(served, 2)
        parent.kill()
        assert await ends(streams) == ["Unavailable"] * 2
        with pytest.raises(Unavailable):
            await connect_for_ever(engines.socket)


async def test_an_orphan_does_not_start(engines: Engines) -> None:
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await gone.wait()
    spec = engines.write_spec(DEFAULT_MODEL)
    code, stderr = await stderr_of(await engines.start(spec, "--parent-pid", str(gone.pid)))
    assert code == 70
    assert "parent" in stderr
    assert not engines.socket.exists()
