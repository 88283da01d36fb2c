"""Readers behind a long, lossy line (200 ms round trip, 1 % loss) beside direct ones: frames, bytes, age of tokens.

Both kinds read at the same time from one front end; then the direct ones run again alone, to show that nobody waits
for the far ones. A far reader's token is at least half a round trip old on arrival.

    python -m benchmarks far_reader [--streams 20] [--tokens-per-s 100] [--seconds 20]
"""

import argparse
import re

from benchmarks.active_streams import CONTENT, plan, token_ages_s
from benchmarks.clock_engine import TOKEN_CHARACTERS
from benchmarks.far_line import far_line
from benchmarks.front import Front, front_end
from benchmarks.load import Request, Result, quantile, start

EVENT = re.compile(rb"data: \{")


def text_of(request: Request) -> str:
    """The whole answer."""
    data = b"".join(piece for _, piece in request.pieces)
    return b"".join(CONTENT.findall(data)).decode()


def report(label: str, result: Result, n_tokens: int) -> None:
    """One line; every answer has to have every token."""
    texts = [text_of(request) for request in result.requests]
    n_lost = sum(len(text) != n_tokens * TOKEN_CHARACTERS for text in texts)
    events = sum(len(EVENT.findall(piece)) for request in result.requests for _, piece in request.pieces)
    n_bytes = sum(request.n_bytes for request in result.requests)
    total = n_tokens * len(texts)
    gaps = [
        later[0] - earlier[0]
        for request in result.requests
        for earlier, later in zip(request.pieces, request.pieces[1:], strict=False)
    ]
    ages = token_ages_s(result, 1.0)
    print(f"{label}: {events / total:.2f} events and {n_bytes / total:.0f} bytes per token, ", end="")
    print(f"age of a token ms p50 {1000 * quantile(ages, 0.5):.1f}, p99 {1000 * quantile(ages, 0.99):.1f}, ", end="")
    print(f"between events ms p50 {1000 * quantile(gaps, 0.5):.1f}, p99 {1000 * quantile(gaps, 0.99):.1f}; ", end="")
    print(f"{n_lost} answers incomplete; load generator {result.cpu_share:.0%} of its core", flush=True)


def measure(front: Front, streams: int, n_tokens: int, seconds: float, round_trip_s: float, loss: float) -> None:
    """Far and direct together, then direct alone."""
    core = front.other_core
    with far_line(front.port, round_trip_s, loss, core) as far_port:
        far = start(plan(far_port, core, streams, n_tokens, 4 * seconds + 30))
        direct = start(plan(front.port, core, streams, n_tokens, 4 * seconds + 30))
        report(f"{streams} far", far.result(), n_tokens)
        report(f"{streams} direct beside them", direct.result(), n_tokens)
    alone = start(plan(front.port, core, streams, n_tokens, seconds + 30))
    report(f"{streams} direct alone", alone.result(), n_tokens)


def main() -> None:
    """Print three lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--tokens-per-s", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--round-trip-ms", type=float, default=200.0)
    parser.add_argument("--loss", type=float, default=0.01, help="share of segments")
    options = parser.parse_args()
    rate, seconds = options.tokens_per_s, options.seconds
    with front_end(rate) as front:
        round_trip_s = options.round_trip_ms / 1000
        measure(front, options.streams, int(rate * seconds), seconds, round_trip_s, options.loss)


if __name__ == "__main__":
    main()
