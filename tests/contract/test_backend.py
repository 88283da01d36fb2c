"""What every backend of the model server does alike (``modelserver.backends.base``)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest
from tests.contract.backend_cases import BACKENDS, BackendCase

from tribar.core.errors import Cancelled, TribarError
from tribar.core.inference import InferRequest, Parameters
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.base import Backend, Execution, Instance, InstanceSpec
from tribar.modelserver.model_config import complete, signature_of


class RecordedReply:
    """One request of a batch, and what came back."""

    def __init__(self, rows: Sequence[Sequence[float]], *, is_cancelled: bool = False) -> None:
        array = np.array(rows, np.float32)
        array.flags.writeable = False
        self.request = InferRequest(model_name="m", inputs=[Tensor("INPUT0", DataType.FP32, array)])
        self.sent: list[Sequence[Tensor]] = []
        self.errors: list[TribarError] = []
        self.n_final = 0
        self._is_cancelled = is_cancelled

    def is_cancelled(self) -> bool:
        return self._is_cancelled

    def watch(self, taken: Callable[[], None]) -> None:
        raise AssertionError("only a decoupled model watches")

    def send(self, outputs: Sequence[Tensor], *, parameters: Parameters | None = None, is_final: bool = True) -> None:
        assert self.n_final == 0
        self.sent.append(outputs)
        self.n_final += is_final

    def fail(self, error: TribarError, *, is_final: bool = True) -> None:
        assert self.n_final == 0
        self.errors.append(error)
        self.n_final += is_final

    @property
    def output(self) -> Tensor:
        ((tensor,),) = self.sent
        return tensor


@pytest.fixture(params=BACKENDS)
def case(request: pytest.FixtureRequest) -> BackendCase:
    return BACKENDS[request.param]


def spec_of(backend: Backend, directory: Path, case: BackendCase, *, is_broken: bool = False) -> InstanceSpec:
    directory.mkdir(parents=True, exist_ok=True)
    config = (case.write_broken if is_broken else case.write_identity)(directory)
    config.name = "m"
    names = {config.backend}
    config = complete(config, name="m", directory=directory.parent, backends=names)
    config = complete(backend.complete(directory, config), name="m", directory=directory.parent, backends=names)
    return InstanceSpec(
        name="m_0",
        index=0,
        directory=directory,
        version=directory.name,
        config=config,
        signature=signature_of(config, versions=[1]),
    )


@asynccontextmanager
async def opened(case: BackendCase, folder: Path, n_instances: int = 1) -> AsyncGenerator[list[Instance], None]:
    backend = case.make_backend()
    spec = await asyncio.to_thread(spec_of, backend, folder / "m/1", case)
    instances = await asyncio.gather(*(backend.open(replace(spec, index=n, name=f"m_{n}")) for n in range(n_instances)))
    try:
        yield list(instances)
    finally:
        await asyncio.gather(*(instance.close() for instance in instances))


async def execute(instance: Instance, *replies: RecordedReply) -> Execution:
    size = sum(reply.request.inputs[0].shape[0] for reply in replies)
    execution = Execution(replies, start_ns=perf_counter_ns(), batch_size=size)
    await instance.execute(execution)
    return execution


async def test_the_files_complete_the_configuration(case: BackendCase, tmp_path: Path) -> None:
    backend = case.make_backend()
    signature = (await asyncio.to_thread(spec_of, backend, tmp_path / "m/1", case)).signature
    for spec, name in ((signature.inputs["INPUT0"], "INPUT0"), (signature.outputs["OUTPUT0"], "OUTPUT0")):
        assert (spec.name, spec.datatype, spec.dims) == (name, DataType.FP32, (-1,))
    assert signature.max_batch_size == 8


async def test_everyone_in_a_batch_gets_his_own(case: BackendCase, tmp_path: Path) -> None:
    async with opened(case, tmp_path) as (instance,):
        for batch in ([[[1.0, 2.0]]], [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0]]]):
            replies = [RecordedReply(rows) for rows in batch]
            await execute(instance, *replies)
            for reply, rows in zip(replies, batch, strict=True):
                assert reply.n_final == 1
                assert (reply.output.name, reply.output.datatype) == ("OUTPUT0", DataType.FP32)
                assert reply.output.data.tolist() == rows


async def test_rows_without_elements(case: BackendCase, tmp_path: Path) -> None:
    """BUG-072."""
    async with opened(case, tmp_path) as (instance,):
        reply = RecordedReply([[], []])
        await execute(instance, reply)
        assert reply.output.shape == (2, 0)


async def test_what_was_answered_outlives_the_next_batch(case: BackendCase, tmp_path: Path) -> None:
    async with opened(case, tmp_path) as (instance,):
        first, second = RecordedReply([[1.0, 2.0]]), RecordedReply([[8.0, 9.0]])
        await execute(instance, first)
        await execute(instance, second)
        assert first.output.data.tolist() == [[1.0, 2.0]]


async def test_who_left_is_no_obstacle(case: BackendCase, tmp_path: Path) -> None:
    async with opened(case, tmp_path) as (instance,):
        left, stays = RecordedReply([[1.0]], is_cancelled=True), RecordedReply([[2.0]])
        await execute(instance, left, stays)
        assert stays.output.data.tolist() == [[2.0]]
        assert all(isinstance(error, Cancelled) for error in left.errors)


async def test_stamps_are_in_order(case: BackendCase, tmp_path: Path) -> None:
    async with opened(case, tmp_path) as (instance,):
        execution = await execute(instance, RecordedReply([[1.0]]))
        stamps = [execution.start_ns, execution.input_end_ns, execution.output_start_ns, perf_counter_ns()]
        given = [stamp for stamp in stamps if stamp]
        assert given == sorted(given)


async def test_instances_run_side_by_side(case: BackendCase, tmp_path: Path) -> None:
    async with opened(case, tmp_path, n_instances=2) as instances:
        replies = [RecordedReply([[float(n)]]) for n in range(2)]
        await asyncio.gather(*(execute(instance, reply) for instance, reply in zip(instances, replies, strict=True)))
        assert [reply.output.data.tolist() for reply in replies] == [[[0.0]], [[1.0]]]


async def test_closing_twice_is_closing(case: BackendCase, tmp_path: Path) -> None:
    async with opened(case, tmp_path) as (instance,):
        await instance.close()


async def test_a_broken_model_is_told_of(case: BackendCase, tmp_path: Path) -> None:
    """BUG-076."""
    backend = case.make_backend()
    with pytest.raises(TribarError):
        await backend.open(await asyncio.to_thread(_broken, backend, tmp_path / "m/1", case))


def _broken(backend: Backend, directory: Path, case: BackendCase) -> InstanceSpec:
    return spec_of(backend, directory, case, is_broken=True)
