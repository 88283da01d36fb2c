"""What can be set of the gRPC server."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcOptions:
    """The keep-alive times have the names and defaults of Triton's flags ``--grpc-...``.

    ``max_message_bytes`` bounds a request, ``max_concurrent_calls`` the calls that are inside at the same time (others
    get RESOURCE_EXHAUSTED), ``max_stream_requests`` the requests of one stream that are inside (more are not read).
    """

    max_message_bytes: int = 128 * MIB
    max_concurrent_calls: int = 8192
    max_stream_requests: int = 128
    keepalive_time_ms: int = 7_200_000
    keepalive_timeout_ms: int = 20_000
    keepalive_permit_without_calls: bool = False
    http2_max_pings_without_data: int = 2
    http2_min_recv_ping_interval_without_data_ms: int = 300_000
    http2_max_ping_strikes: int = 2

    def channel_arguments(self) -> list[tuple[str, int]]:
        """As grpc takes them. A port that another process listens on is not shared with it."""
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", self.keepalive_time_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", int(self.keepalive_permit_without_calls)),
            ("grpc.http2.max_pings_without_data", self.http2_max_pings_without_data),
            (
                "grpc.http2.min_ping_interval_without_data_ms",
                self.http2_min_recv_ping_interval_without_data_ms,
            ),
            ("grpc.http2.max_ping_strikes", self.http2_max_ping_strikes),
        ]
