"""A model of a pool as a ``TextGenerator``: whichever upstream answers."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from tribar.core.errors import DeadlineExceeded, TribarError, Unsupported
from tribar.core.requests import Delta, GenerateRequest, ModelCard, Prepared
from tribar.gateway.pool.affinity import affinity_key
from tribar.gateway.pool.pool import Pool
from tribar.gateway.pool.seat import Seat
from tribar.gateway.retry import may_succeed_elsewhere
from tribar.gateway.router import RoutedRequest
from tribar.gateway.upstream.prompt_size import estimated_tokens

UPSTREAM_HEADER = "x-tribar-upstream"
MODEL_HEADER = "x-tribar-model"
"""Told where another model than the one that was asked has answered."""

EXPECTED_OUTPUT_TOKENS = 256
"""What an answer counts for when loads are compared; limits that clients set say little."""

RETRY_PAUSE_S = 0.05
"""Before the same upstream is tried again, doubled with each attempt and drawn at random below that."""


class PooledModel:
    """Implements ``TextGenerator`` over ``pool``. ``name`` is what callers know it by, ``model`` its name there.

    A request is tried again, within the pool's budget and at another upstream if there is one, as long as nothing of
    its answer has been handed on. After that a failure is raised: half an answer is not begun anew.
    """

    def __init__(self, pool: Pool, model: str, name: str, draw: Callable[[], float] = random.random) -> None:
        self._pool = pool
        self._model = model
        self._name = name
        self._draw = draw

    def card(self) -> ModelCard:
        """See ``TextGenerator``."""
        return replace(self._pool.card(self._model), name=self._name)

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator``. The count is that of the first upstream that takes the request.

        Raises ``Unsupported`` where no upstream has what is asked for. Ids stay with the upstream that will answer.
        """
        self._pool.card(self._model)
        refusal: Unsupported | None = None
        for member in self._pool.group(self._model):
            if not member.is_up:
                continue
            try:
                prepared = await member.upstream.prepare(request)
            except Unsupported as error:
                refusal = refusal or error
            else:
                return Prepared(request, prepared.n_tokens)
        if refusal is not None:
            raise refusal
        return Prepared(request, estimated_tokens(request.prompt))

    async def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator``. The first Delta tells in its headers who answers."""
        pool, request = self._pool, prepared.request
        pool.budget.deposit()
        expires_s = None if request.deadline_s is None else pool.clock() + request.deadline_s
        routed = self._routed(prepared)
        unfit: dict[str, TribarError] = {}
        n_attempts = 0
        while True:
            seat = await pool.seat(routed, unfit, expires_s)
            name = seat.choice.upstream
            try:
                with seat:
                    async with aclosing(self._attempt(seat, request, expires_s)) as deltas:
                        async for delta in deltas:
                            yield delta
                return
            except Unsupported as error:
                if seat.has_begun:
                    raise
                unfit[name] = error
            except TribarError as error:
                n_attempts += 1
                if seat.has_begun or not self._may_retry(error, n_attempts):
                    raise
                pool.observer.on_retry(name)
                if name in routed.tried:
                    await asyncio.sleep(self._draw() * RETRY_PAUSE_S * 2**n_attempts)
                routed = replace(routed, tried=routed.tried | {name})

    async def _attempt(
        self, seat: Seat, request: GenerateRequest, expires_s: float | None
    ) -> AsyncGenerator[Delta, None]:
        prepared = await seat.upstream.prepare(self._with_time_left(request, expires_s))
        seat.sent()
        async with aclosing(seat.upstream.generate(prepared)) as deltas:
            async for delta in deltas:
                if seat.has_begun:
                    yield delta
                    continue
                seat.begin()
                yield replace(delta, headers=self._headers(seat))

    def _routed(self, prepared: Prepared) -> RoutedRequest:
        request = prepared.request
        n_output = min(request.max_tokens or EXPECTED_OUTPUT_TOKENS, EXPECTED_OUTPUT_TOKENS)
        route = self._pool.router.models.get(self._model)
        may_shrink = request.may_shrink or (route is not None and route.may_shrink(request.tenant))
        return RoutedRequest(self._model, affinity_key(request), prepared.n_tokens + n_output, may_shrink)

    def _may_retry(self, error: TribarError, n_attempts: int) -> bool:
        is_allowed = n_attempts < self._pool.policy.max_attempts and may_succeed_elsewhere(error)
        return is_allowed and self._pool.budget.withdraw()

    def _with_time_left(self, request: GenerateRequest, expires_s: float | None) -> GenerateRequest:
        if expires_s is None:
            return request
        left_s = expires_s - self._pool.clock()
        if left_s <= 0:
            raise DeadlineExceeded("the request's deadline passed before an upstream could answer")
        return replace(request, deadline_s=left_s)

    def _headers(self, seat: Seat) -> tuple[tuple[str, str], ...]:
        told = ((UPSTREAM_HEADER, seat.choice.upstream),)
        return told if seat.choice.model == self._model else (*told, (MODEL_HEADER, seat.choice.model))
