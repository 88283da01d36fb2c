"""ONNX models through the model server's scheduler and backend, against bare onnxruntime.

First, what a batch costs more than ``InferenceSession.run`` of the same session options: ResNet-50 with the weights
left out, and a model that computes nothing, where the difference is not lost in the noise. Then two instances, each
with half of the cores, against one with all. Then a network of convolutions in fp32 and in int8.

    python -m benchmarks onnx_backend [--rounds 10] [--batches 1 2 4 8 16 32] [--seconds 4]
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import uvloop
from onnx import helper
from tritonclient.grpc.model_config_pb2 import ModelConfig

from benchmarks.onnx_networks import convolutions, images, quantize, resnet50
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.base import Instance, InstanceSpec
from tribar.modelserver.backends.onnxruntime import OnnxRuntimeBackend
from tribar.modelserver.backends.onnxruntime.session_options import session_options
from tribar.modelserver.batcher import BatchingPolicy
from tribar.modelserver.model_config import complete, signature_of
from tribar.modelserver.outlets import FutureOutlet
from tribar.modelserver.scheduling.instance_groups import thread_shares
from tribar.modelserver.scheduling.instance_scheduler import InstanceScheduler
from tribar.modelserver.scheduling.recorder import Recorder

MAX_BATCH = 32
N_CORES = len(os.sched_getaffinity(0))
N_CLIENTS = 4
CHEAP_FACTOR = 20
"""The model that computes nothing runs so many times more rounds."""

Images = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Subject:
    """A model on disk, and its one input and output."""

    name: str
    directory: Path
    config: ModelConfig

    @classmethod
    def of(cls, name: str, root: Path, proto: onnx.ModelProto) -> "Subject":
        """Written below ``root``."""
        directory = root / name / "1"
        directory.mkdir(parents=True)
        onnx.save(proto, directory / "model.onnx")
        return cls.at(name, directory)

    @classmethod
    def at(cls, name: str, directory: Path) -> "Subject":
        """Of a file that is there."""
        config = ModelConfig(name=name, backend="onnxruntime", max_batch_size=MAX_BATCH)
        config = complete(config, name=name, directory=directory.parent)
        return cls(name, directory, OnnxRuntimeBackend().complete(directory, config))

    def bare(self, n_threads: int = N_CORES) -> onnxruntime.InferenceSession:
        """onnxruntime as the backend uses it."""
        options = session_options(self.config, n_threads=n_threads)
        return onnxruntime.InferenceSession(self.directory / "model.onnx", options, providers=["CPUExecutionProvider"])

    async def served(self, n_instances: int = 1, max_batch: int = MAX_BATCH) -> InstanceScheduler:
        """Instances behind the scheduler that the server would use."""
        signature = signature_of(self.config, versions=[1])
        spec = InstanceSpec(
            name=self.name, index=0, directory=self.directory, version="1", config=self.config, signature=signature
        )
        backend = OnnxRuntimeBackend()
        shares = thread_shares(N_CORES, n_instances)
        instances = [await backend.open(replace(spec, index=i, n_threads=share)) for i, share in enumerate(shares)]
        policy = BatchingPolicy(max_batch_size=max_batch)

        async def open_another(index: int) -> Instance:
            return await backend.open(replace(spec, index=index))

        recorder = Recorder(self.name, "1")
        return InstanceScheduler(signature, "1", policy, instances, open_another, recorder=recorder)

    def request(self, rows: Images) -> InferRequest:
        """One request with so many images."""
        return InferRequest(model_name=self.name, inputs=[Tensor(self.config.input[0].name, DataType.FP32, rows)])


async def ask(scheduler: InstanceScheduler, request: InferRequest) -> InferResponse:
    """One request, as the service asks."""
    future: asyncio.Future[InferResponse] = asyncio.get_running_loop().create_future()
    scheduler.submit(request, FutureOutlet(future, None))
    return await future


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds."""
    start_s = time.perf_counter()
    await work()
    return time.perf_counter() - start_s


