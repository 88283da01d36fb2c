"""The line between hosts: Redis Streams. Gateways find engines by themselves; either may come, go, and crash.

::

    gateways                    Redis                                       engines
    RedisStreamGateway ──XADD──► requests:{engine}  ──XREADGROUP──►  RedisStreamEndpoint     what it can admit
                       ──XADD──► control:{engine}   ──XREADGROUP──►                          Aborts and the like
                       ◄─XREAD── output:{gateway}   ◄──XADD───                               a step, a client
                       ◄──────── engine:{engine}    ◄──SET, with a time to live───           card and load

Who lives is told by keys that expire: an engine by its registration, a gateway by its output stream. A request stays
in its stream until output of it was sent; when its engine dies before, any gateway gives it to another engine under
the next attempt, and what the old engine may still say about it is stale. What had started fails, once.
"""

from tribar.wire.redis_stream.endpoint import LIVENESS_S, RedisStreamEndpoint
from tribar.wire.redis_stream.gateway import RedisStreamGateway

__all__ = ["LIVENESS_S", "RedisStreamEndpoint", "RedisStreamGateway"]
