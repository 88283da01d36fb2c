"""The engine's clients: who is connected, which requests of theirs are open, and what goes to whom."""

import logging

from tribar.core.errors import TribarError
from tribar.core.ids import Uid
from tribar.core.requests import ModelCard
from tribar.engine.outcome import refused
from tribar.wire.channel import EngineEndpoint
from tribar.wire.messages import PROTOCOL_VERSION, Hello, Output, Ready, Stats, StepOutput

_log = logging.getLogger(__name__)


class Sessions:
    """Maps the endpoint's client keys to the client numbers that uids carry, and keeps the set of open requests.

    A request is open from ``open`` until its terminal goes through ``deliver``.
    """

    def __init__(self, endpoint: EngineEndpoint, card: ModelCard) -> None:
        self._endpoint = endpoint
        self._card = card
        self._clients: dict[int, int] = {}
        self._keys: dict[int, int] = {}
        self._open: dict[int, set[Uid]] = {}

    def open_uids(self) -> list[Uid]:
        """Every request that still waits for its terminal."""
        return [uid for uids in self._open.values() for uid in uids]

    def greet(self, key: int, hello: Hello) -> None:
        """Answer a Hello with Ready. A wrong version or a number in use breaks the protocol: hang up."""
        if hello.version != PROTOCOL_VERSION:
            _log.error("client %d speaks protocol %d, not %d: hanging up", key, hello.version, PROTOCOL_VERSION)
            self._endpoint.drop(key)
        elif hello.client in self._keys or key in self._clients:
            _log.error("client %d introduced itself as %d, which is taken: hanging up", key, hello.client)
            self._endpoint.drop(key)
        else:
            self._clients[key] = hello.client
            self._keys[hello.client] = key
            self._open[hello.client] = set()
            self._endpoint.send(key, Ready(self._card))

    def leave(self, key: int) -> int | None:
        """Forget a disconnected client and its requests; its number, if it ever said Hello."""
        client = self._clients.pop(key, None)
        if client is not None:
            del self._keys[client]
            del self._open[client]
        return client

    def owns(self, key: int, uid: Uid) -> bool:
        """Whether the client behind ``key`` may speak about ``uid``. If not it is hung up on: it is out of step."""
        if self._clients.get(key) == uid.client:
            return True
        _log.error("client %d spoke about %s, which is not its own: hanging up", key, uid)
        self._endpoint.drop(key)
        return False

    def may_open(self, key: int, uid: Uid) -> bool:
        """Whether the client behind ``key`` may submit ``uid``.

        If not it is hung up on: a uid in use twice cannot be answered with one terminal each.
        """
        if not self.owns(key, uid):
            return False
        if uid not in self._open[uid.client]:
            return True
        _log.error("client %d submitted %s, which is being served: hanging up", key, uid)
        self._endpoint.drop(key)
        return False

    def open(self, uid: Uid) -> None:
        """The scheduler has taken the request: from now on it is owed a terminal."""
        self._open[uid.client].add(uid)

    def refuse(self, key: int, uid: Uid, error: TribarError) -> None:
        """The terminal of a request that never opened."""
        self._endpoint.send(key, StepOutput([refused(uid, error)]))

    def deliver(self, outputs: list[Output]) -> None:
        """Send outputs, one message per client, and close the requests that ended. Clients that left get nothing."""
        by_client: dict[int, list[Output]] = {}
        for output in outputs:
            by_client.setdefault(output.uid.client, []).append(output)
        for client, own in by_client.items():
            if client not in self._keys:
                continue
            self._open[client].difference_update(output.uid for output in own if output.terminal is not None)
            self._endpoint.send(self._keys[client], StepOutput(own))

    def broadcast(self, stats: Stats) -> None:
        """Send ``stats`` to every client."""
        for key in self._clients:
            self._endpoint.send(key, stats)

    def fail_all(self, error: TribarError) -> None:
        """The terminal of every open request is ``error``."""
        self.deliver([refused(uid, error) for uid in self.open_uids()])
