"""Three times the load that the server can carry: does it stay as useful as at its capacity, and say no quickly?

The capacity: a few clients more than rows, each one request after the other, so that no row waits for a client and
nobody is refused; once before and once after the flood, because machines drift. The flood: ``--factor`` times that
rate, open loop, whatever becomes of the requests. Goodput counts answers that came whole, with their first token within
``--slo-s``; those that the end cuts off count by their part. The pool of KV blocks is small, so that it is full before
the flood: what memory grows then is not the prefix cache. Then, for contrast, a server without admission gets the same
flood.

Takes less than three times ``--seconds`` and a minute: four minutes at most by default.

    python -m benchmarks overload [--seconds 60] [--factor 3] [--options "--max-ttft 1"] [--contrast-options "..."]
"""

import argparse
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.load import Plan, Request, Result, quantile, run
from benchmarks.processes import children
from benchmarks.server import Served, served
from benchmarks.watched import Watched, watch

N_ROWS = 16
N_CLIENTS = N_ROWS + N_ROWS // 4
REFUSALS = frozenset({429, 503})
QUICK_S = 0.05
GRACE_S = 10.0
WARM_UP_S = 10.0
RETRY_S = 1.0
KV_MEMORY = "256MiB"
NO_ADMISSION = "--max-ttft 0 --max-waiting 1000000 --max-waiting-tokens 1000000000"


