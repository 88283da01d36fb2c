"""Windows, allowances and settings: small numbers with sharp ends."""

import struct

import pytest

from tribar.modelserver.grpc.http2.allowance import Allowance
from tribar.modelserver.grpc.http2.flow_window import MAX_WINDOW, ReceiveWindow, SendWindow
from tribar.modelserver.grpc.http2.frames import Code, ConnectionFault
from tribar.modelserver.grpc.http2.settings import PeerSettings


def test_a_window_to_send_has_an_upper_bound() -> None:
    window = SendWindow(65535)
    assert window.grow(MAX_WINDOW - 65535)
    assert not window.grow(1)


def test_a_window_to_receive_is_given_back_from_its_half_on() -> None:
    window = ReceiveWindow(100)
    assert window.receive(49)
    assert window.give_back() == 0
    assert window.receive(1)
    assert window.give_back() == 50
    assert window.receive(100)
    assert not window.receive(1)


def test_an_allowance_grows_with_time_and_with_work() -> None:
    now_s = [0.0]
    allowance = Allowance(10, 2.0, now=lambda: now_s[0])
    assert all(allowance.spend() for _ in range(10))
    assert not allowance.spend()
    now_s[0] += 1.0  # two more, of which one was spent in advance
    assert allowance.spend()
    assert not allowance.spend()
    for _ in range(3):
        allowance.earn()
    assert allowance.spend(2)
    now_s[0] += 1000.0
    assert allowance.spend(10)
    assert not allowance.spend()


def test_settings_of_the_peer() -> None:
    settings = PeerSettings()
    payload = b"".join(struct.pack(">HI", *pair) for pair in ((4, 100), (4, 70000), (5, 20000), (2, 0), (99, 7)))
    assert settings.update(payload) == 70000 - 65535
    assert settings.max_frame == 20000
    assert settings.update(struct.pack(">HI", 4, 0)) == -70000
    assert settings.update(b"") == 0


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"12345", Code.FRAME_SIZE_ERROR),
        (struct.pack(">HI", 2, 2), Code.PROTOCOL_ERROR),
        (struct.pack(">HI", 4, 2**31), Code.FLOW_CONTROL_ERROR),
        (struct.pack(">HI", 5, 16383), Code.PROTOCOL_ERROR),
        (struct.pack(">HI", 5, 2**24), Code.PROTOCOL_ERROR),
        (struct.pack(">HI", 9, 0) * 65, Code.ENHANCE_YOUR_CALM),
    ],
)
def test_faulty_settings(payload: bytes, code: Code) -> None:
    with pytest.raises(ConnectionFault) as caught:
        PeerSettings().update(payload)
    assert caught.value.code is code
