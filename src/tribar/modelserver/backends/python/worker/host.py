"""Holds the model and runs its batches."""

import asyncio
import inspect
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from typing import Any, Protocol

from tribar.modelserver.backends.python.messages import Done, Execute, Log, Open, WireResponse
from tribar.modelserver.backends.python.parcel import Parcel
from tribar.modelserver.backends.python.worker.api.errors import TritonModelException
from tribar.modelserver.backends.python.worker.api.request import InferenceRequest
from tribar.modelserver.backends.python.worker.api.response import InferenceResponse, to_wire
from tribar.modelserver.backends.python.worker.failure import describe, full_traceback
from tribar.modelserver.backends.python.worker.loading import load_model_class
from tribar.modelserver.backends.python.worker.session import Session


class TritonPythonModel(Protocol):
    """What a ``model.py`` defines; ``initialize`` and ``finalize`` may be missing."""

    def execute(self, requests: list[InferenceRequest]) -> Any:  # noqa: ANN401 - checked below
        """Responses in the order of the requests, None where a response sender is used, or a coroutine of those."""
        ...


class ModelHost:
    """The model of this worker. Raises what importing or initializing it raises."""

    def __init__(self, session: Session, opening: Open, request_class: type[InferenceRequest]) -> None:
        self._session = session
        self._request_class = request_class
        self._loop: asyncio.AbstractEventLoop | None = None
        model_class = load_model_class(opening.path)
        if not hasattr(model_class, "execute"):
            raise TritonModelException(f"Python model file {opening.path} does not implement `execute` method.")
        self._model: TritonPythonModel = model_class()
        initialize = getattr(self._model, "initialize", None)
        if initialize is not None:
            initialize(opening.arguments)

    def execute(self, work: Execute) -> None:
        """Run a batch and say how it went. Returns earlier for a decoupled model with an asynchronous ``execute``."""
        memory = None if work.block is None else self._session.window.open(work.block)
        requests = [self._request_class.received(wire, memory) for wire in work.requests]
        del memory
        start_ns = time.perf_counter_ns()
        try:
            returned = self._model.execute([*requests])  # a list that the model may keep
            if inspect.iscoroutine(returned):
                if self._session.is_decoupled:
                    self._run_in_background(returned, [*requests])
                    returned = None
                else:
                    returned = asyncio.run_coroutine_threadsafe(returned, self._event_loop()).result()
            responses = self._checked(returned, len(requests))
        except BaseException as error:
            self._end_forked(error)
            self._fail(requests, error, start_ns)
            return
        self._end_forked()
        self._done(requests, responses, start_ns)

    def finalize(self) -> None:
        """Let the model clean up."""
        finalize = getattr(self._model, "finalize", None)
        if finalize is not None:
            finalize()

    def _checked(self, returned: Any, n_requests: int) -> list[InferenceResponse | None]:  # noqa: ANN401
        if returned is None:
            return [None] * n_requests
        if self._session.is_decoupled:
            raise _Refused(
                f"Python model '{self._session.instance_name}' is using the decoupled mode and the execute function "
                "must return None."
            )
        if not isinstance(returned, list):
            raise _Refused(f"Expected a list in the execute return, found type '{type(returned)}'.")
        if len(returned) != n_requests:
            raise _Refused(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{n_requests}, and InferenceResponse(s) size is:{len(returned)}\n"
            )
        for response in returned:
            if response is not None and not isinstance(response, InferenceResponse):
                raise _Refused(
                    "Expected an 'InferenceResponse' object in the execute function return list, "
                    f"found type '{type(response)}'."
                )
        return returned

    def _done(self, requests: list[InferenceRequest], responses: list[InferenceResponse | None], start_ns: int) -> None:
        end_ns = time.perf_counter_ns()
        parcel = Parcel()
        try:
            wires = [
                self._wire(request, response, parcel) for request, response in zip(requests, responses, strict=True)
            ]
            requests.clear()  # the model's own references aside, nothing shows the inputs any more
            self._session.channel.send_parcel(
                parcel, lambda block: Done(wires, start_ns, end_ns, None, block, self._session.window.take_freed())
            )
        except Exception as error:
            self._fail(requests, error, start_ns)

    def _wire(
        self, request: InferenceRequest, response: InferenceResponse | None, parcel: Parcel
    ) -> WireResponse | None:
        if response is None:
            request.leave_to_sender()
            return None
        if not request.close():
            return None  # a response sender was faster
        return to_wire(response, request.wanted_outputs(), parcel)

    def _end_forked(self, error: BaseException | None = None) -> None:
        """End here the process that the model forked and let out of ``execute``: the batch is the worker's."""
        if self._session.channel.is_ours:
            return
        code = 0 if error is None else 1
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)

    def _fail(self, requests: list[InferenceRequest], error: BaseException, start_ns: int) -> None:
        message = self._logged(error)
        for request in requests:
            request.close()
        error.__traceback__ = None  # its frames hold the requests
        requests.clear()
        self._session.channel.send(
            Done([], start_ns, time.perf_counter_ns(), message, None, self._session.window.take_freed())
        )

    def _logged(self, error: BaseException) -> str:
        """What the callers are told; the log gets the traceback."""
        text = str(error) if isinstance(error, _Refused) else describe(error)
        message = f"Failed to process the request(s) for model '{self._session.instance_name}', message: {text}"
        record = message if isinstance(error, _Refused) else full_traceback(error)
        self._session.channel.send(Log(logging.ERROR, record))
        return message

    def _run_in_background(self, coroutine: Coroutine[Any, Any, Any], requests: list[InferenceRequest]) -> None:
        async def run() -> None:
            try:
                if await coroutine is not None:
                    self._checked([], 0)
            except BaseException as error:
                message = self._logged(error)
                for request in requests:
                    request.fail(message)
                error.__traceback__ = None

        asyncio.run_coroutine_threadsafe(run(), self._event_loop())

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        """The model's own loop, in a thread of its own: tasks that it starts go on between batches."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="tribar-model-loop", daemon=True).start()
        return self._loop


class _Refused(TritonModelException):
    """The model returned what it must not; there is no place in its code to show."""
