import pytest

from tribar.core.errors import ERRORS_BY_NAME, Cancelled, DeadlineExceeded, Internal, TribarError, Unavailable
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.engine.outcome import refused
from tribar.engine.terminal_error import error_of
from tribar.wire.messages import Aborted, Failed


@pytest.mark.parametrize("kind", ERRORS_BY_NAME.values(), ids=lambda kind: kind.__name__)
def test_every_error_crosses_the_wire_as_itself(kind: type[TribarError]) -> None:
    terminal = refused(Uid(1, 1), kind("why", retry_after_s=2.0)).terminal
    assert isinstance(terminal, Failed)
    back = error_of(terminal)
    assert type(back) is kind
    assert (back.message, back.retry_after_s) == ("why", 2.0)


def test_an_unknown_error_is_internal() -> None:
    assert type(error_of(Failed("Nonsense", "why"))) is Internal


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (AbortReason.DEADLINE, DeadlineExceeded),
        (AbortReason.DRAIN, Unavailable),
        (AbortReason.CLIENT_GONE, Cancelled),
        (AbortReason.SLOW_READER, Cancelled),
    ],
)
def test_aborts_are_errors_of_their_own(reason: AbortReason, kind: type[TribarError]) -> None:
    assert type(error_of(Aborted(reason))) is kind
