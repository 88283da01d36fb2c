"""Sends the responses to one request, at any time and in any thread."""

import threading
from collections.abc import Collection

from tribar.modelserver.backends.python.messages import Question, Sent, WireResponse
from tribar.modelserver.backends.python.parcel import Parcel
from tribar.modelserver.backends.python.worker.api.errors import TritonModelException
from tribar.modelserver.backends.python.worker.api.response import InferenceResponse, to_wire
from tribar.modelserver.backends.python.worker.session import Session
from tribar.modelserver.backends.python.worker.unread import Unread

RESPONSE_COMPLETE_FINAL = 1


class InferenceResponseSender:
    """Any number of responses for a decoupled model, one for others; the last with ``RESPONSE_COMPLETE_FINAL``.

    A sender that is dropped before the final response fails its request, which would wait for ever.
    """

    def __init__(self, session: Session, uid: int, wanted: Collection[str]) -> None:
        self._session = session
        self._uid = uid
        self._wanted = wanted
        self._unread = Unread()
        self._sending = threading.Lock()
        self._has_sent = False
        self._is_answered = False
        self.is_closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, the final flag, or both. Raises ``TritonModelException`` out of turn.

        The one response of a model that is not decoupled goes out as the final one even without the flag. Waits where
        the reader of the responses is far behind.
        """
        self._check(response, flags)
        is_final = flags == RESPONSE_COMPLETE_FINAL
        if response is None:
            self.is_closed = True
            if self._session.is_decoupled:
                self._send(None, Parcel(), is_final=True)
            return
        parcel = Parcel()
        wire = to_wire(response, self._wanted, parcel)
        self._has_sent = True
        self.is_closed = is_final
        if not self._session.is_decoupled:
            self._send(wire, parcel, is_final=True)
            return
        with self._sending:
            self._session.channel.wait_for_room(self._uid, self._unread, parcel.n_bytes)
            self._unread.sent(parcel.n_bytes)
            self._send(wire, parcel, is_final=is_final)

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the responses any more."""
        return self._session.ask(Question(0, "cancelled", self._uid)).value

    def close(self) -> bool:
        """Answered otherwise: by what ``execute`` returned or raised. False where a response was sent already."""
        was_open = not self.is_closed and not self._is_answered
        self.is_closed = self._is_answered = True
        return was_open

    def fail(self, message: str) -> None:
        """End the request with an error, unless it has ended."""
        if self.close():
            self._session.channel.send(Sent(self._uid, WireResponse(error=message), is_final=True))

    def _check(self, response: InferenceResponse | None, flags: int) -> None:
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send(response, flags): an InferenceResponse is needed, not {type(response).__name__}")
        if flags not in {0, RESPONSE_COMPLETE_FINAL}:
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and flags == 0:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if self.is_closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        if not self._session.is_decoupled:
            if response is not None and self._has_sent:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one response."
                )
            if response is None and not self._has_sent:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )

    def _send(self, wire: WireResponse | None, parcel: Parcel, *, is_final: bool) -> None:
        self._is_answered |= is_final
        try:
            self._session.channel.send_parcel(
                parcel, lambda block: Sent(self._uid, wire, is_final, block, self._session.window.take_freed())
            )
        except Exception:
            self._has_sent = self._is_answered = self.is_closed = False  # the request still waits
            raise

    def __del__(self) -> None:
        if self.close():
            message = f"the model '{self._session.instance_name}' dropped the request without a final response"
            self._session.channel.send_soon(Sent(self._uid, WireResponse(error=message), is_final=True))
