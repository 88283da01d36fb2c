"""The semantic cache's cold prior on labelled pairs of questions: hits on equal answers, false hits on different ones.

The classifier was fitted to ``data/semantic_training.jsonl`` alone. ``semantic_pairs`` (300, adversarial: a cosine
cannot tell them apart) was looked at while guards and word lists were corrected, and the threshold was chosen with
it in view, so its figures are not blind. Two others stand beside the shipped prior's: the threshold chosen with
each kind left out, and classifier and threshold fitted anew with each kind left out (zh-en positives are all of
one kind, so that then nothing is left to learn two languages from). ``semantic_holdout`` was written before any
measurement; totals and counts by kind were seen since, its pairs were not looked at again.

    python -m benchmarks semantic_pairs [--sets semantic_pairs semantic_holdout] [--errors]
"""

import argparse
import asyncio
from collections.abc import Callable, Sequence
from statistics import fmean, quantiles
from time import process_time

import msgspec

from benchmarks.labelled_pairs import Pair, Seen, default_embedder, read_pairs, see, wilson
from benchmarks.semantic_training import fit
from tribar.core.ports import Embedder
from tribar.gateway.semantic_cache.analyst import Analyst
from tribar.gateway.semantic_cache.classifier import Classifier
from tribar.gateway.semantic_cache.evidence import evidence
from tribar.gateway.semantic_cache.judge import PRIOR_THRESHOLD, judge, refusal
from tribar.gateway.semantic_cache.verdict import Analysis, Question

GRID = [round(0.5 + 0.01 * step, 2) for step in range(50)]
Rule = Callable[[Seen], bool]


def print_shares(name: str, seen: Sequence[Seen], is_hit: Rule) -> None:
    """One line: hits on same-language positives, on zh-en positives, and false hits of both sorts."""
    parts = []
    for label, is_mixed, same in (
        ("hits", False, True),
        ("false", False, False),
        ("zh-en hits", True, True),
        ("false", True, False),
    ):
        chosen = [one for one in seen if (one.pair.lang == "mixed") == is_mixed and one.pair.same_answer == same]
        n = sum(map(is_hit, chosen))
        low, high = wilson(n, len(chosen))
        share = f"{n / max(1, len(chosen)):4.0%} [{low:.0%}, {high:.0%}]"
        parts.append(f"{label} {n:3}/{len(chosen):<3} {share:16}")
    print(f"{name:36}", *parts, flush=True)


def choose_threshold(seen: Sequence[Seen], score: Callable[[Seen], float]) -> float:
    """The lowest threshold of the grid that lets no false hit through."""
    false = [score(one) for one in seen if not one.pair.same_answer]
    return next((threshold for threshold in GRID if all(value < threshold for value in false)), 1.0)


def without_each_kind(seen: Sequence[Seen], training: Sequence[Seen], *, refit: bool) -> Rule:
    """Each pair judged by a threshold (and, with ``refit``, a classifier) that saw no pair of its kind."""
    hits = set[int]()
    for kind in {one.pair.kind for one in seen}:
        rest = [one for one in seen if one.pair.kind != kind]
        score = refitted_score([*rest, *(one for one in training if one.pair.kind != kind)]) if refit else shipped_score
        threshold = choose_threshold(rest, score)
        hits |= {id(one) for one in seen if one.pair.kind == kind and score(one) >= threshold}
    return lambda one: id(one) in hits


def refitted_score(pairs: Sequence[Seen]) -> Callable[[Seen], float]:
    """The score of a classifier that was fitted to these pairs."""
    fitted = Classifier(fit(pairs, "", 1.0))

    def score(one: Seen) -> float:
        is_refused = bool(refusal(one.a, one.b, cross_language=True))
        return 0.0 if is_refused else fitted.score(evidence(one.a, one.b, one.similarity))

    return score


def shipped_score(one: Seen) -> float:
    """The score of the classifier as it is shipped, 0 where a guard refuses."""
    return one.verdict().score


