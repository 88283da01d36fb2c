"""What a Python model asks of its server: other models (business logic scripting), loading, metrics."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from prometheus_client import CollectorRegistry
from tests.process.modelserver.python_models import LAB, asked, opened, run, said

from tribar.core.errors import InvalidRequest, NotFound, TribarError
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.backends.python.arena import Arena, Block
from tribar.modelserver.backends.python.backend import PythonBackend
from tribar.modelserver.backends.python.instance import PythonInstance

ASK = (
    "def ask(model, value=1.0, n=1, decoupled=False, **more):\n"
    "    x = pb_utils.Tensor('X', np.full(n, value, np.float32))\n"
    "    return pb_utils.InferenceRequest(model_name=model, inputs=[x], requested_output_names=['Y'], **more)\n"
    "def y(response): return response.error().message() if response.has_error() else "
    "[float(v) for v in response.output_tensors()[0].as_numpy()[:1]] if response.output_tensors() else []\n"
)


class Server:
    """``double`` doubles X, ``count`` streams 0..X-1 and an empty final response, ``bad`` fails."""

    def __init__(self) -> None:
        self.asked: list[InferRequest] = []
        self.n_closed = 0
        self.loaded: dict[str, Mapping[str, object]] = {}

    async def infer(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        self.asked.append(request)
        try:
            x = request.inputs[0].data
            if request.model_name == "double":
                await asyncio.sleep(0)
                yield self._response(2 * x)
            elif request.model_name == "count":
                for i in range(int(x[0])):
                    yield self._response(np.full(len(x), i, np.float32), is_final=False)
                yield InferResponse(model_name="count", model_version="1")
            elif request.model_name == "broken":
                raise OSError("a fault of the server")
            elif request.model_name == "stumble":
                yield InferResponse(model_name="stumble", model_version="1", is_final=False, error=InvalidRequest("oh"))
                yield self._response(x)
            else:
                raise NotFound(f"Request for unknown model: '{request.model_name}' is not found")
        finally:
            self.n_closed += 1

    def is_model_ready(self, name: str, version: str = "") -> bool:
        return name in {"double", "count"} and version in {"", "1"}

    async def load(self, name: str, parameters: Mapping[str, str | bytes | int | bool] | None = None) -> None:
        if name == "broken":
            raise OSError("a fault of the server")
        if name == "nope":
            raise InvalidRequest("failed to load 'nope', failed to poll from model repository")
        self.loaded[name] = parameters or {}

    async def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        self.loaded[name] = {"unloaded": unload_dependents}

    def _response(self, array: npt.NDArray[np.float32], *, is_final: bool = True) -> InferResponse:
        return InferResponse(
            model_name="m", model_version="1", outputs=[Tensor("Y", DataType.FP32, array)], is_final=is_final
        )


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.mark.parametrize("n_elements", [1, 500_000])
async def test_another_models_answer(tmp_path: Path, server: Server, n_elements: int) -> None:
    code = ASK + f"answer = [say(y(ask('double', 21.0, {n_elements}, request_id='r', timeout=5).exec()))]"
    async with opened(tmp_path, infer=server.infer) as instance:
        assert await said(instance, code) == "[42.0]"
    (request,) = server.asked
    assert (request.id, request.timeout_us, request.outputs, request.model_version) == ("r", 5, ["Y"], "")
    assert server.n_closed == 1


async def test_errors_of_other_models_are_responses(tmp_path: Path, server: Server) -> None:
    code = ASK + "r = ask('nope').exec(); answer = [say([r.has_error(), r.error().code().name, y(r)])]"
    expected = "Model nope - Error when running inference: Request for unknown model: 'nope' is not found"
    async with opened(tmp_path, infer=server.infer) as instance:
        assert await said(instance, code) == str([True, "INTERNAL", expected])


async def test_a_decoupled_model_is_iterated(tmp_path: Path, server: Server) -> None:
    code = ASK + "answer = [say([y(r) for r in ask('count', 3.0).exec(decoupled=True)])]"
    stumble = ASK + "answer = [say([y(r) for r in ask('stumble').exec(decoupled=True)])]"
    async with opened(tmp_path, infer=server.infer) as instance:
        assert await said(instance, code) == "[[0.0], [1.0], [2.0], []]"
        assert await said(instance, stumble) == "['oh', [1.0]]"


async def test_a_decoupled_model_needs_the_decoupled_call(tmp_path: Path, server: Server) -> None:
    code = ASK + "answer = [say(y(ask('count', 3.0).exec()))]"
    async with opened(tmp_path, infer=server.infer) as instance:
        assert "Please use 'decoupled=True' argument" in await said(instance, code)
    assert server.n_closed == 1


async def test_an_iterator_that_is_dropped_cancels(tmp_path: Path, server: Server) -> None:
    code = ASK + "responses = ask('count', 1e9).exec(decoupled=True); next(responses); del responses; answer = [say(1)]"
    async with opened(tmp_path, infer=server.infer) as instance:
        await said(instance, code)
        while not server.n_closed:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_calls_of_many_threads_and_coroutines(tmp_path: Path, server: Server) -> None:
    threads = ASK + (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    found = list(pool.map(lambda i: y(ask('double', i).exec())[0], range(40)))\n"
        "answer = [say(found == [2.0 * i for i in range(40)])]"
    )
    source = LAB.replace("def execute", "async def execute").replace(
        "exec(code, names)",
        "exec(code, names); import asyncio; ask, y = names['ask'], names['y']; "
        "found = await asyncio.gather(*(ask('double', i).async_exec() for i in range(40))); "
        "return [say([y(r)[0] for r in found] == [2.0 * i for i in range(40)])]",
    )
    async with opened(tmp_path / "threads", infer=server.infer) as instance:
        assert await said(instance, threads) == "True"
    async with opened(tmp_path / "coroutines", source, infer=server.infer) as instance:
        assert await said(instance, ASK) == "True"


async def test_a_model_may_ask_itself_through_another_instance(tmp_path: Path) -> None:
    """Recursion does not deadlock: the waiting worker's front end goes on serving."""
    code = (
        "depth = float(requests[0].inputs()[1].as_numpy()[0])\n"
        "x = pb_utils.Tensor('X', np.array([depth - 1], np.float32))\n"
        "q = pb_utils.InferenceRequest(model_name='lab', inputs=[requests[0].inputs()[0], x],"
        " requested_output_names=['OUT'])\n"
        "inner = q.exec().output_tensors()[0].as_numpy()[0].decode() if depth > 0 else ''\n"
        "answer = [say(f'{depth:.0f}{inner}')]"
    )
    async with opened(tmp_path / "inner") as inner:
        instances: list[PythonInstance] = [inner]

        async def infer(request: InferRequest) -> AsyncGenerator[InferResponse, None]:
            answers = asked()
            answers.request = request
            await instances[0].execute(Execution([answers]))
            yield InferResponse(model_name="lab", model_version="1", outputs=list(answers.outputs[0].values()))

        async with opened(tmp_path / "outer", infer=infer) as outer:
            one = asked(code, X=np.array([1.0], np.float32))
            await asyncio.wait_for(run(outer, one), 20)
    assert one.said == ["10"]


