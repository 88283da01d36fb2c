"""Who an engine talks to: the clients of gateways, and what each of them is owed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.wire.messages import Aborted, Failed, Output
from tribar.wire.outbox import Outbox

MAX_GONE = 4096
"""Clients whose late Submits are recognised."""

STARTED = b""


@dataclass(eq=False)
class Peer:
    """One client. ``open`` maps its requests to their entries in the request stream, ``STARTED`` after first output.

    An entry is acknowledged when output of its request has been sent: until then a gateway may give it to another
    engine should this one die, because nobody has seen anything of it.
    """

    key: int
    gateway: str
    client: int
    outbox: Outbox = field(default_factory=Outbox)
    open: dict[Uid, bytes] = field(default_factory=dict)
    to_acknowledge: list[bytes] = field(default_factory=list)
    n_sent: int = 0
    last_submit: int = 0

    def account(self, output: Output, *, is_leaving: bool) -> bool:
        """Keep the books of ``output``; whether it is to be sent.

        An engine that leaves does not end what it has not started: that stays in the stream for another one.
        """
        entry = self.open.get(output.uid)
        if entry is None:
            return True
        if entry is not STARTED:
            if is_leaving and _asks_for_another_engine(output):
                del self.open[output.uid]
                return False
            self.to_acknowledge.append(entry)
            self.open[output.uid] = STARTED
        if output.terminal is not None:
            del self.open[output.uid]
        return True


def _asks_for_another_engine(output: Output) -> bool:
    match output.terminal:
        case Aborted(reason=AbortReason.DRAIN) | Failed(error="Unavailable"):
            return True
    return False


class Peers:
    """All clients by key, and by number. Keys are never used again."""

    def __init__(self) -> None:
        self._by_key: dict[int, Peer] = {}
        self._by_client: dict[tuple[str, int], Peer] = {}
        self._gone: dict[tuple[str, int], None] = {}
        self._last_key = 0

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._by_key.values()))

    @property
    def n_open(self) -> int:
        """Requests that were read and have not ended."""
        return sum(len(peer.open) for peer in self._by_key.values())

    @property
    def gateways(self) -> frozenset[str]:
        """Those with at least one client."""
        return frozenset(peer.gateway for peer in self._by_key.values())

    def of_key(self, key: int) -> Peer | None:
        """The client behind ``key``, unless it is gone."""
        return self._by_key.get(key)

    def of_client(self, gateway: str, client: int) -> Peer | None:
        """The client of that number, unless it is not known or gone."""
        return self._by_client.get((gateway, client))

    def is_gone(self, gateway: str, client: int) -> bool:
        """Whether it was here and has left."""
        return (gateway, client) in self._gone

    def add(self, gateway: str, client: int) -> Peer:
        """A new client."""
        self._last_key += 1
        peer = Peer(self._last_key, gateway, client)
        self._by_key[peer.key] = self._by_client[gateway, client] = peer
        return peer

    def remove(self, peer: Peer) -> None:
        """Forget it, but for the fact that it is gone."""
        del self._by_key[peer.key], self._by_client[peer.gateway, peer.client]
        self._gone[peer.gateway, peer.client] = None
        if len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]
