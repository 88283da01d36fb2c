"""The names of everything that a cluster keeps in Redis.

The braces make one hash slot of them, so that scripts and transactions may touch several also in a Redis cluster.
Every key has a time to live that its owner renews: whatever crashes, nothing stays.
"""

from dataclasses import dataclass

from tribar.core.errors import InvalidRequest

GROUP = "engine"
"""The consumer group of a request stream, and the only consumer name that an engine reads it under."""

CLAIMER = "claimer"
"""The consumer name under which gateways take what a dead engine left."""

FIELD = "m"
"""The one field of every stream entry: an envelope in msgpack."""

MAX_CLUSTER_NAME = 64


@dataclass(frozen=True, slots=True)
class Keys:
    """Names under ``tribar:{cluster}:``."""

    cluster: str

    def __post_init__(self) -> None:
        """Raises ``InvalidRequest`` for a name that could be mistaken for part of a key."""
        name = self.cluster
        if not name or len(name) > MAX_CLUSTER_NAME or not name.replace("-", "").replace("_", "").isalnum():
            message = f"a cluster's name has 1 to {MAX_CLUSTER_NAME} letters, digits, hyphens and underscores: {name!r}"
            raise InvalidRequest(message, param="cluster")

    @property
    def engines(self) -> str:
        """Hash of engine -> model: every engine that lives, or has left something behind."""
        return self._key("engines")

    @property
    def salt(self) -> str:
        """The secret that all gateways derive cache namespaces from."""
        return self._key("salt")

    def engine(self, engine: str) -> str:
        """An engine's registration. It lives exactly as long as this key."""
        return self._key(f"engine:{engine}")

    def requests(self, engine: str) -> str:
        """Stream of Submits, read through ``GROUP`` as far as the engine can admit them."""
        return self._key(f"requests:{engine}")

    def control(self, engine: str) -> str:
        """Stream of everything else that gateways tell an engine, read at once."""
        return self._key(f"control:{engine}")

    def output(self, gateway: str) -> str:
        """Stream of what engines tell a gateway. It lives exactly as long as this key."""
        return self._key(f"output:{gateway}")

    def _key(self, name: str) -> str:
        return f"tribar:{{{self.cluster}}}:{name}"
