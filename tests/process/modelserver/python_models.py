"""Python models for tests: written to a folder, opened by the backend, asked through replies that remember."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.errors import TribarError
from tribar.core.inference import InferRequest, Parameters
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.base import AsyncResponses, Execution, InstanceSpec, ModelControl
from tribar.modelserver.backends.python.backend import PythonBackend
from tribar.modelserver.backends.python.instance import PythonInstance
from tribar.modelserver.model_config.signatures import signature_of
from tribar.modelserver.model_config.text import parse_config

CONFIG = """
name: "lab" backend: "python" max_batch_size: 0
input [
  { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "X" data_type: TYPE_FP32 dims: [ -1 ] optional: true }
]
output [
  { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
]
"""

LAB = """
import json, os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        self.kept = []

    def execute(self, requests):
        code = pb_utils.get_input_tensor_by_name(requests[0], "CODE").as_numpy()[0].decode()
        names = {"self": self, "requests": requests, "answer": None, "say": say, **globals()}
        exec(code, names)
        return names["answer"]

def say(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(value)], object))])
"""
"""Runs the code that a request brings, as its ``answer``."""


@dataclass
class Answers:
    """A reply that keeps what it gets. ``ended`` is set by the final answer."""

    request: InferRequest
    outputs: list[dict[str, Tensor]] = field(default_factory=list)
    parameters: list[Parameters | None] = field(default_factory=list)
    errors: list[TribarError] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    nobody_waits: bool = False
    taken: Callable[[], None] = lambda: None

    def is_cancelled(self) -> bool:
        return self.nobody_waits

    def watch(self, taken: Callable[[], None]) -> None:
        self.taken = taken

    def send(self, outputs: Sequence[Tensor], *, parameters: Parameters | None = None, is_final: bool = True) -> None:
        assert not self.ended.is_set()
        self.outputs.append({tensor.name: tensor for tensor in outputs})
        self.parameters.append(parameters)
        self.taken()
        if is_final:
            self.ended.set()

    def fail(self, error: TribarError, *, is_final: bool = True) -> None:
        assert not self.ended.is_set()
        self.errors.append(error)
        self.taken()
        if is_final:
            self.ended.set()

    @property
    def said(self) -> list[str]:
        """The texts of the output OUT, of all responses."""
        return [element.decode() for outputs in self.outputs for element in outputs["OUT"].data] if self.outputs else []

    @property
    def error(self) -> TribarError:
        """The one error."""
        (error,) = self.errors
        return error


def tensor(name: str, array: npt.NDArray[Any]) -> Tensor:
    """A tensor of numpy's type; of text where the elements are."""
    for datatype in DataType:
        if datatype is not DataType.BF16 and datatype.dtype == array.dtype:
            return Tensor(name, datatype, array)
    elements = np.array([str(item).encode() for item in array.ravel()], object)
    return Tensor(name, DataType.BYTES, elements.reshape(array.shape))


def asked(code: str = "", **arrays: npt.NDArray[Any]) -> Answers:
    """A request to the lab model."""
    inputs = [tensor(name, array) for name, array in arrays.items()]
    if code:
        inputs.insert(0, Tensor("CODE", DataType.BYTES, np.array([code.encode()], object)))
    return Answers(InferRequest(model_name="lab", inputs=inputs))


def write_model(directory: Path, source: str, config: str = CONFIG, **files: str) -> Path:
    """A model's version directory."""
    version = directory / "1"
    version.mkdir(parents=True, exist_ok=True)
    (directory / "config.pbtxt").write_text(config)
    (version / "model.py").write_text(source)
    for name, text in files.items():
        (version / f"{name}.py").write_text(text)
    return version


def spec_of(
    version: Path,
    infer: "Callable[[InferRequest], AsyncResponses] | None" = None,
    control: ModelControl | None = None,
) -> InstanceSpec:
    """An instance of the model in this directory."""
    path = version.parent / "config.pbtxt"
    config = parse_config(path.read_text(), file=str(path))
    return InstanceSpec(
        name=f"{config.name}_0",
        index=0,
        directory=version,
        version=version.name,
        config=config,
        signature=signature_of(config, versions=[int(version.name)]),
        infer=infer,
        control=control,
    )


@contextlib.asynccontextmanager
async def opened(
    directory: Path,
    source: str = LAB,
    config: str = CONFIG,
    backend: PythonBackend | None = None,
    **options: Any,
) -> AsyncIterator[PythonInstance]:
    """A running instance of a model with this source."""
    version = write_model(directory / "lab", source, config)
    instance = await (backend or PythonBackend()).open(spec_of(version, **options))
    assert isinstance(instance, PythonInstance)
    try:
        yield instance
    finally:
        await instance.close()


async def run(instance: PythonInstance, *answers: Answers) -> Execution:
    """Execute one batch."""
    execution = Execution(answers, batch_size=len(answers))
    await instance.execute(execution)
    return execution


async def said(instance: PythonInstance, code: str, **arrays: npt.NDArray[Any]) -> str:
    """What the lab model answers to ``code``."""
    answers = asked(code, **arrays)
    await run(instance, answers)
    assert not answers.errors, answers.errors
    (text,) = answers.said
    return text


def decoupled(config: str = CONFIG) -> str:
    """The same model, decoupled."""
    return config + "model_transaction_policy { decoupled: true }"
