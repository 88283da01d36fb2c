"""The life of a worker process: its start, its deaths, its end, what it prints."""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from tests.process.modelserver.python_models import CONFIG, LAB, asked, opened, run, said, spec_of, write_model

from tribar.core.errors import BadModelFile, Internal, InvalidRequest, TribarError, Unavailable, Unsupported
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.backends.python.backend import PythonBackend
from tribar.modelserver.backends.python.instance import PythonInstance
from tribar.modelserver.backends.python.link import Link


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def pid_of(instance: PythonInstance) -> int:
    assert instance.worker_pid is not None
    return instance.worker_pid


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


BROKEN = {
    "raise ImportError('no such thing')": "ImportError: no such thing\n\nAt:\n  {path}(1): <module>\n",
    "x = (": "SyntaxError: '(' was never closed (model.py, line 1)",
    "class Model: pass": "AttributeError: module '1.model' has no attribute 'TritonPythonModel'",
    "class TritonPythonModel: pass":
    "TritonModelException: Python model file {path} does not implement `execute` method.",
    "class TritonPythonModel:\n def initialize(self, args):\n  raise ValueError('boom')\n def execute(self, r): pass":
    "ValueError: boom\n\nAt:\n  {path}(3): initialize\n",
    "import os; os._exit(5)": "the worker process of 'lab_0' ended (exit code 5)",
    "import os; os.kill(os.getpid(), 9)": "the worker process of 'lab_0' ended (killed by SIGKILL)",
}  # fmt: skip


@pytest.mark.parametrize("source", BROKEN)
async def test_a_model_that_cannot_start(tmp_path: Path, source: str) -> None:
    """BUG-076: the reason is the model's own, and no process is left."""
    version = write_model(tmp_path / "lab", source)
    before = children()
    with pytest.raises(TribarError) as failure:
        await PythonBackend().open(spec_of(version))
    assert failure.value.message == BROKEN[source].format(path=version / "model.py")
    assert children() == before


async def test_files_and_settings_that_cannot_be(tmp_path: Path) -> None:
    version = write_model(tmp_path / "lab", LAB)
    backend = PythonBackend()
    (version / "model.py").unlink()
    with pytest.raises(BadModelFile, match=r"Python model file not found in '.*/lab/1/model.py'"):
        await backend.open(spec_of(version))
    config = version.parent / "config.pbtxt"
    config.write_text(CONFIG + 'default_model_filename: "model.txt"')
    with pytest.raises(InvalidRequest, match=r"must end with '\.py'"):
        await backend.open(spec_of(version))
    config.write_text(CONFIG + 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "x.tar.gz" } }')
    with pytest.raises(Unsupported, match="EXECUTION_ENV_PATH is not supported"):
        await backend.open(spec_of(version))


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("os._exit(3)", "exit code 3"),
        ("os.closerange(3, 100); threading.Event().wait()", "killed by SIGKILL"),
        ("os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("if os.fork() == 0: os._exit(0)\nos._exit(4)", "exit code 4"),
        ("if os.fork() == 0: threading.Event().wait()\nos._exit(6)", "exit code 6"),
    ],
)
async def test_a_death_fails_its_requests_and_the_next_ones_find_another_worker(
    tmp_path: Path, code: str, how: str
) -> None:
    async with opened(tmp_path) as instance:
        first_pid = pid_of(instance)
        batch = [asked(code), asked()]
        await run(instance, *batch)
        assert [type(answers.error) for answers in batch] == [Internal, Internal]
        assert batch[0].error.message == f"the worker process of 'lab_0' ended ({how})"
        assert await said(instance, "answer = [say('again')]") == "again"
        assert pid_of(instance) != first_pid


async def test_a_kill_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    answers = asked("print('inside', flush=True); threading.Event().wait()", X=np.zeros(100_000, np.float32))
    async with opened(tmp_path) as instance:
        running = asyncio.create_task(run(instance, answers))
        await until(lambda: _is_busy(instance))
        os.kill(pid_of(instance), signal.SIGKILL)
        await running
        assert answers.error.message == "the worker process of 'lab_0' ended (killed by SIGKILL)"
        assert await said(instance, "answer = [say('again')]") == "again"


def _is_busy(instance: PythonInstance) -> bool:
    worker = instance._worker
    return worker is not None and bool(worker.link._batches)


async def test_workers_that_keep_dying_are_put_off(tmp_path: Path) -> None:
    """The first restart is at once; while the model cannot start, requests are refused with a time to come back."""
    source = LAB.replace("self.args = args", f"self.args = args; os.path.exists({str(tmp_path / 'dead')!r}) and 1 / 0")
    async with opened(tmp_path, source) as instance:
        (tmp_path / "dead").touch()
        await run(instance, asked("os._exit(1)"))
        with pytest.raises(Unavailable) as refusal:
            await run(instance, asked("answer = [say(1)]"))
        assert refusal.value.retry_after_s is not None
        assert 0 < refusal.value.retry_after_s <= 0.5
        (tmp_path / "dead").unlink()
        await until(lambda: instance.worker_pid is not None)
        assert await said(instance, "answer = [say('again')]") == "again"


