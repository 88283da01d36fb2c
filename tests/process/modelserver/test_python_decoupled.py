"""Response senders, decoupled models and asynchronous ``execute``."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.process.modelserver.python_models import LAB, Answers, asked, decoupled, opened, run, said

from tribar.core.errors import Internal, InvalidRequest
from tribar.core.inference import Parameters
from tribar.core.tensors import Tensor

ASYNC_LAB = LAB.replace("def execute", "async def execute").replace(
    "exec(code, names)", "exec('async def run():\\n ' + code + '\\n return answer', names); return await names['run']()"
)


async def ended(answers: Answers) -> Answers:
    await answers.ended.wait()
    return answers


@pytest.mark.parametrize("n_responses", [0, 1, 3])
async def test_any_number_of_responses(tmp_path: Path, n_responses: int) -> None:
    """BUG-075: the final flag comes with the last, or alone."""
    code = (
        "s = requests[0].get_response_sender()\n"
        f"for i in range({n_responses}): s.send(say(i))\n"
        "s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
    )
    answers = asked(code)
    async with opened(tmp_path, config=decoupled()) as instance:
        await run(instance, answers)
        await ended(answers)
    assert [list(outputs) for outputs in answers.outputs] == [["OUT"]] * n_responses + [[]]


async def test_responses_come_from_threads_while_others_execute(tmp_path: Path) -> None:
    code = (
        "def later(s):\n"
        "    for i in range(3): s.send(say(i)); self.go.acquire()\n"
        "    s.send(say('last'), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n"
        "self.go = threading.Semaphore(0)\n"
        "threading.Thread(target=later, args=(requests[0].get_response_sender(),)).start()"
    )
    slow = asked(code)
    async with opened(tmp_path, config=decoupled()) as instance:
        await run(instance, slow)
        for _ in range(3):
            await run(
                instance, await_ := asked("self.go.release(); requests[0].get_response_sender().send(say('x'), 1)")
            )
            await ended(await_)
        await ended(slow)
    assert slow.said == ["0", "1", "2", "last"]


async def test_many_large_responses_arrive_whole(tmp_path: Path) -> None:
    code = (
        "s = requests[0].get_response_sender()\n"
        "for i in range(40):\n"
        "    s.send(pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.full(100_000, i, np.float32))]))\n"
        "s.send(flags=1)"
    )

    class Sums(Answers):
        def send(
            self, outputs: Sequence[Tensor], *, parameters: Parameters | None = None, is_final: bool = True
        ) -> None:
            sums.extend(float(tensor.data.sum()) for tensor in outputs)
            super().send((), parameters=parameters, is_final=is_final)

    sums: list[float] = []
    answers = Sums(asked(code).request)
    async with opened(tmp_path, config=decoupled()) as instance:
        await run(instance, answers)
        await ended(answers)
    assert sums == [i * 100_000.0 for i in range(40)]


OUT_OF_TURN = {
    "s.send(say(1), 7)": "Unable to send response. Unsupported flag provided.",
    "s.send()": "Inference Response object must be provided when the response flags is set to zero.",
    "s.send(flags=1)": "Unable to send response. Non-decoupled model cannot send complete final before sending a "
    "response.",
    "s.send(say('sent')); s.send(say(2))": "Unable to send response. Non-decoupled model cannot send more than one "
    "response.",
    "s.send(say('sent'), 1); s.send(say(2), 1)": "Unable to send response. Response sender has been closed.",
}


@pytest.mark.parametrize("code", OUT_OF_TURN)
async def test_a_sender_out_of_turn(tmp_path: Path, code: str) -> None:
    lines = (
        "s = requests[0].get_response_sender()\n"
        f"try: {code}\n"
        "except pb_utils.TritonModelException as error: self.text = str(error)\n"
        f"{'' if 'sent' in code else 's.send(say(1))'}"
    )
    answers = asked(lines)
    async with opened(tmp_path) as instance:
        await run(instance, answers)
        assert await said(instance, "answer = [say(self.text)]") == OUT_OF_TURN[code]
    assert answers.said == ["sent" if "sent" in code else "1"]


async def test_a_sender_may_answer_later_than_execute(tmp_path: Path) -> None:
    """The batch is not over before."""
    code = (
        "s = requests[0].get_response_sender()\n"
        "threading.Timer(0.05, lambda s=s: s.send(say('later'), 1)).start()\n"
        "answer = [None, say('at once')]"
    )
    batch = [asked(code), asked()]
    async with opened(tmp_path) as instance:
        await run(instance, *batch)
        assert [answers.said for answers in batch] == [["later"], ["at once"]]


async def test_a_decoupled_model_fails_what_it_has_not_answered(tmp_path: Path) -> None:
    code = "requests[0].get_response_sender().send(say('done'), 1)\nraise ValueError('boom')"
    batch = [asked(code), asked()]
    returning, dropping = asked("answer = []"), asked("pass")
    async with opened(tmp_path, config=decoupled()) as instance:
        await run(instance, *batch)
        await run(instance, returning)
        await run(instance, dropping)
        for answers in (*batch, returning, dropping):
            await ended(answers)
    assert batch[0].said == ["done"]
    assert "ValueError: boom" in batch[1].error.message
    assert "is using the decoupled mode and the execute function must return None." in returning.error.message
    assert dropping.error.message == "the model 'lab_0' dropped the request without a final response"


async def test_an_error_amid_a_stream(tmp_path: Path) -> None:
    code = (
        "s = requests[0].get_response_sender()\n"
        "bad = pb_utils.TritonError('bad', pb_utils.TritonError.INVALID_ARG)\n"
        "s.send(pb_utils.InferenceResponse(error=bad)); s.send(say('good'), 1)"
    )
    answers = asked(code)
    async with opened(tmp_path, config=decoupled()) as instance:
        await run(instance, answers)
        await ended(answers)
    assert isinstance(answers.error, InvalidRequest)
    assert answers.said == ["good"]


async def test_a_model_can_ask_whether_it_is_cancelled(tmp_path: Path) -> None:
    code = "s = requests[0].get_response_sender(); s.send(say([s.is_cancelled(), requests[0].is_cancelled()]), 1)"
    waiting, gone = asked(code), asked(code)
    gone.nobody_waits = True
    async with opened(tmp_path, config=decoupled()) as instance:
        for answers in (waiting, gone):
            await run(instance, answers)
            await ended(answers)
    assert waiting.said == ["[False, False]"]
    assert gone.said == ["[True, True]"]


async def test_a_death_ends_open_streams(tmp_path: Path) -> None:
    keep = asked("self.sender = requests[0].get_response_sender(); self.sender.send(say(1))")
    async with opened(tmp_path, config=decoupled()) as instance:
        await run(instance, keep)
        await run(instance, asked("os._exit(2)"))
        await ended(keep)
    assert isinstance(keep.error, Internal)


async def test_async_execute(tmp_path: Path) -> None:
    batch = [asked("import asyncio; await asyncio.sleep(0); answer = [say(1), say(2)]"), asked()]
    failing = asked("raise ValueError('boom')")
    async with opened(tmp_path, ASYNC_LAB) as instance:
        await run(instance, *batch)
        await run(instance, failing)
    assert [answers.said for answers in batch] == [["1"], ["2"]]
    assert "ValueError: boom" in failing.error.message


async def test_async_execute_of_a_decoupled_model_overlaps(tmp_path: Path) -> None:
    """The second batch runs while the first one waits for it."""
    import_ = "import asyncio; "
    first = asked(
        import_ + "self.event = asyncio.Event(); s = requests[0].get_response_sender(); await self.event.wait(); "
        "s.send(say('first'), 1); answer = None"
    )
    second = asked("requests[0].get_response_sender().send(say('second'), 1); self.event.set(); answer = None")
    failing = asked("raise ValueError('boom')")
    async with opened(tmp_path, ASYNC_LAB, decoupled()) as instance:
        for answers in (first, second, failing):
            await run(instance, answers)
        await asyncio.gather(*(ended(answers) for answers in (first, second, failing)))
    assert (first.said, second.said) == (["first"], ["second"])
    assert "ValueError: boom" in failing.error.message


async def test_large_inputs_reach_a_thread_of_a_decoupled_model(tmp_path: Path) -> None:
    code = (
        "def later(request):\n"
        "    self.go.wait()\n"
        "    request.get_response_sender().send(say(request.inputs()[1].as_numpy().sum()), 1)\n"
        "self.go = threading.Event(); threading.Thread(target=later, args=(requests[0],)).start()"
    )
    kept = asked(code, X=np.ones(100_000, np.float32))
    async with opened(tmp_path, config=decoupled()) as instance:
        await run(instance, kept)
        for _ in range(3):
            other = asked("requests[0].get_response_sender().send(say(0), 1)", X=np.zeros(100_000, np.float32))
            await run(instance, other)
        await run(instance, asked("self.go.set(); requests[0].get_response_sender().send(say(0), 1)"))
        await ended(kept)
    assert kept.said == ["100000.0"]
