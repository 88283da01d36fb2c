"""The supervisor against tiny real programs: crash loops, bad configurations, deaf and orphaned processes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tribar.app.ledger import Ledger
from tribar.app.supervisor import EX_CONFIG, ProcessState, ProcessSupervisor, RestartPolicy
from tribar.core.errors import Conflict, NotFound, Overloaded
from tribar.core.ports import ProcessSpec

FAST = RestartPolicy(first_delay_s=0.001, max_delay_s=0.004, healthy_s=1000)


class Lines:
    """Collects (name, line) and lets a test wait for a line."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._changed = asyncio.Event()

    def __call__(self, name: str, line: str) -> None:
        self.all.append(f"{name}: {line}")
        self._changed.set()

    async def until(self, is_there: Callable[[list[str]], bool]) -> None:
        while not is_there(self.all):
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)

    async def word(self, word: str) -> str:
        """What follows the first ``word`` in a line."""
        await self.until(lambda lines: any(word in line for line in lines))
        return next(line.split(word, 1)[1].strip() for line in self.all if word in line)


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
async def supervisor(lines: Lines) -> AsyncIterator[ProcessSupervisor]:
    made = ProcessSupervisor(Ledger(cores=2, memory_bytes=1000), lines, lines, policy=FAST)
    yield made
    await made.stop_all(0.0)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ProcessSpec]:
    """Write a module and return the spec that runs it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(source: str, *arguments: str, name: str = "worker", memory_bytes: int = 0) -> ProcessSpec:
        (tmp_path / f"program_{name}.py").write_text("import os, signal, subprocess, sys\n" + source)
        return ProcessSpec(name, f"program_{name}", arguments, tmp_path / "s", memory_bytes=memory_bytes)

    return make


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] != "Z"


async def until_dead(pidfd: int) -> None:
    """A pidfd becomes readable when its process ends."""
    dead = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, dead.set)
    await asyncio.wait_for(dead.wait(), 20)
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)


class Exits:
    """An exit callback that lets a test wait for the n-th exit."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self._changed = asyncio.Event()

    async def __call__(self, code: int) -> None:
        self.codes.append(code)
        self._changed.set()

    async def at_least(self, n: int) -> list[int]:
        while len(self.codes) < n:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)
        return self.codes


FOREVER = "print('ready', os.getpid(), flush=True)\nsignal.pause()\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER


async def test_a_crash_loop_restarts_with_growing_delays(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec], lines: Lines
) -> None:
    exits = Exits()
    supervisor.on_exit("worker", exits)
    await supervisor.spawn(program("sys.exit('out of luck')\n"))
    codes = await exits.at_least(4)
    await supervisor.stop("worker", 5)
    assert set(codes) == {1}
    delays = [line.rpartition(" in ")[2] for line in lines.all if "starting again" in line]
    assert delays[:4] == ["0.001 s", "0.002 s", "0.004 s", "0.004 s"][: len(delays)]
    assert len(delays) >= 3
    assert "worker: out of luck" in lines.all
    assert supervisor.status("worker").state is ProcessState.STOPPED


async def test_a_healthy_life_resets_the_delay(lines: Lines, program: Callable[..., ProcessSpec]) -> None:
    now = iter(range(0, 10_000, 100))  # every look at the clock is 100 s later: each life counts as healthy
    policy = RestartPolicy(first_delay_s=0.001, max_delay_s=10, healthy_s=60)
    supervisor = ProcessSupervisor(
        Ledger(cores=1, memory_bytes=0), lines, lines, policy=policy, clock=lambda: float(next(now))
    )
    exits = Exits()
    supervisor.on_exit("worker", exits)
    await supervisor.spawn(program("sys.exit(3)\n"))
    await exits.at_least(3)
    await supervisor.stop("worker", 5)
    assert {line.rpartition(" in ")[2] for line in lines.all if "starting again" in line} == {"0.001 s"}


async def test_exit_code_78_is_not_restarted_and_leaves_its_last_line(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec]
) -> None:
    exits = Exits()
    supervisor.on_exit("worker", exits)
    await supervisor.spawn(
        program(f"print('loading', file=sys.stderr)\nprint('bad file', file=sys.stderr)\nsys.exit({EX_CONFIG})")
    )
    assert await exits.at_least(1) == [EX_CONFIG]
    await supervisor.stop("worker", 5)
    status = supervisor.status("worker")
    assert (status.n_starts, status.exit_code, status.last_line, status.pid) == (1, EX_CONFIG, "bad file", None)