async def test_close_finalizes(tmp_path: Path) -> None:
    mark = tmp_path / "finalized"
    source = LAB.replace(
        "    def execute", f"    def finalize(self):\n        open({str(mark)!r}, 'w').close()\n\n    def execute"
    )
    async with opened(tmp_path, source) as instance:
        pid = pid_of(instance)
        assert not mark.exists()
    assert mark.exists()
    assert not psutil.pid_exists(pid)
    await instance.close()


async def test_a_loop_without_end_is_killed_at_close(tmp_path: Path) -> None:
    answers = asked("while True: pass")
    version = write_model(tmp_path / "lab", LAB)
    instance = await PythonBackend(finalize_grace_s=0.2).open(spec_of(version))
    assert isinstance(instance, PythonInstance)
    pid = pid_of(instance)
    running = asyncio.create_task(instance.execute(Execution([answers])))
    await until(lambda: _is_busy(instance))
    await instance.close()
    await running
    assert isinstance(answers.error, Internal)
    assert not psutil.pid_exists(pid)


async def test_what_a_model_prints_is_logged_line_by_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    code = (
        "print('to stdout'); print('to stderr', file=sys.stderr); os.system('echo from a child')\n"
        "pb_utils.Logger.log_warn('a warning'); answer = [say(1)]"
    )
    async with opened(tmp_path) as instance:
        await said(instance, code)
    records = {record.getMessage(): record for record in caplog.records}
    assert {"to stdout", "to stderr", "from a child", "a warning"} <= set(records)
    assert records["a warning"].levelno == logging.WARNING
    assert vars(records["to stdout"])["instance"] == "lab_0"


async def test_a_flood_of_prints_is_held_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with opened(tmp_path) as instance:
        await said(instance, "for i in range(12_000): print('x' * 99)\nanswer = [say(1)]")
    logged = [record for record in caplog.records if re.fullmatch("x{99}", record.getMessage())]
    assert len(logged) == 12_000


async def test_the_worker_ends_with_its_parent(tmp_path: Path) -> None:
    """Even one that is busy: nothing reads the socket then."""
    version = write_model(tmp_path / "lab", LAB)
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from tests.process.modelserver.python_models import asked, run, spec_of\n"
        "from tribar.modelserver.backends.python.backend import PythonBackend\n"
        "async def main():\n"
        f"    instance = await PythonBackend().open(spec_of(Path({str(version)!r})))\n"
        "    task = asyncio.create_task(run(instance, asked('while True: pass')))\n"
        "    await asyncio.sleep(0)\n"
        "    print(instance.worker_pid, flush=True)\n"
        "    await task\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert parent.stdout is not None
    worker = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    await until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


async def test_a_start_is_given_up_just_as_the_model_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    receive = Link.data_received

    def give_up_and_receive(link: Link, data: bytes) -> None:
        opening.cancel()
        receive(link, data)

    monkeypatch.setattr(Link, "data_received", give_up_and_receive)
    before = children()
    opening = asyncio.create_task(PythonBackend().open(spec_of(write_model(tmp_path / "lab", LAB))))
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert children() == before
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_threads_share_the_instances_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    async with opened(tmp_path) as instance:
        code = "answer = [say([os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS']])]"
        assert await said(instance, code) == "['1', '7']"


async def test_a_steady_load_allocates_nothing(tmp_path: Path) -> None:
    code = "answer = [pb_utils.InferenceResponse([pb_utils.Tensor('Y', r.inputs()[-1].as_numpy())]) for r in requests]"
    sizes = []
    async with opened(tmp_path) as instance:
        for _ in range(20):
            await run(instance, *(asked(code, X=np.zeros(50_000, np.float32)) for _ in range(4)))
            worker = instance._worker
            assert worker is not None
            sizes.append((worker.link._arena.file_bytes, os.fstat(worker._process.outputs).st_size))
    assert sizes[3:] == sizes[3:4] * 17


UNSENDABLE = {
    "answer = [pb_utils.InferenceResponse(parameters={'n': 2**70})]": "parameter 'n'",
    "answer = [pb_utils.InferenceResponse(parameters={'s': chr(0xd800)})]": "valid Unicode",
    "r = pb_utils.InferenceResponse(); r._parameters = {'n': 2**70}; answer = [r]": "OverflowError",
    "raise ValueError(chr(0xd800))": r"ValueError: \ud800",
    "answer = [pb_utils.InferenceResponse(error=pb_utils.TritonError(chr(0xd800)))]": r"\ud800",
    "from tribar.modelserver.backends.python.arena import Arena\n"
    "def take(arena, n_bytes): raise OSError('no space left')\n"
    "Arena.take = take\n"
    "answer = [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(50_000, np.float32))])]": "no space left",
}


