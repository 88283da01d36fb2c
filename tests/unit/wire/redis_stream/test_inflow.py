"""Two streams in, one order out."""

from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.core.sampling.params import SamplingParams
from tribar.wire.messages import Abort, Drain, Hello, Submit
from tribar.wire.redis_stream.envelopes import Bye, Inward, encode
from tribar.wire.redis_stream.inflow import Entry, Inflow, Received
from tribar.wire.redis_stream.peers import Peer, Peers


class Rig:
    def __init__(self, age_s: float = 0.0) -> None:
        self.peers = Peers()
        self.received: Received = []
        self.discarded: list[bytes] = []
        self.inflow = Inflow(self.peers, self.received, self._hang_up, self.discarded.append, lambda _entry: age_s)
        self._n_entries = 0

    def _hang_up(self, peer: Peer) -> None:
        self.peers.remove(peer)
        self.received.append((peer.key, None))

    def entry(self, message: Hello | Submit | Abort | Drain | Bye, sequence: int, after: int = 0) -> Entry:
        self._n_entries += 1
        return b"%d-0" % self._n_entries, [b"m", encode(Inward("g", 1, sequence, after, message))]

    def take(self, *, can_read: bool = True) -> list[object]:
        self.inflow.settle(can_read=can_read)
        messages: list[object] = [message for _, message in self.received]
        self.received.clear()
        return messages


def submit(counter: int, attempt: int = 0, **changes: object) -> Submit:
    return Submit(Uid(1, counter, attempt), b"", SamplingParams(), 1, **changes)  # type: ignore[arg-type]


def abort(counter: int) -> Abort:
    return Abort(Uid(1, counter), AbortReason.CLIENT_GONE)


def test_messages_of_both_streams_come_in_the_order_in_which_they_were_sent() -> None:
    rig = Rig()
    rig.inflow.add_control([rig.entry(Hello(1), 1), rig.entry(abort(0), 3, after=2), rig.entry(Drain(), 4, after=2)])
    rig.inflow.add_requests([rig.entry(submit(0), 2)])
    assert rig.take() == [Hello(1), submit(0), abort(0), Drain()]


def test_a_message_waits_for_the_requests_before_it() -> None:
    rig = Rig()
    rig.inflow.add_control([rig.entry(Hello(1), 1), rig.entry(abort(0), 3, after=2)])
    assert rig.take() == [Hello(1)]
    rig.inflow.add_requests([rig.entry(submit(0), 2)])
    assert rig.take() == [submit(0), abort(0)]


def test_an_abort_does_not_wait_for_requests_that_cannot_be_read_and_is_repeated_behind_its_own() -> None:
    rig = Rig()
    rig.inflow.add_control([rig.entry(Hello(1), 1), rig.entry(abort(0), 3, after=2)])
    assert rig.take(can_read=False) == [Hello(1), abort(0)]
    rig.inflow.add_requests([rig.entry(submit(0), 2)])
    assert rig.take() == [submit(0), abort(0)]


def test_a_request_from_a_client_that_never_said_hello_introduces_it() -> None:
    """It was moved here from a dead engine."""
    rig = Rig()
    rig.inflow.add_requests([rig.entry(submit(0, attempt=1), 0)])
    assert rig.take() == [Hello(1), submit(0, attempt=1)]
    rig.inflow.add_control([rig.entry(Hello(1), 5)])
    assert rig.take() == []


def test_requests_of_a_client_that_is_gone_are_discarded() -> None:
    rig = Rig()
    rig.inflow.add_control([rig.entry(Hello(1), 1), rig.entry(Bye(), 2)])
    assert rig.take() == [Hello(1), None]
    late = rig.entry(submit(0), 3)
    rig.inflow.add_requests([late])
    assert rig.take() == []
    assert rig.discarded == [late[0]]


def test_an_entry_that_is_read_twice_counts_once() -> None:
    rig = Rig()
    entry = rig.entry(submit(0), 2)
    rig.inflow.add_requests([entry])
    assert rig.take() == [Hello(1), submit(0)]
    rig.inflow.add_requests([entry])
    assert rig.take() == []
    assert rig.discarded == []


def test_garbage_is_discarded() -> None:
    rig = Rig()
    rig.inflow.add_requests([(b"1-0", None), (b"2-0", [b"m", b"\xc1"]), (b"3-0", [b"x", b""]), rig.entry(Drain(), 1)])
    assert rig.take() == []
    assert len(rig.discarded) == 4


def test_time_in_the_stream_counts_against_the_deadline() -> None:
    for age_s, deadline_s in ((0.01, 2.0), (0.5, 1.5), (9.0, 0.0)):
        rig = Rig(age_s)
        rig.inflow.add_requests([rig.entry(submit(0, deadline_s=2.0), 1)])
        assert rig.take() == [Hello(1), submit(0, deadline_s=deadline_s)]
