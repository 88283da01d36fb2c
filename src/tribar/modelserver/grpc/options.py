"""What can be set of the gRPC server."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcOptions:
    """The keep-alive times have the names and defaults of Triton's flags ``--grpc-...``.

    ``max_message_bytes`` bounds a request, ``max_all_messages_bytes`` all that are inside and all answers that are not
    taken yet together (sixteen of the largest where it is None), ``max_concurrent_calls`` the calls that are inside at
    the same time (others get RESOURCE_EXHAUSTED), ``max_stream_requests`` the requests of one stream that are inside
    (more are not read), ``max_connections`` the connections (others are closed).
    Each piece of a request has ``message_pause_s`` to arrive, and all of it ``message_timeout_s``. A client that takes
    nothing of an answer for ``stall_s``, or not all of a message within ``message_timeout_s``, loses it. A connection
    has ``handshake_s`` to begin.
    """

    max_message_bytes: int = 128 * MIB
    max_all_messages_bytes: int | None = None
    max_concurrent_calls: int = 8192
    max_stream_requests: int = 128
    max_connections: int = 8192
    message_pause_s: float = 60.0
    message_timeout_s: float = 600.0
    stall_s: float = 30.0
    handshake_s: float = 20.0
    keepalive_time_ms: int = 7_200_000
    keepalive_timeout_ms: int = 20_000
    keepalive_permit_without_calls: bool = False
    http2_max_pings_without_data: int = 2
    http2_min_recv_ping_interval_without_data_ms: int = 300_000
    http2_max_ping_strikes: int = 2
