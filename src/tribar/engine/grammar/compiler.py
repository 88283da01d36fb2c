"""Compiles the grammars of requests, beside the engine's loop: a bad one costs its own request and nobody else.

A source that was compiled before is there at once. Any other goes to one worker thread, because compiling takes from
a millisecond to most of a second; its request waits outside the plan meanwhile. Requests for one source share a job.
"""

import logging
import threading
from collections.abc import Callable, Container
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tribar.core.errors import Internal, InvalidRequest, Overloaded, RateLimited, TribarError, Unsupported
from tribar.core.ids import Uid
from tribar.core.requests import Grammar
from tribar.engine.grammar.base import Constraint
from tribar.engine.grammar.cache import GrammarCache
from tribar.engine.grammar.guidance import compile_grammar, is_installed, make_tokenizer
from tribar.engine.grammar.matcher import Matcher
from tribar.engine.grammar.vocabulary import Vocabulary
from tribar.engine.grammar.wire_form import from_wire
from tribar.wire.messages import Submit

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_JOBS = 64
"""Different grammars that may wait for the worker; together with the limits of one this bounds the wait."""

MAX_TENANT_JOBS = MAX_JOBS // 8
"""How many of them one tenant may have asked for, so that it leaves room for others and keeps their wait short. Where
nobody has a key, everybody is the tenant "", and only ``MAX_JOBS`` counts."""

RETRY_AFTER_S = 1.0

STACK_BYTES = 128 * 2**20
"""Of the worker. llguidance follows rules into rules, and ``$ref`` into ``$ref``, by recursion: what fits into the
longest source takes up to 32 MiB, and the usual 8 MiB end in a crash. It is address space; only what is used is memory.
Following a compiled grammar does not recurse."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    future: "Future[LLMatcher]"
    tenant: str
    """Who asked for it first."""
    waiters: dict[Uid, tuple[str, frozenset[int]]] = field(default_factory=dict)
    """Of each request: the field its grammar came from, and the end tokens that shall not end it."""


class GrammarCompiler:
    """Used by the engine's one thread; ``wake`` is called from the worker when a job is done.

    llguidance's tables of the vocabulary are the worker's first job: it begins at construction, which should therefore
    precede the loading of the model. They take 0.1 s and more, in which nothing else of Python runs.
    """

    def __init__(self, vocabulary: Vocabulary, wake: Callable[[], None]) -> None:
        self._vocabulary = vocabulary
        self._wake = wake
        self._cache: GrammarCache[LLMatcher] = GrammarCache()
        self._jobs: dict[str, _Job] = {}
        self._worker = _deep_worker()
        self._tokenizer: Future[LLTokenizer] | None = None
        if can_follow_grammars(vocabulary):
            self._tokenizer = self._worker.submit(make_tokenizer, vocabulary)

    def request(self, submit: Submit) -> Constraint | None:
        """The constraint of ``submit``, which has a grammar; None where it will come out of ``ready``.

        To be called for requests that have been accepted, since it may begin a job. Raises ``InvalidRequest``,
        ``Unsupported`` where this engine follows no grammars, and ``RateLimited`` or ``Overloaded`` where too many
        wait, of this tenant or of all.
        """
        grammar = from_wire(submit.grammar)
        tokenizer = self._tokenizer
        if tokenizer is None:
            raise Unsupported(
                f"{grammar.param}: this engine follows no grammars: it needs the package llguidance "
                "(pip install llguidance) and a model with an end token",
                param=grammar.param,
            )
        barred_ids = self._vocabulary.end_ids - frozenset(submit.stop_ids)
        key = f"{grammar.kind}:{grammar.source}"
        compiled = self._cache.get(key)
        if compiled is not None:
            return self._constraint(compiled, grammar.param, barred_ids)
        if key not in self._jobs:
            self._check_room(submit.tenant, grammar.param)
            self._jobs[key] = _Job(self._worker.submit(_compile, tokenizer, grammar), submit.tenant)
            self._jobs[key].future.add_done_callback(self._on_done)
        self._jobs[key].waiters[submit.uid] = grammar.param, barred_ids
        return None

    def ready(self, wanted: Container[Uid]) -> list[tuple[Uid, Constraint | TribarError]]:
        """What was asked for and is done now, in no order. Requests that are not ``wanted`` any more are forgotten.

        A job that nobody waits for is cancelled where it has not begun.
        """
        outcomes: list[tuple[Uid, Constraint | TribarError]] = []
        for key, job in list(self._jobs.items()):
            for uid in [uid for uid in job.waiters if uid not in wanted]:
                del job.waiters[uid]
            if not job.waiters:
                job.future.cancel()
            if job.future.done():
                del self._jobs[key]
                outcomes += self._outcomes(key, job)
        return outcomes

    def close(self) -> None:
        """End the worker; whoever still waits gets nothing."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _check_room(self, tenant: str, param: str) -> None:
        if tenant and sum(job.tenant == tenant for job in self._jobs.values()) >= MAX_TENANT_JOBS:
            message = f"{param}: {MAX_TENANT_JOBS} of your grammars are waiting to be compiled: let some of them finish"
            raise RateLimited(message, param=param, retry_after_s=RETRY_AFTER_S)
        if len(self._jobs) >= MAX_JOBS:
            message = f"{param}: {MAX_JOBS} grammars are waiting to be compiled"
            raise Overloaded(message, param=param, retry_after_s=RETRY_AFTER_S)

    def _outcomes(self, key: str, job: _Job) -> list[tuple[Uid, Constraint | TribarError]]:
        if job.future.cancelled():
            return []
        error = job.future.exception()
        if error is None:
            compiled = job.future.result()
            self._cache.put(key, compiled)
            return [(uid, self._constraint(compiled, *waiter)) for uid, waiter in job.waiters.items()]
        return [(uid, _refusal(error, param)) for uid, (param, _) in job.waiters.items()]

    def _on_done(self, _future: "Future[LLMatcher]") -> None:
        self._wake()

    def _constraint(self, compiled: "LLMatcher", param: str, barred_ids: frozenset[int]) -> Constraint:
        vocab_size = len(self._vocabulary.token_bytes)
        return Matcher(compiled, vocab_size, barred_ids=barred_ids, param=param)


def can_follow_grammars(vocabulary: Vocabulary) -> bool:
    """Whether an engine with this vocabulary can, on this installation."""
    return bool(vocabulary.end_ids) and is_installed()


def _deep_worker() -> ThreadPoolExecutor:
    """One thread, started already: a thread's stack is what ``threading.stack_size`` says when it begins."""
    usual = threading.stack_size(STACK_BYTES)
    try:
        worker = ThreadPoolExecutor(1, thread_name_prefix="compile-grammar")
        worker.submit(int)
    finally:
        threading.stack_size(usual)
    return worker


def _compile(tokenizer: "Future[LLTokenizer]", grammar: Grammar) -> "LLMatcher":
    return compile_grammar(tokenizer.result(), grammar)


def _refusal(error: BaseException, param: str) -> TribarError:
    """The error that a request gets. A panic of llguidance (no ``Exception``) is its fault, and so ours."""
    if isinstance(error, InvalidRequest):
        return type(error)(f"{param}: {error.message}", param=param)
    _log.error("a grammar could not be compiled: %r", error)
    return Internal(f"{param}: the grammar could not be compiled")
