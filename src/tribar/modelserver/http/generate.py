"""The generate extension: a flat JSON object in, a flat JSON object, or a stream of them, out."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from tribar.core.errors import DeadlineExceeded, InvalidRequest, Overloaded, TribarError
from tribar.core.inference import InferRequest, InferResponse, ParameterValue
from tribar.core.tensors import Tensor
from tribar.modelserver.http.body import BodyReader
from tribar.modelserver.http.departure import Departure
from tribar.modelserver.http.elements import flattened, tensor_of
from tribar.modelserver.http.exchange import JSON, Answer, Exchange
from tribar.modelserver.http.fields import Json, Object, as_parameter, as_text, parse_object
from tribar.modelserver.http.infer_response import json_elements, response_head, to_json
from tribar.modelserver.http.problem import error_body, status_of
from tribar.modelserver.overdue import Overdue
from tribar.modelserver.service import Service
from tribar.modelserver.signature import Signature, TensorSpec
from tribar.modelserver.slowness import SLOW_BYTES, is_slow

_EVENTS: Final = (b"content-type", b"text/event-stream; charset=utf-8")
_NOT_ONE: Final = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various "
    "number of responses"
)


class Generation:
    """``POST /v2/models/NAME[/versions/VERSION]/generate`` and ``.../generate_stream``."""

    def __init__(self, service: Service, bodies: BodyReader, patience: Overdue) -> None:
        self._service = service
        self._bodies = bodies
        self._patience = patience

    async def generate(self, exchange: Exchange) -> Answer:
        """The model's one response; for another number of them an error with status 200, as in Triton."""
        request = await self._read(exchange)
        departure = Departure(exchange.receive, self._patience)
        responses: list[InferResponse] = []
        try:
            async with aclosing(self._service.stream(request)) as stream:
                async for response in stream:
                    if response.outputs or response.error is not None or not response.is_final:
                        responses.append(response)
                    if len(responses) > 1:
                        break
        except asyncio.CancelledError:
            departure.explain()
            raise
        except TribarError as error:
            return _failed(error)
        finally:
            departure.close()
        if len(responses) != 1:
            return Answer(pieces=(error_body(_NOT_ONE),))
        failure = responses[0].error
        return Answer(pieces=(await _flat(responses[0]),)) if failure is None else _failed(failure)

    async def generate_stream(self, exchange: Exchange) -> Answer | None:
        """Sends an event for each response, also for an error in its place; of the first one the status tells.

        Raises what is wrong with the request.
        """
        request = await self._read(exchange)
        departure = Departure(exchange.receive, self._patience)
        try:
            async with aclosing(_events(self._service.stream(request))) as events:
                async for status, event in events:
                    if not exchange.is_started:
                        exchange.is_started = True
                        await exchange.send({"type": "http.response.start", "status": status, "headers": [_EVENTS]})
                    body = b"data: " + event + b"\n\n"
                    await exchange.send({"type": "http.response.body", "body": body, "more_body": True})
        except asyncio.CancelledError:
            departure.explain()
            raise
        finally:
            departure.close()
        if not exchange.is_started:
            return Answer(headers=(_EVENTS,))
        await exchange.send({"type": "http.response.body", "body": b""})
        return None

    async def _read(self, exchange: Exchange) -> InferRequest:
        body = await self._bodies.read(exchange)
        signature = self._service.signature(exchange.model, exchange.version)
        if len(body) > SLOW_BYTES:
            return await asyncio.to_thread(_read_body, signature, exchange.version, body)
        return _read_body(signature, exchange.version, body)


def _read_body(signature: Signature, version: str, body: bytes) -> InferRequest:
    return read_request(signature, version, parse_object(body))


async def _events(responses: AsyncGenerator[InferResponse, None]) -> AsyncGenerator[tuple[int, bytes], None]:
    """Each response, or the error in its place, as JSON, and the status that an answer beginning with it has."""
    try:
        async with aclosing(responses):
            async for response in responses:
                if response.error is not None:
                    yield _status(response.error), error_body(response.error.message)
                elif response.outputs or not response.is_final:
                    yield 200, await _flat(response)
    except TribarError as error:
        yield _status(error), error_body(error.message)


def read_request(signature: Signature, version: str, root: Object) -> InferRequest:
    """The request: fields with the names of inputs are these, ``id`` its id, and all others parameters.

    Raises ``unreadable_json`` and ``InvalidRequest`` naming the field.
    """
    inputs: list[Tensor] = []
    parameters: dict[str, ParameterValue] = {}
    request_id = ""
    for name, value in root.items():
        spec = signature.inputs.get(name)
        if spec is not None:
            inputs.append(_input(signature, spec, value))
        elif name == "id":
            request_id = as_text(value, "id")
        elif name == "parameters" and type(value) is dict:
            parameters |= {inner: as_parameter(element, inner) for inner, element in value.items()}
        else:
            parameters[name] = as_parameter(value, name)
    return InferRequest(
        model_name=signature.name, model_version=version, id=request_id, inputs=inputs, parameters=parameters
    )


def _input(signature: Signature, spec: TensorSpec, value: Json) -> Tensor:
    data = value if type(value) is list else [value]
    flat = list(flattened(data))
    batch = (1,) if signature.max_batch_size > 0 else ()
    return tensor_of(spec.name, spec.datatype, batch + _shape(spec, len(flat)), flat)


def _shape(spec: TensorSpec, n_elements: int) -> tuple[int, ...]:
    """The input's dims for this number of elements, its one unknown size told by it."""
    n_known = math.prod(size for size in spec.dims if size >= 0)
    match spec.dims.count(-1):
        case 0 if n_known == n_elements:
            return spec.dims
        case 1 if n_known and not n_elements % n_known:
            return tuple([n_elements // n_known if size < 0 else size for size in spec.dims])
        case _:
            text = (
                f"The schema can not convert input '{spec.name}' to tensor with proper shape: {n_elements} elements "
                f"for dims {list(spec.dims)}"
            )
            raise InvalidRequest(text, param=spec.name)


async def _flat(response: InferResponse) -> bytes:
    return await asyncio.to_thread(_written, response) if is_slow(response.outputs) else _written(response)


def _written(response: InferResponse) -> bytes:
    """Outputs by name, one element as itself and others as a list."""
    fields: dict[str, Any] = response_head(response)
    fields.pop("parameters", None)
    for tensor in response.outputs:
        elements = json_elements(tensor)
        fields[tensor.name] = elements[0] if len(elements) == 1 else elements
    return to_json(fields)


def _status(error: TribarError) -> int:
    """Whatever a model reports or fails with is 400 here, as in Triton; only what invites to come back says so."""
    return status_of(error) if isinstance(error, Overloaded | DeadlineExceeded) else 400


def _failed(error: TribarError) -> Answer:
    return Answer(_status(error), (error_body(error.message),), (JSON,))
