"""Streams that all speak: what a front end on one core adds to each token's way from the engine to the client.

Every token tells when the engine sent it (``clock_engine``), so the figure holds the whole way: engine socket, front
end, TCP, load generator. For contrast the same load on a handler that blocks, a thread for each request: both are
offered ``--blocking`` streams at the same pace, and where a server falls behind, its line says so.

Three servers, each for ``--seconds`` and about 6 s to start and read the figures: a minute and a half by default.

    python -m benchmarks active_streams [--streams 500] [--tokens-per-s 20] [--seconds 18] [--blocking 1000]
"""

import argparse

from benchmarks.blocking_server import blocking_server
from benchmarks.front import Front, front_end
from benchmarks.token_streams import MAX_SECONDS, Ages, plan
from benchmarks.watched import Watched, watch


def report(label: str, run: Watched, ages: Ages) -> None:
    """A few lines."""
    requests = run.result.requests
    n_events = sum(request.n_pieces for request in requests)
    whole = sum(request.is_whole for request in requests)
    opened_s = max(request.first_s for request in requests) - run.result.start_s
    print(f"{label}: added latency ms p50 {1000 * ages.p50_s:.1f}, p99 {1000 * ages.p99_s:.1f}, ", end="")
    print(f"worst {1000 * ages.worst_s:.1f}")
    print(f"  {ages.delivered:.1%} of the tokens offered arrived in time ({ages.n_tokens} counted, ", end="")
    print(
        f"{n_events} events in all), {whole} of {len(requests)} answers whole, "
        f"all open after {opened_s:.1f} s; {run.cores()}"
    )
    if not ages.keeps_up:
        print(f"  THE SERVER CANNOT KEEP UP: a token's age grows by {1000 * ages.growth:.0f} ms each second, ", end="")
        print("so the latencies only say how long this ran")


def measure(front: Front, streams: int, tokens_per_s: float, seconds: float, label: str) -> None:
    """One server under one load."""
    load = plan(front.port, front.other_core, streams, tokens_per_s, seconds)
    run, _ = watch(load, {"server": front.pid})
    report(f"{streams} {label} at {tokens_per_s:g} tokens/s", run, Ages.of(run.result, tokens_per_s, seconds))


def main() -> None:
    """The front end, and at the contrast's load the front end and the blocking handler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--tokens-per-s", type=float, default=20.0, help="of each stream")
    parser.add_argument("--seconds", type=float, default=18.0, help=f"of each server, at most {MAX_SECONDS:g}")
    parser.add_argument("--blocking", type=int, default=1000, help="streams of the contrast; 0: leave it out")
    options = parser.parse_args()
    if options.seconds > MAX_SECONDS:
        parser.error(f"--seconds: at most {MAX_SECONDS:g}")
    pace = (options.tokens_per_s, options.seconds)
    for streams in sorted({options.streams, options.blocking or options.streams}):
        with front_end(options.tokens_per_s) as front:
            measure(front, streams, *pace, "streams of the front end")
    if options.blocking:
        with blocking_server(options.tokens_per_s) as front:
            measure(front, options.blocking, *pace, "blocking threads")


if __name__ == "__main__":
    main()
