"""Terminal messages that are no answer, as the errors they mean."""

from tribar.core.errors import ERRORS_BY_NAME, Cancelled, DeadlineExceeded, Internal, TribarError, Unavailable
from tribar.core.requests import AbortReason
from tribar.wire.messages import Aborted, Failed


def error_of(terminal: Failed | Aborted) -> TribarError:
    """The error to raise; an error class this version does not know becomes ``Internal``."""
    match terminal:
        case Failed():
            error_class = ERRORS_BY_NAME.get(terminal.error, Internal)
            return error_class(terminal.message, param=terminal.param, retry_after_s=terminal.retry_after_s)
        case Aborted(reason=AbortReason.DEADLINE):
            return DeadlineExceeded("the request's deadline passed before its answer was complete")
        case Aborted(reason=AbortReason.DRAIN):
            return Unavailable("the engine is shutting down", retry_after_s=1.0)
        case _:
            return Cancelled(f"the request was aborted: {terminal.reason.value}")
