from tests.unit.engine.client_rig import CARD, finished

from tribar.core.errors import Overloaded
from tribar.core.ids import Uid
from tribar.engine.sessions import Sessions
from tribar.wire.messages import Failed, Hello, Output, Ready, Stats, StepOutput, ToClient, ToEngine


class NotingEndpoint:
    """Remembers what was sent and who was dropped."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, ToClient]] = []
        self.dropped: list[int] = []

    def poll(self, timeout_s: float | None) -> list[tuple[int, ToEngine | None]]:
        return []

    def send(self, client: int, message: ToClient) -> None:
        self.sent.append((client, message))

    def drop(self, client: int) -> None:
        self.dropped.append(client)

    def wake(self) -> None:
        pass

    def close(self, flush_s: float = 1.0) -> None:
        pass


def greeted() -> tuple[NotingEndpoint, Sessions]:
    """Clients 100 and 200 behind the keys 1 and 2."""
    endpoint = NotingEndpoint()
    sessions = Sessions(endpoint, CARD)
    sessions.greet(1, Hello(100))
    sessions.greet(2, Hello(200))
    assert endpoint.sent == [(1, Ready(CARD)), (2, Ready(CARD))]
    endpoint.sent.clear()
    return endpoint, sessions


def test_a_request_is_open_until_its_terminal_is_delivered() -> None:
    _, sessions = greeted()
    for counter in range(3):
        sessions.open(Uid(100, counter))
    sessions.deliver([Output(Uid(100, 0), [1]), Output(Uid(100, 1), [], terminal=finished(1))])
    assert sorted(sessions.open_uids()) == [Uid(100, 0), Uid(100, 2)]
    sessions.fail_all(Overloaded("x", retry_after_s=2.0))
    assert sessions.open_uids() == []


def test_outputs_go_to_their_clients_in_one_message_each() -> None:
    endpoint, sessions = greeted()
    outputs = [Output(Uid(100, 0), [1]), Output(Uid(200, 0), [2]), Output(Uid(100, 1), [3]), Output(Uid(300, 0), [4])]
    sessions.deliver(outputs)
    assert endpoint.sent == [(1, StepOutput([outputs[0], outputs[2]])), (2, StepOutput([outputs[1]]))]
    sessions.deliver([])
    assert len(endpoint.sent) == 2


def test_a_client_that_left_is_forgotten_with_its_requests() -> None:
    endpoint, sessions = greeted()
    sessions.open(Uid(100, 0))
    assert sessions.leave(1) == 100
    assert sessions.leave(1) is None
    assert sessions.open_uids() == []
    sessions.deliver([Output(Uid(100, 0), [], terminal=finished(1))])
    sessions.broadcast(Stats())
    assert endpoint.sent == [(2, Stats())]
    sessions.greet(3, Hello(100))
    assert endpoint.dropped == []


def test_a_refusal_leaves_an_open_request_of_the_same_uid_open() -> None:
    endpoint, sessions = greeted()
    sessions.open(Uid(100, 0))
    sessions.refuse(1, Uid(100, 0), Overloaded("full", retry_after_s=2.0))
    assert endpoint.sent == [(1, StepOutput([Output(Uid(100, 0), [], terminal=Failed("Overloaded", "full", 2.0))]))]
    assert sessions.open_uids() == [Uid(100, 0)]


def test_who_speaks_for_another_or_before_hello_is_dropped() -> None:
    endpoint, sessions = greeted()
    assert sessions.owns(1, Uid(100, 5))
    assert not sessions.owns(1, Uid(200, 5))
    assert not sessions.owns(7, Uid(100, 5))
    sessions.greet(1, Hello(400))
    sessions.greet(8, Hello(200))
    sessions.greet(9, Hello(900, version=0))
    assert endpoint.dropped == [1, 7, 1, 8, 9]
