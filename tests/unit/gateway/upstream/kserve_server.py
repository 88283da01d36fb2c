"""A scripted language model behind KServe's gRPC in the test's own loop."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio
import orjson
from tritonclient.grpc import service_pb2, service_pb2_grpc

Step = str | asyncio.Event | tuple[grpc.StatusCode, str] | dict[str, Any]
"""A text is a response, an event is waited for, a status ends the call, a dict is the last response's outputs."""

VLLM = {
    "text_input": "BYTES",
    "stream": "BOOL",
    "sampling_parameters": "BYTES",
    "exclude_input_in_output": "BOOL",
    "return_finish_reason": "BOOL",
    "return_num_input_tokens": "BOOL",
    "return_num_output_tokens": "BOOL",
}
"""What Triton's vLLM backend declares."""

TENSORRT_LLM = {
    "text_input": "BYTES",
    "max_tokens": "INT32",
    "stop_words": "BYTES",
    "temperature": "FP32",
    "top_p": "FP32",
    "top_k": "INT32",
    "random_seed": "UINT64",
    "repetition_penalty": "FP32",
    "stream": "BOOL",
}

_FORMATS = {"BOOL": "?", "INT32": "i", "UINT64": "Q", "FP32": "f"}


class KServeServer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """``asked`` are the inputs of the requests so far, as values."""

    def __init__(
        self, script: Callable[[dict[str, Any]], Iterable[Step]], inputs: dict[str, str] = VLLM, n_dims: int = 1
    ) -> None:
        self.script = script
        self.inputs = inputs
        self.n_dims = n_dims
        self.is_ready = True
        self.address = ""
        self.asked: list[dict[str, Any]] = []
        self.metadata: list[dict[str, str]] = []
        self.n_gone = 0
        self.gone = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["KServeServer"]:
        server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelReadyResponse(ready=self.is_ready)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = service_pb2.ModelMetadataResponse(name=request.name)
        for name, datatype in self.inputs.items():
            answer.inputs.add(name=name, datatype=datatype, shape=[-1] * self.n_dims)
        return answer

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.metadata.append(dict(context.invocation_metadata()))
        try:
            async for request in requests:
                inputs = read_inputs(request)
                self.asked.append(inputs)
                async for answer in self._answer(self.script(inputs), context):
                    yield service_pb2.ModelStreamInferResponse(infer_response=answer)
        except asyncio.CancelledError:
            self.n_gone += 1
            self.gone.set()
            raise

    async def _answer(self, steps: Iterable[Step], context: Any) -> AsyncIterator[Any]:
        for step in steps:
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, tuple):
                await context.abort(*step)
            elif isinstance(step, dict):
                yield response(step, is_final=True)
                return
            else:
                yield response({"text_output": step})


def say(*texts: str, finish: str = "stop") -> Callable[[dict[str, Any]], Iterable[Step]]:
    """An answer of these texts, told as the vLLM backend tells it."""

    def script(inputs: dict[str, Any]) -> Iterable[Step]:
        yield from texts
        n_prompt = max(1, len(inputs["text_input"][0]) // 4)
        yield {"finish_reason": finish, "num_input_tokens": n_prompt, "num_output_tokens": len(texts)}

    return script


def response(outputs: dict[str, Any], *, is_final: bool = False) -> Any:
    message = service_pb2.ModelInferResponse()
    message.parameters["triton_final_response"].bool_param = is_final
    for name, value in outputs.items():
        is_text = isinstance(value, str)
        message.outputs.add(name=name, datatype="BYTES" if is_text else "UINT32", shape=[1])
        data = value.encode() if is_text else b""
        message.raw_output_contents.append(struct.pack("<I", len(data)) + data if is_text else struct.pack("<I", value))
    return message


def read_inputs(request: Any) -> dict[str, Any]:
    """Values by name; ``sampling_parameters`` as its document, shapes under ``shapes``."""
    values: dict[str, Any] = {"shapes": {one.name: list(one.shape) for one in request.inputs}}
    for described, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        values[described.name] = _read(described.datatype, raw)
    if "sampling_parameters" in values:
        values["sampling_parameters"] = orjson.loads(values["sampling_parameters"][0])
    return values


def _read(datatype: str, raw: bytes) -> Sequence[Any]:
    if datatype != "BYTES":
        return [value for (value,) in struct.iter_unpack(f"<{_FORMATS[datatype]}", raw)]
    texts = []
    while raw:
        (n_bytes,) = struct.unpack_from("<I", raw)
        texts.append(raw[4 : 4 + n_bytes].decode())
        raw = raw[4 + n_bytes :]
    return texts