async def test_the_death_of_a_worker_cancels_its_calls(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def infer(_: InferRequest) -> AsyncGenerator[InferResponse, None]:
        try:
            os_kill.set()
            await asyncio.Event().wait()
            yield InferResponse(model_name="m", model_version="1")
        finally:
            cancelled.set()

    os_kill = asyncio.Event()
    answers = asked(ASK + "threading.Thread(target=lambda: ask('wait').exec()).start()\nself.stop = 1\nwhile 1: pass")
    async with opened(tmp_path, infer=infer) as instance:
        running = asyncio.create_task(run(instance, answers))
        await os_kill.wait()
        assert instance._worker is not None
        instance._worker._process.kill()
        await running
        await cancelled.wait()
    assert isinstance(answers.error, TribarError)


async def test_models_are_loaded_unloaded_and_looked_at(tmp_path: Path, server: Server) -> None:
    code = (
        "ready = [pb_utils.is_model_ready('double'), pb_utils.is_model_ready('double', '2'), "
        "pb_utils.is_model_ready('x')]\n"
        "pb_utils.load_model('m', config='{}', files={'file:1/model.onnx': b'bytes'})\n"
        "pb_utils.unload_model('n', unload_dependents=True)\n"
        "try: pb_utils.load_model('nope')\n"
        "except pb_utils.TritonModelException as error: answer = [say([ready, str(error)])]"
    )
    async with opened(tmp_path, infer=server.infer, control=server) as instance:
        text = await said(instance, code)
    assert text == str(
        [
            [True, False, False],
            "Failed to load model: failed to load 'nope', failed to poll from model repository",
        ]
    )
    assert server.loaded == {"m": {"file:1/model.onnx": b"bytes", "config": "{}"}, "n": {"unloaded": True}}


BROKEN = {
    "y(ask('broken').exec())": "Model broken - Error when running inference: OSError: a fault of the server",
    "[y(r) for r in ask('broken').exec(decoupled=True)][0]": "Model broken - Error when running inference: "
    "OSError: a fault of the server",
    "load()": "Failed to load model: OSError: a fault of the server",
}


@pytest.mark.parametrize("call", BROKEN)
async def test_a_fault_of_the_server_is_an_answer_too(tmp_path: Path, server: Server, call: str) -> None:
    code = ASK + (
        "def load():\n"
        "    try: pb_utils.load_model('broken')\n"
        "    except pb_utils.TritonModelException as error: return str(error)\n"
        f"answer = [say({call})]"
    )
    async with opened(tmp_path, infer=server.infer, control=server) as instance:
        assert await said(instance, code) == BROKEN[call]


async def test_an_answer_that_finds_no_memory_is_an_error(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(arena: Arena, n_bytes: int) -> Block:
        raise OSError("no space left")

    async with opened(tmp_path, infer=server.infer) as instance:
        monkeypatch.setattr(Arena, "take", take)
        text = await said(instance, ASK + "answer = [say(y(ask('double', 1.0, 50_000).exec()))]")
    assert text == "Model double - Error when running inference: OSError: no space left"


async def test_without_a_server_calls_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as instance:
        assert "offers no requests between models" in await said(instance, ASK + "answer = [say(y(ask('m').exec()))]")


async def test_metrics_of_models_are_exported(tmp_path: Path) -> None:
    code = (
        "F = pb_utils.MetricFamily\n"
        "c = F(name='my_calls', description='Calls', kind=F.COUNTER).Metric(labels={'a': 'b'})\n"
        "g = F(name='my_level', description='Level', kind=F.GAUGE).Metric()\n"
        "h = F(name='my_time', description='Time', kind=F.HISTOGRAM).Metric(labels={'a': 'b'}, buckets=[0.1, 1.0])\n"
        "c.increment(2); c.increment(1); g.set(5); g.increment(-2); h.observe(0.5); texts = []\n"
        "for bad in (lambda: c.set(1), lambda: c.increment(-1), lambda: h.value()):\n"
        "    try: bad()\n"
        "    except pb_utils.TritonModelException as error: texts.append(str(error))\n"
        "answer = [say([c.value(), g.value(), texts])]"
    )
    registry = CollectorRegistry()
    async with opened(tmp_path, backend=PythonBackend(registry)) as instance:
        text = await said(instance, code)
    assert text == str(
        [
            3.0,
            3.0,
            [
                "metric 'my_calls': a counter has no set()",
                "metric 'my_calls': a counter is never decremented",
                "metric 'my_time': a histogram has no value()",
            ],
        ]
    )
    assert registry.get_sample_value("my_calls_total", {"a": "b"}) == 3
    assert registry.get_sample_value("my_level") == 3
    assert registry.get_sample_value("my_time_bucket", {"a": "b", "le": "1.0"}) == 1
