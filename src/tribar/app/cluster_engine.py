"""``tribar engine``: one engine for the gateways of a cluster, in this process and in the foreground."""

from tribar.app.config import ServeConfig
from tribar.app.engine_spec import engine_spec
from tribar.app.launch import open_and_resolve, set_up_logging
from tribar.app.machine import read_machine
from tribar.app.shared_stores import required_redis_url
from tribar.engine.process import serve


def run_cluster_engine(config: ServeConfig) -> int:
    """Serve until SIGTERM or SIGINT, and drain; the exit code is that of an engine process.

    Redis may be away, now and later: the engine joins when it can. Raises a ``TribarError`` in one line for settings
    that cannot work.
    """
    url = required_redis_url(config.stores, "tribar engine")
    from tribar.wire.redis_stream import RedisStreamEndpoint

    set_up_logging(config.server)
    opened, resolved = open_and_resolve(config, read_machine())
    scheduler = resolved.scheduler_config
    endpoint = RedisStreamEndpoint(
        url,
        config.cluster.cluster,
        max_open=scheduler.max_num_seqs + 2 * scheduler.max_waiting,  # twice the room is the end for everybody
        liveness_s=config.cluster.liveness_s,
    )
    spec = engine_spec(resolved, opened, grace_s=config.server.drain_timeout_s)
    return serve(endpoint, lambda: spec, on_ready=endpoint.announce, on_stop=endpoint.leave)
