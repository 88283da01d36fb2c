"""One request's life at the client: from its mailbox to Deltas, with the aborts and reports that belong to it."""

from tribar.core.errors import TribarError
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason, Delta, Timing
from tribar.engine.answer import Answer
from tribar.engine.connection import Connection
from tribar.engine.mailbox import Mailbox
from tribar.engine.request_watch import RequestWatch
from tribar.engine.terminal_error import error_of
from tribar.wire.messages import Aborted, Failed, Finished, Output, Submit, Terminal


class Generation:
    """Reads one request's output until its terminal, or until ``close`` gives it up.

    An Abort is sent only for a request that the engine has not ended: for a stop string once, for a client that
    leaves once, after a terminal or a dead engine never.
    """

    def __init__(
        self, connection: Connection, uid: Uid, mailbox: Mailbox, answer: Answer, watch: RequestWatch, n_prompt: int
    ) -> None:
        self._connection = connection
        self._uid = uid
        self._mailbox = mailbox
        self._answer = answer
        self._watch = watch
        self._n_prompt = n_prompt
        self._error: TribarError | None = None
        self._is_owed = False
        self.is_over = False
        """Whether the last Delta has been returned."""

    async def submit(self, message: Submit) -> None:
        """Send the request. Raises ``Unavailable``; when it is cancelled, nothing was sent and nothing is owed."""
        await self._connection.submit(message)
        self._is_owed = True

    async def next(self) -> Delta | None:
        """Wait for output and return its Delta, if it made any text certain. Raises how the request failed."""
        if self._error is not None:
            raise self._error
        output = await self._mailbox.get()
        self._push(output)
        terminal = output.terminal
        if terminal is None:
            return self._answer.take()
        self._is_owed = False
        if isinstance(terminal, Finished) or self._answer.matched is not None:
            return self._finish(terminal)
        return self._break_off(terminal)

    def _push(self, output: Output) -> None:
        had_matched = self._answer.matched is not None
        self._answer.push(output)
        self._watch.tokens(self._answer.n_tokens)
        if self._answer.matched is not None and not had_matched and output.terminal is None:
            self._abort(AbortReason.STOP_STRING)

    def _finish(self, terminal: Terminal) -> Delta:
        self.is_over = True
        delta = self._answer.finish(terminal, self._n_prompt)
        assert delta.finish is not None
        self._watch.finish(delta.finish)
        return delta

    def _break_off(self, terminal: Failed | Aborted) -> Delta:
        """Report the failure; raise it at once, or after the text that came before it has been handed over."""
        self._error = error_of(terminal)
        if isinstance(terminal, Aborted):
            self._watch.fail(terminal.reason, terminal.timing)
        else:
            self._watch.fail(self._error, Timing())
        delta = self._answer.take()
        if delta is None:
            raise self._error
        return delta

    def fail(self, error: TribarError) -> None:
        """The line broke: the engine owes nothing any more."""
        self._is_owed = False
        self._watch.fail(error, Timing())

    def close(self) -> None:
        """Stop listening; what still runs in the engine is aborted, since nobody wants it."""
        self._connection.close(self._uid)
        if self._is_owed and self._answer.matched is None:
            self._abort(AbortReason.CLIENT_GONE)
        self._watch.fail(AbortReason.CLIENT_GONE, Timing())

    def _abort(self, reason: AbortReason) -> None:
        self._connection.abort(self._uid, reason, self._answer.n_tokens)