def plan(port: int, n_tokens: int, seconds: float, rate_per_s: float) -> Plan:
    """Short chats, each a different one. ``rate_per_s`` 0: closed loop."""
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "Number %d: explain in one paragraph why the sky is blue."}],
        "max_tokens": n_tokens,
        "min_tokens": n_tokens,
        "stream": True,
    }
    return Plan(
        port=port,
        path="/v1/chat/completions",
        body=json.dumps(body),
        seconds=seconds,
        rate_per_s=rate_per_s,
        n_clients=N_CLIENTS,
        grace_s=GRACE_S,
        retry_s=RETRY_S,
        n_sources=4,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the requests of one run; rates are per second of the time in which requests came."""

    n_requests: int
    answered: Sequence[Request]
    refused: Sequence[Request]
    goodput_per_s: float
    answered_per_s: float

    @classmethod
    def of(cls, result: Result, slo_s: float, seconds: float) -> "Outcome":
        """Counted from outside: a late request counts from when it was due, not from when it was sent."""
        end_s = result.start_s + seconds
        answered = [request for request in result.requests if request.status == 200 and request.is_whole]
        good = [request for request in answered if request.first_s - request.due_s <= slo_s]
        refused = [request for request in result.requests if request.status in REFUSALS]
        rates = [sum(_share_before(end_s, request) for request in some) / seconds for some in (good, answered)]
        return cls(len(result.requests), answered, refused, *rates)

    def first_token_s(self, share: float) -> float:
        """Quantile of the time to the first token, over the answered."""
        return quantile([request.first_s - request.due_s for request in self.answered], share)

    def whole_s(self, share: float) -> float:
        """Quantile of the time to the whole answer."""
        return quantile([request.end_s - request.due_s for request in self.answered], share)


def _share_before(end_s: float, request: Request) -> float:
    """Else a long grace would flatter, and none would punish."""
    return min(1.0, (end_s - request.due_s) / (request.end_s - request.due_s))


def report(label: str, outcome: Outcome, watched: Watched) -> None:
    """A few lines."""
    n_others = outcome.n_requests - len(outcome.answered) - len(outcome.refused)
    print(f"{label}: {outcome.n_requests} requests, {len(outcome.answered)} answered, ", end="")
    print(f"{len(outcome.refused)} refused, {n_others} neither; ", end="")
    print(f"goodput {outcome.goodput_per_s:.2f}/s, answered in time or not {outcome.answered_per_s:.2f}/s")
    late_ms = 1000 * watched.result.late_s()
    print(f"  {watched.cores()}, which sent late by {late_ms:.1f} ms (p99)", flush=True)


def compare(calm: Outcome, flood: Outcome, watched: Watched, slo_s: float) -> None:
    """The flood beside the capacity."""
    print(f"  goodput is {flood.goodput_per_s / calm.goodput_per_s:.1%} of the capacity")
    for name, quantile_of in (("first token", Outcome.first_token_s), ("whole answer", Outcome.whole_s)):
        pairs = [(quantile_of(calm, at), quantile_of(flood, at)) for at in (0.5, 0.99)]
        (p50, p50_flood), (p99, p99_flood) = [(1000 * before, 1000 * after) for before, after in pairs]
        print(f"  {name} of the answered, ms at capacity -> in the flood: p50 {p50:.0f} -> {p50_flood:.0f}, ", end="")
        print(f"p99 {p99:.0f} -> {p99_flood:.0f} ({p99_flood / p99:.2f}x)")
    late = sum(request.first_s - request.due_s > slo_s for request in flood.answered)
    print(f"  {late} of the answered had their first token later than {slo_s:g} s")
    if flood.refused:
        refusals = [request.end_s - request.due_s for request in flood.refused]
        n_slow = sum(wait_s > QUICK_S for wait_s in refusals)
        print(
            f"  refusals, ms: p50 {1000 * quantile(refusals, 0.5):.1f}, p99 {1000 * quantile(refusals, 0.99):.1f}, ",
            end="",
        )
        print(f"worst {1000 * max(refusals):.0f}; {n_slow} took longer than {1000 * QUICK_S:.0f} ms")
    for name, samples in watched.rss.items():
        start, quarter, end = (samples[i] / 1e6 for i in (0, len(samples) // 4, -1))
        print(
            f"  memory of the {name}, MB: {start:.0f} at the start of the flood, {quarter:.0f} after a quarter, ",
            end="",
        )
        print(
            f"{end:.0f} at its end ({100 * (end / quarter - 1):+.1f} %), {max(samples) / 1e6:.0f} at most", flush=True
        )


class Trial:
    """One server under calm load and floods."""

    def __init__(self, server: Served, options: argparse.Namespace, label: str) -> None:
        self._server = server
        self._pids = {"front end": server.pid, "engine": children(server.pid)[0]}
        self._options = options
        self._label = label
        run(plan(server.port, options.tokens, WARM_UP_S, 0.0))

    def calm(self, when: str) -> Outcome:
        """As many requests as it can carry."""
        outcome, _ = self._run(f"at capacity, {when}", self._options.seconds / 3, 0.0)
        if outcome.refused:
            print("  THE CAPACITY IS UNDERRATED: some of it was refused, so admission is tighter than the server")
        return outcome

    def flood(self, rate_per_s: float, calm: Outcome) -> None:
        """More than it can carry, beside what was measured at capacity."""
        outcome, watched = self._run(f"at {rate_per_s:.1f} requests/s", self._options.seconds, rate_per_s)
        compare(calm, outcome, watched, self._options.slo_s)

    def _run(self, what: str, seconds: float, rate_per_s: float) -> tuple[Outcome, Watched]:
        watched, _ = watch(plan(self._server.port, self._options.tokens, seconds, rate_per_s), self._pids)
        outcome = Outcome.of(watched.result, self._options.slo_s, seconds)
        report(f"{self._label}, {what}", outcome, watched)
        return outcome, watched


def main() -> None:
    """Print the figures of a server with admission, and of one without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each flood; a third of it for each calm run")
    parser.add_argument("--factor", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second instead of the factor")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--slo-s", type=float, default=2.0, help="the first token has to come within")
    parser.add_argument("--options", default="--max-ttft 1", help="of tribar serve: admission")
    parser.add_argument("--contrast-options", default=NO_ADMISSION, help="of the second server; empty: none")
    options = parser.parse_args()
    rows = ("--max-num-seqs", str(N_ROWS), "--kv-cache-memory", KV_MEMORY)
    with served(*rows, *shlex.split(options.options)) as server:
        trial = Trial(server, options, "with admission")
        calm = trial.calm("before")
        rate_per_s = options.rate or options.factor * calm.goodput_per_s
        trial.flood(rate_per_s, calm)
        after = trial.calm("after")
        print(f"  the capacity drifted by {100 * (after.goodput_per_s / calm.goodput_per_s - 1):+.1f} %", flush=True)
    if options.contrast_options:
        with served(*rows, *shlex.split(options.contrast_options)) as server:
            Trial(server, options, "without admission").flood(rate_per_s, calm)


if __name__ == "__main__":
    main()