def by_kind(seen: Sequence[Seen]) -> None:
    """Hits of the shipped prior by kind, with 95 % intervals."""
    print("\nkind               same answer               another answer")
    for kind in sorted({one.pair.kind for one in seen}):
        cells = []
        for same in (True, False):
            chosen = [one for one in seen if one.pair.kind == kind and one.pair.same_answer == same]
            n = sum(one.verdict().is_hit for one in chosen)
            low, high = wilson(n, len(chosen))
            cells.append(f"{n:3}/{len(chosen):<3} [{low:4.0%}, {high:4.0%}]".ljust(25) if chosen else " " * 25)
        print(f"{kind:18}", *cells)


def report(name: str, seen: Sequence[Seen], training: Sequence[Seen]) -> None:
    """All figures of one set."""
    print(f"\n# {name}: {len(seen)} pairs; share of hits [95 % interval, Wilson]")
    for cosine in (0.95, 0.85, 0.70):
        print_shares(f"plain cosine {cosine:.2f}", seen, lambda one, least=cosine: one.plain >= least)  # type: ignore[misc]
    print_shares(f"guards + prior {PRIOR_THRESHOLD:.2f}, cross_language", seen, lambda one: one.verdict().is_hit)
    print_shares("the same, languages apart", seen, lambda one: one.verdict(cross_language=False).is_hit)
    print_shares("threshold, each kind left out", seen, without_each_kind(seen, training, refit=False))
    print_shares("refitted, each kind left out", seen, without_each_kind(seen, training, refit=True))
    by_kind(seen)


def main() -> None:
    """Print the report of each set, and what a verdict costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["semantic_pairs", "semantic_holdout"])
    parser.add_argument("--errors", action="store_true", help="name each false hit and each refused positive")
    options = parser.parse_args()
    embedder = default_embedder()
    training = see(read_pairs("semantic_training"), embedder)
    for name in options.sets:
        seen = see(read_pairs(name), embedder)
        report(name, seen, training)
        for one in seen if options.errors else ():
            verdict = one.verdict()
            if verdict.is_hit != one.pair.same_answer:
                print(
                    one.pair.kind,
                    one.pair.same_answer,
                    f"{verdict.score:.2f} {verdict.reason}",
                    one.pair.a,
                    one.pair.b,
                    sep=" | ",
                )
    asyncio.run(print_costs(read_pairs("semantic_pairs")[:100], embedder))


async def print_costs(pairs: Sequence[Pair], embedder: Embedder) -> None:
    """Processor time of one lookup's parts, one question at a time, with the stored questions' words known."""
    analyst = Analyst(embedder)
    stored = [(await analyst.analyse([Question(pair.a)]))[0] for pair in pairs]
    asked, judging_s = list[Analysis](), list[float]()
    analysing_s: dict[bool, list[float]] = {False: [], True: []}
    for seconds in analysing_s.values():
        asked.clear()
        for pair in pairs:
            start = process_time()
            asked += await analyst.analyse([Question(pair.b)])
            seconds.append(process_time() - start)
    for a, b in zip(stored, asked, strict=True):
        start = process_time()
        judge(a.features, b.features, float(a.vector @ b.vector), cross_language=True)
        judging_s.append(process_time() - start)
    for name, spent in (
        ("analysing a question, embedding included, new words among it", analysing_s[False]),
        ("the same, all words known", analysing_s[True]),
        ("a verdict", judging_s),
    ):
        p50, p99 = quantiles(spent, n=100)[49], quantiles(spent, n=100)[98]
        print(f"{name}: {p50 * 1e3:.2f} ms of processor time in the median, {p99 * 1e3:.2f} ms at p99")
    size = fmean(len(msgspec.msgpack.encode(one.features)) for one in stored)
    print(f"features of a stored question: {size:.0f} bytes")


if __name__ == "__main__":
    main()