async def test_a_killed_process_comes_back(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec], lines: Lines
) -> None:
    exits = Exits()
    supervisor.on_exit("worker", exits)
    await supervisor.spawn(program(FOREVER))
    first = int(await lines.word("ready"))
    os.kill(first, signal.SIGKILL)
    assert await exits.at_least(1) == [-signal.SIGKILL]
    await lines.until(lambda all_lines: sum("ready" in line for line in all_lines) == 2)
    status = supervisor.status("worker")
    assert status.state is ProcessState.RUNNING
    assert status.pid not in (None, first)
    await supervisor.stop("worker", 5)
    assert exits.codes[1:] == [-signal.SIGTERM]


async def test_a_deaf_process_is_killed_after_the_grace(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec], lines: Lines
) -> None:
    await supervisor.spawn(program(DEAF))
    pid = int(await lines.word("ready"))
    await supervisor.stop("worker", 0.05)
    assert not is_alive(pid)
    assert supervisor.status("worker").exit_code == -signal.SIGKILL


async def test_descendants_end_with_their_parent(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec], lines: Lines
) -> None:
    """No orphans, and a grandchild that keeps the pipe open does not keep ``wait`` from returning."""
    source = "child = subprocess.Popen(['sleep', '1000'])\nprint('child', child.pid, flush=True)\nsignal.pause()\n"
    await supervisor.spawn(program(source))
    grandchild = int(await lines.word("child"))
    pidfd = os.pidfd_open(grandchild)
    pid = supervisor.status("worker").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await lines.until(lambda all_lines: any("starting again" in line for line in all_lines))
    await until_dead(pidfd)


async def test_a_descendant_outside_the_group_does_not_hold_up_the_restart(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec], lines: Lines
) -> None:
    source = "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\nsys.exit(f'child {child.pid}')\n"
    exits = Exits()
    supervisor.on_exit("worker", exits)
    await supervisor.spawn(program(source))
    await exits.at_least(1)
    await supervisor.stop("worker", 5)
    for line in [line for line in lines.all if "child" in line]:
        os.kill(int(line.rpartition(" ")[2]), signal.SIGKILL)


async def test_stopping_during_the_back_off_starts_nothing(lines: Lines, program: Callable[..., ProcessSpec]) -> None:
    policy = RestartPolicy(first_delay_s=1000, max_delay_s=1000)
    supervisor = ProcessSupervisor(Ledger(cores=1, memory_bytes=0), lines, lines, policy=policy)
    await supervisor.spawn(program("sys.exit(1)\n"))
    await lines.word("starting again")
    assert supervisor.status("worker").state is ProcessState.BACKING_OFF
    await supervisor.stop("worker", 5)
    assert supervisor.status("worker").n_starts == 1


async def test_one_name_is_one_process_and_memory_is_promised_once(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec]
) -> None:
    await supervisor.spawn(program(FOREVER, name="first", memory_bytes=600))
    with pytest.raises(Conflict, match="first"):
        await supervisor.spawn(program(FOREVER, name="first"))
    with pytest.raises(Overloaded, match="400 are left"):
        await supervisor.spawn(program(FOREVER, name="second", memory_bytes=600))
    await supervisor.stop("first", 5)
    await supervisor.spawn(program(FOREVER, name="second", memory_bytes=600))
    with pytest.raises(NotFound, match="third"):
        await supervisor.stop("third", 5)


async def test_output_is_forwarded_whole_and_bounded(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec], lines: Lines
) -> None:
    source = "os.write(2, b'a' * 1_000_000 + b'\\nshort\\xff\\n\\nno newline')\nsys.exit(78)\n"
    exits = Exits()
    supervisor.on_exit("worker", exits)
    await supervisor.spawn(program(source))
    await exits.at_least(1)
    assert lines.all == [f"worker: {'a' * 4096} [cut]", "worker: short\ufffd", "worker: no newline"]


async def test_a_failing_listener_does_not_end_the_keeping_alive(
    supervisor: ProcessSupervisor, program: Callable[..., ProcessSpec]
) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

    async def fail(code: int) -> None:
        raise RuntimeError(code)

    exits = Exits()
    supervisor.on_exit("worker", fail)
    supervisor.on_exit("worker", exits)
    await supervisor.spawn(program("sys.exit(1)\n"))
    await exits.at_least(2)
    assert isinstance(reported[0], RuntimeError)


def test_the_ledger_keeps_its_sums(tmp_path: Path) -> None:
    ledger = Ledger(cores=2, memory_bytes=100)
    for name in "ab":
        ledger.reserve(ProcessSpec(name, "m", (), tmp_path, cores=2, memory_bytes=40))
        ledger.check()
    assert (ledger.cores_promised, ledger.memory_promised_bytes) == (4, 80)
    ledger.release("a")
    assert (ledger.cores_promised, ledger.memory_promised_bytes) == (2, 40)
