"""The gateway's settings: values, resolved before they get here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Limits and intervals of the HTTP front.

    ``max_all_bodies_bytes`` bounds the bodies that arrive or are parsed at the same time; one more is refused.
    ``body_timeout_s`` bounds the arrival of a whole request body. ``ping_interval_s`` is how often an idle stream is
    looked at: silence never lasts longer than two of them, and an answer whose first token takes longer than one
    starts as HTTP 200 with a ping. ``stall_timeout_s`` is how long a reader may take nothing before its request is
    aborted. ``offload_bytes``: bodies above it are parsed in a thread. ``max_choices`` bounds prompts times ``n``.
    ``cors_origins`` empty means no CORS headers at all; credentials are never allowed.
    """

    max_body_bytes: int = 8 * 2**20
    max_all_bodies_bytes: int = 256 * 2**20
    max_header_bytes: int = 64 * 2**10
    max_json_depth: int = 64
    max_choices: int = 128
    offload_bytes: int = 64 * 2**10
    body_timeout_s: float = 30.0
    ping_interval_s: float = 15.0
    stall_timeout_s: float = 30.0
    cors_origins: tuple[str, ...] = ()
