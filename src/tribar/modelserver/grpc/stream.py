"""``ModelStreamInfer``: any number of requests on one stream, answered side by side."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from tribar.core.errors import Cancelled, Internal, InvalidRequest, NotFound, Overloaded, TribarError
from tribar.core.inference import InferResponse
from tribar.modelserver.grpc.call import StreamCall
from tribar.modelserver.grpc.http2.stream import Buffer
from tribar.modelserver.grpc.infer_reader import InferReader
from tribar.modelserver.grpc.infer_writer import InferWriter, empty_final, error_in_stream, in_stream
from tribar.modelserver.infer_call import InferCall
from tribar.modelserver.service import Service

_log = logging.getLogger(__name__)

_REFUSALS = (InvalidRequest, NotFound, Overloaded)
"""Errors with which a request does not even get to its model, which then is not named in the message."""


class StreamInference:
    """Answers ``ModelStreamInfer``. ``max_requests`` of a stream are inside at a time; then no more are read."""

    def __init__(self, service: Service, reader: InferReader, writer: InferWriter, max_requests: int) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer
        self._max_requests = max_requests

    async def model_stream_infer(self, asked: StreamCall) -> None:
        """Answer until the client has closed its side and everything is answered. Cancelling cancels all requests."""
        places = asyncio.Semaphore(self._max_requests)
        is_deserted = False
        try:
            async with asyncio.TaskGroup() as tasks:
                stream = _Stream(self._service, self._reader, self._writer, asked, places, tasks)
                async for content in asked:
                    await places.acquire()
                    await stream.accept(content)
        except* Cancelled:
            is_deserted = True
        if is_deserted:  # the call is about to hear of it
            raise asyncio.CancelledError


class _Stream:
    """One stream. An error is a message of it, and it goes on.

    Models with one response for each request answer in the order of their requests, as in Triton; decoupled ones
    whenever they have something to say. Each request has one of the ``places``, and the room for its bytes, until it is
    answered.
    """

    def __init__(
        self,
        service: Service,
        reader: InferReader,
        writer: InferWriter,
        asked: StreamCall,
        places: asyncio.Semaphore,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer
        self._asked = asked
        self._places = places
        self._tasks = tasks
        self._writing = asyncio.Lock()
        self._last_in_turn: asyncio.Task[None] | None = None

    async def accept(self, content: Buffer) -> None:
        """Begin to answer a request."""
        n_bytes = len(content)
        request_id = ""
        outcome: InferCall | bytes
        try:
            parsed = await self._reader.parse(content)
            request_id = parsed.message.id
            outcome = await self._reader.read(parsed, self._asked.deadline_s)
            request = outcome.request
            if self._service.signature(request.model_name, request.model_version).is_decoupled:
                self._tasks.create_task(self._answer_decoupled(outcome, n_bytes))
                return
        except TribarError as error:
            outcome = error_in_stream(error, request_id)
        self._last_in_turn = self._tasks.create_task(self._answer_in_turn(outcome, n_bytes, self._last_in_turn))

    async def _answer_in_turn(
        self, outcome: InferCall | bytes, n_bytes: int, before: "asyncio.Task[None] | None"
    ) -> None:
        """Answer when the task before has; ``outcome`` is the message already where the request was refused."""
        try:
            message = outcome if isinstance(outcome, bytes) else await self._only_message(outcome)
            await self._write(message, before)
        finally:
            self._leave(n_bytes)

    async def _answer_decoupled(self, call: InferCall, n_bytes: int) -> None:
        try:
            async with aclosing(self._messages(call)) as messages:
                async for message in messages:
                    await self._write(message)
        finally:
            self._leave(n_bytes)

    def _leave(self, n_bytes: int) -> None:
        """A request of that size is answered."""
        self._places.release()
        self._asked.release(n_bytes)

    async def _write(self, message: bytes, before: "asyncio.Task[None] | None" = None) -> None:
        """Write once the task before has ended and nobody else writes. Raises ``Cancelled`` if the client is gone."""
        with self._asked.waiting(len(message)):
            if before is not None and not before.done():
                await asyncio.wait((before,))
            await self._writing.acquire()
        try:
            await self._asked.write(message)
        finally:
            self._writing.release()

    async def _only_message(self, call: InferCall) -> bytes:
        try:
            response = await self._service.infer(call.request)
            return await in_stream(await self._writer.parts(response, call), is_final=True)
        except Exception as error:
            return _failed(error, call)

    async def _messages(self, call: InferCall) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._service.stream(call.request)) as responses:
                async for response in responses:
                    message = await self._message(response, call)
                    if message is not None:
                        yield message
        except Exception as error:
            yield _failed(error, call)

    async def _message(self, response: InferResponse, call: InferCall) -> bytes | None:
        """None for a last response without outputs, unless the request has asked for that."""
        if response.error is not None:
            return error_in_stream(response.error, response.id, response.model_name, is_final=response.is_final)
        if response.is_final and not response.outputs:
            return empty_final(response) if call.wants_empty_final else None
        return await in_stream(await self._writer.parts(response, call), is_final=response.is_final)


def _failed(error: Exception, call: InferCall) -> bytes:
    """The error that ends a request."""
    request = call.request
    if not isinstance(error, TribarError):
        _log.error("a request of a gRPC stream failed", exc_info=error)
        error = Internal("internal error: see the server's log")
    if isinstance(error, _REFUSALS):
        return error_in_stream(error, request.id)
    return error_in_stream(error, request.id, request.model_name, is_final=True)
