"""Shadow checks: of the hits that the thresholds chose, a fresh answer is made and compared with the stored one.

Nobody waits for it, and the engine serves everybody else first. The outcome is what the thresholds learn from.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from tribar.core.errors import TribarError
from tribar.core.ports import AnswerJudge, TextGenerator
from tribar.core.requests import CacheMode, CacheWish, Delta, FinishReason, GenerateRequest, Prepared
from tribar.gateway.semantic_cache.answer_cache import AnswerCache, Found
from tribar.gateway.semantic_cache.entry import answer_of
from tribar.gateway.semantic_cache.observer import CacheObserver
from tribar.gateway.semantic_cache.policy import question_of
from tribar.gateway.semantic_cache.thresholds import Lesson, Thresholds

MAX_WAITING = 32
"""Checks that wait. With more, questions in other words miss: how far the bound on wrong answers can be overrun grows
with the checks that are outstanding."""

N_WORKERS = 4
"""Checks that are made at the same time."""

PRIORITY = 1000
"""After everybody else."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """A hit to be compared with the answer to ``request``."""

    found: Found
    request: GenerateRequest


class Verification:
    """A hit that is not served: it is compared with the answer that is generated in its place, once that is there.

    Until ``settle`` or ``skip``, whichever is first, the thresholds wait for it.
    """

    def __init__(self, checks: "ShadowChecks", found: Found) -> None:
        self._checks = checks
        self._found: Found | None = found

    async def settle(self, question: str, prepared: Prepared, deltas: Sequence[Delta]) -> None:
        """The generation ended."""
        fresh = _whole(prepared, deltas)
        found, self._found = self._found, None
        if found is not None and fresh is not None:
            await self._checks.compare(found, question, fresh)
        elif found is not None:
            self._checks.skip(found)

    def skip(self) -> None:
        """There is no answer to compare with. Does nothing after ``settle``."""
        found, self._found = self._found, None
        if found is not None:
            self._checks.skip(found)


class ShadowChecks:
    """The checks of one model; ``run`` makes them, a few at a time. ``generator`` is one that charges nobody.

    ``thresholds`` are those of the cache.
    """

    def __init__(
        self,
        generator: TextGenerator,
        cache: AnswerCache,
        thresholds: Thresholds,
        answer_judge: AnswerJudge,
        observer: CacheObserver,
    ) -> None:
        self._thresholds = thresholds
        self._generator = generator
        self._cache = cache
        self._answer_judge = answer_judge
        self._observer = observer
        self._waiting: asyncio.Queue[Check] = asyncio.Queue(MAX_WAITING)

    @property
    def is_full(self) -> bool:
        """Whether no more may be asked for."""
        return self._waiting.full()

    def add(self, check: Check) -> None:
        """Make ``check`` some time; too many at once are skipped."""
        if self._waiting.full():
            self.skip(check.found)
        else:
            self._waiting.put_nowait(check)

    def verification(self, found: Found | None) -> Verification | None:
        """How ``found``, which is not served, is to be checked; None where it is not to be."""
        is_checked = found is not None and found.decision is not None and found.decision.is_checked
        return Verification(self, found) if found is not None and is_checked else None

    async def run(self) -> None:
        """Make checks until cancelled. What then waits is skipped."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(N_WORKERS):
                    workers.create_task(self._work())
        finally:
            while not self._waiting.empty():
                self.skip(self._waiting.get_nowait().found)

    async def _work(self) -> None:
        while True:
            await self._make(await self._waiting.get())

    async def compare(self, found: Found, question: str, fresh: str) -> None:
        """Learn from ``fresh``, the answer to what found ``found``. Never raises an error of ours."""
        assert found.decision is not None
        try:
            is_same = await self._answer_judge.is_same(question, found.entry.answer.text, fresh)
        except TribarError as error:
            _log.warning("a hit could not be checked: %s", error.message)
            self.skip(found)
            return
        except asyncio.CancelledError:
            self.skip(found)
            raise
        self._observer.on_check("shadow", is_right=is_same)
        lesson = self._thresholds.learn(found.decision, is_same=is_same, neighbours=found.near)
        if lesson in {Lesson.DROP, Lesson.CORRECT}:
            try:
                await self._cache.drop(found.key)
            except TribarError as error:
                _log.warning("a wrong answer could not be dropped: %s", error.message)

    def skip(self, found: Found) -> None:
        """The check of ``found`` cannot be made."""
        assert found.decision is not None
        self._thresholds.skip(found.decision)

    async def _make(self, check: Check) -> None:
        try:
            fresh = await self._fresh(check.request)
        except TribarError as error:
            _log.info("a hit could not be checked: %s", error.message)
            self.skip(check.found)
            return
        except asyncio.CancelledError:
            self.skip(check.found)
            raise
        if fresh is None:
            self.skip(check.found)
        else:
            await self.compare(check.found, question_of(check.request), fresh)

    async def _fresh(self, request: GenerateRequest) -> str | None:
        """The text of a new answer; None where it is not a whole one."""
        anew = replace(request, priority=PRIORITY, deadline_s=None, cache=CacheWish(mode=CacheMode.BYPASS))
        prepared = await self._generator.prepare(anew)
        async with aclosing(self._generator.generate(prepared)) as stream:
            deltas = [delta async for delta in stream]
        return _whole(prepared, deltas)


def _whole(prepared: Prepared, deltas: Sequence[Delta]) -> str | None:
    finish = deltas[-1].finish if deltas else None
    if finish is None or finish.reason is not FinishReason.STOP:
        return None
    return answer_of(deltas, finish, prepared.ids).text
