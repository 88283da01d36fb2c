"""Do readers behind a long, lossy line (200 ms round trip, 1 % loss) disturb direct ones of the same front end?

In turns, the same direct streams run alone and beside as many far ones. Printed are the ages of tokens of each run,
then medians over the turns of the direct readers' p50 and p99, and their ratio. A far reader's token is at least half
a round trip old on arrival; its events hold several tokens, because nothing is sent that the line cannot take yet. The
line, the load generators and the engine share a core, so a ratio above 1 may be theirs: their shares are printed.

Each turn takes twice ``--seconds`` and about 5 s: a minute and a half by default.

    python -m benchmarks far_reader [--streams 20] [--tokens-per-s 100] [--seconds 12] [--turns 3]
"""

import argparse
import re
import statistics
from collections.abc import Sequence

from benchmarks.clock_engine import TOKEN_CHARACTERS
from benchmarks.far_line import far_line
from benchmarks.front import Front, front_end
from benchmarks.load import Plan, Result
from benchmarks.token_streams import CONTENT, MAX_SECONDS, Ages, plan
from benchmarks.watched import watch

EVENT = re.compile(rb"data: \{")


def line_of(result: Result, ages: Ages) -> str:
    """What readers got for a token, and when."""
    answers = [b"".join(piece for _, piece in request.pieces) for request in result.requests]
    n_events = sum(len(EVENT.findall(answer)) for answer in answers)
    n_tokens = sum(len(text) for answer in answers for text in CONTENT.findall(answer)) // TOKEN_CHARACTERS
    n_bytes = sum(request.n_bytes for request in result.requests)
    whole = sum(request.is_whole for request in result.requests)
    kept_up = "" if ages.keeps_up else "; DID NOT KEEP UP"
    return (
        f"age of a token ms p50 {1000 * ages.p50_s:.1f}, p99 {1000 * ages.p99_s:.1f}; "
        f"{n_tokens} tokens, {n_events / n_tokens:.2f} events and {n_bytes / n_tokens:.0f} bytes for each, "
        f"{whole} of {len(result.requests)} answers whole{kept_up}"
    )


def turn(front: Front, direct: Plan, far: Sequence[Plan], tokens_per_s: float) -> Ages:
    """The direct readers, with or without the far ones."""
    run, others = watch(direct, {"front end": front.pid}, far)
    ages = Ages.of(run.result, tokens_per_s, direct.seconds)
    print(f"direct {'beside far' if far else 'alone'}: {line_of(run.result, ages)}; {run.cores()}")
    for result in others:
        far_ages = Ages.of(result, tokens_per_s, direct.seconds)
        print(f"far: {line_of(result, far_ages)}", flush=True)
    return ages


def compare(alone: Sequence[Ages], beside: Sequence[Ages]) -> None:
    """Medians over the turns."""
    for name in ("p50_s", "p99_s"):
        before, after = (statistics.median(getattr(ages, name) for ages in runs) for runs in (alone, beside))
        label = f"direct readers, median of {len(alone)} turns, {name.removesuffix('_s')}"
        print(f"{label}: alone {1000 * before:.2f} ms, beside far ones {1000 * after:.2f} ms: {after / before:.2f}x")


def main() -> None:
    """Both in turns, then the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20, help="of each kind")
    parser.add_argument("--tokens-per-s", type=float, default=100.0, help="of each stream")
    parser.add_argument("--seconds", type=float, default=12.0, help=f"of each run, at most {MAX_SECONDS:g}")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--round-trip-ms", type=float, default=200.0)
    parser.add_argument("--loss", type=float, default=0.01, help="share of segments")
    options = parser.parse_args()
    if options.seconds > MAX_SECONDS:
        parser.error(f"--seconds: at most {MAX_SECONDS:g}")
    pace = (options.tokens_per_s, options.seconds)
    alone, beside = [], []
    with front_end(options.tokens_per_s) as front:
        core = front.other_core
        direct = plan(front.port, core, options.streams, *pace)
        with far_line(front.port, options.round_trip_ms / 1000, options.loss, core) as far_port:
            far = plan(far_port, core, options.streams, *pace)
            for _ in range(options.turns):
                alone.append(turn(front, direct, [], options.tokens_per_s))
                beside.append(turn(front, direct, [far], options.tokens_per_s))
    compare(alone, beside)


if __name__ == "__main__":
    main()