async def compare(subject: Subject, rows: Images, rounds: int) -> str:
    """Bare and served in turn: one request of the whole batch, and a request for each row that the batcher joins."""
    session, scheduler = subject.bare(), await subject.served()
    name = session.get_inputs()[0].name
    whole = subject.request(rows)
    parts = [subject.request(rows[row : row + 1]) for row in range(len(rows))]

    async def bare() -> None:
        session.run(None, {name: rows})

    async def joined() -> None:
        await asyncio.gather(*(ask(scheduler, part) for part in parts))

    times_s: dict[str, list[float]] = {"bare": [], "whole": [], "joined": []}
    for _ in range(rounds + 1):
        times_s["bare"].append(await timed(bare))
        times_s["whole"].append(await timed(lambda: ask(scheduler, whole)))
        times_s["joined"].append(await timed(joined))
    await scheduler.close()
    # the first round warms up
    us = {kind: statistics.median(each[1:]) * 1e6 for kind, each in times_s.items()}
    return (
        f"  {subject.name:10} batch {len(rows):2}: bare {us['bare']:10.0f} us   "
        f"one request {us['whole'] - us['bare']:+8.0f} us   {len(rows):2} requests {us['joined'] - us['bare']:+8.0f} us"
    )


async def loaded(subject: Subject, n_instances: int, rows: Images, seconds: float) -> str:
    """Clients that ask one after the other, each with one image, and no batching."""
    scheduler = await subject.served(n_instances, max_batch=1)
    latencies_s: list[float] = []
    end_s = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < end_s:
            latencies_s.append(await timed(lambda: ask(scheduler, subject.request(rows[:1]))))

    spent_s = await timed(lambda: asyncio.gather(*(client() for _ in range(N_CLIENTS))))
    await scheduler.close()
    latencies_s.sort()
    p50, p99 = (latencies_s[int(len(latencies_s) * share)] * 1000 for share in (0.5, 0.99))
    per_s = len(latencies_s) / spent_s
    return f"  {n_instances} instance(s): {per_s:7.1f} images/s   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms"


def precision(root: Path, batch: int, rounds: int) -> Sequence[str]:
    """The same network in fp32 and int8 on images that the calibration has not seen."""
    floats = Subject.of("fp32", root, convolutions())
    (root / "int8" / "1").mkdir(parents=True)
    quantize(floats.directory / "model.onnx", root / "int8" / "1" / "model.onnx")
    rows = images(batch)
    outputs, lines = {}, []
    for subject in (floats, Subject.at("int8", root / "int8" / "1")):
        outputs[subject.name], milliseconds = uvloop.run(_runs(subject, rows, rounds))
        n_bytes = (subject.directory / "model.onnx").stat().st_size
        lines.append(f"  {subject.name}: {milliseconds:7.1f} ms for a batch of {batch}   {n_bytes / 1e6:5.2f} MB")
    delta = np.abs(outputs["fp32"] - outputs["int8"])
    spread = float(outputs["fp32"].std())
    agreement = float((outputs["fp32"].argmax(1) == outputs["int8"].argmax(1)).mean())
    lines.append(
        f"  output delta: mean {delta.mean() / spread:.2%}, largest {delta.max() / spread:.2%} of the logits' spread; "
        f"the same class for {agreement:.0%}"
    )
    return lines


async def _runs(subject: Subject, rows: Images, rounds: int) -> tuple[Images, float]:
    """Outputs, and milliseconds of a batch."""
    scheduler = await subject.served()
    answer = await ask(scheduler, subject.request(rows))
    times_s = [await timed(lambda: ask(scheduler, subject.request(rows))) for _ in range(rounds)]
    await scheduler.close()
    return answer.outputs[0].data, statistics.median(times_s) * 1000


def nothing() -> onnx.ModelProto:
    """A model that gives its 16 numbers back."""
    node = helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])
    given, got = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ("batch", 16)) for name in ("INPUT0", "OUTPUT0")
    )
    graph = helper.make_graph([node], "nothing", [given], [got])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    """Print what the module's text says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="of each comparison; the median counts")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--seconds", type=float, default=4.0, help="of load on the instances")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        network, cheap = Subject.of("resnet50", root, resnet50()), Subject.of("nothing", root, nothing())
        rows = images(max(options.batches), 224)
        print(f"added to bare onnxruntime ({N_CORES} threads)")
        for batch in options.batches:
            print(uvloop.run(compare(network, rows[:batch], options.rounds)))
        for batch in options.batches:
            few = np.zeros((batch, 16), np.float32)
            print(uvloop.run(compare(cheap, few, options.rounds * CHEAP_FACTOR)))
        print(f"ResNet-50, {N_CLIENTS} clients, one image each")
        for n_instances in (1, 2):
            print(uvloop.run(loaded(network, n_instances, rows, options.seconds)))
        print("convolutions in fp32 and int8")
        for line in precision(root, 16, options.rounds):
            print(line)


if __name__ == "__main__":
    main()