@pytest.mark.parametrize("code", UNSENDABLE)
async def test_what_cannot_be_sent_fails_its_batch_only(tmp_path: Path, code: str) -> None:
    async with opened(tmp_path) as instance:
        first_pid = pid_of(instance)
        answers = asked(code)
        await run(instance, answers)
        assert UNSENDABLE[code] in answers.error.message
        assert await said(instance, "answer = [say('again')]") == "again"
        assert pid_of(instance) == first_pid


async def test_a_response_that_cannot_be_sent_leaves_its_request_open(tmp_path: Path) -> None:
    code = (
        "s = requests[0].get_response_sender()\n"
        "r = pb_utils.InferenceResponse(); r._parameters = {'n': 2**70}\n"
        "try: s.send(r, 1)\n"
        "except OverflowError: s.send(say('instead'), 1)"
    )
    answers = asked(code)
    async with opened(tmp_path) as instance:
        await run(instance, answers)
    assert answers.said == ["instead"]


async def test_a_sender_that_was_faster_than_the_returned_response(tmp_path: Path) -> None:
    """Both think that they are the first: the second answer is dropped."""
    code = (
        "s = requests[0].get_response_sender(); s.send(say('sender'), 1)\n"
        "s.close = lambda: True\n"
        "answer = [say('returned')]"
    )
    answers = asked(code)
    async with opened(tmp_path) as instance:
        first_pid = pid_of(instance)
        await run(instance, answers)
        assert answers.said == ["sender"]
        assert await said(instance, "answer = [say('again')]") == "again"
        assert pid_of(instance) == first_pid


async def test_an_error_that_cannot_be_written_is_one(tmp_path: Path) -> None:
    """The worker goes on: the model's own ``__str__`` fails, and the error is of that type all the same."""
    code = "class Odd(Exception):\n def __str__(self): raise RuntimeError('no')\nraise Odd"
    async with opened(tmp_path) as instance:
        pid = pid_of(instance)
        await run(instance, answers := asked(code))
        assert "message: Odd: <its message cannot be had: RuntimeError>" in str(answers.error)
        assert pid_of(instance) == pid


@pytest.mark.parametrize(
    "code",
    ["raise ValueError('e' * 10**7)", "answer = [pb_utils.InferenceResponse(error=pb_utils.TritonError('e' * 10**7))]"],
)
async def test_long_errors_lose_their_middle(tmp_path: Path, code: str) -> None:
    async with opened(tmp_path) as instance:
        await run(instance, answers := asked(code))
    message = str(answers.error)
    assert "characters are left out ...]" in message
    assert 16_000 < len(message) < 33_000


@pytest.mark.parametrize(
    "code",
    [
        "if os.fork() == 0: sys.exit(7)\nassert os.waitstatus_to_exitcode(os.wait()[1]) == 7\nanswer = [say(1)]",
        "if os.fork() == 0: raise KeyError\nassert os.waitstatus_to_exitcode(os.wait()[1]) == 1\nanswer = [say(1)]",
        "child = os.fork()\nif child: assert os.waitstatus_to_exitcode(os.wait()[1]) == 0\nanswer = [say(1)]",
    ],
    ids=["exits", "raises", "returns"],
)
async def test_a_forked_process_is_no_second_worker(tmp_path: Path, code: str) -> None:
    """It comes out of ``execute`` as the worker does, and would answer for it, and take its next message."""
    async with opened(tmp_path) as instance:
        pid = pid_of(instance)
        for _ in range(3):
            assert [float(part) for part in await said(instance, code)] == [1.0]
        assert pid_of(instance) == pid


async def test_a_forked_process_cannot_ask_the_server(tmp_path: Path) -> None:
    code = (
        "if os.fork() == 0:\n try: pb_utils.Logger.log_info('x')\n except pb_utils.TritonModelException: os._exit(9)\n"
        "answer = [say(os.waitstatus_to_exitcode(os.wait()[1]))]"
    )
    async with opened(tmp_path) as instance:
        assert [float(part) for part in await said(instance, code)] == [9.0]


async def test_what_is_no_message_ends_the_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its request fails with the reason, and the next one finds another worker."""
    code = (
        "import socket\nfor fd in range(3, 256):\n"
        " try: socket.socket(fileno=fd).sendall(bytes([1, 0, 0, 0, 193]))\n except OSError: pass"
    )
    async with opened(tmp_path) as instance:
        await run(instance, answers := asked(code))
        assert "the worker process of 'lab_0' ended (killed by SIGKILL)" in str(answers.error)
        assert [float(part) for part in await said(instance, "answer = [say(2)]")] == [2.0]
    assert "what it sent is no message" in caplog.text
    assert not [record for record in caplog.records if record.name == "asyncio"]
