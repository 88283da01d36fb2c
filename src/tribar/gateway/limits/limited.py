"""A generator whose tokens count."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from tribar.core.ports import TextGenerator
from tribar.core.requests import Delta, GenerateRequest, ModelCard, Prepared
from tribar.gateway.limits.gate import LimitGate
from tribar.gateway.limits.rules import Subject
from tribar.gateway.limits.visit import Visit, current_visit


class Limited:
    """A ``TextGenerator`` that tells the visit of its HTTP request what ``generator`` will cost, and then what it did.

    Where there is no such visit (an ensemble, a program), each generation is one by itself.
    """

    def __init__(self, generator: TextGenerator, gate: LimitGate) -> None:
        self._generator = generator
        self._gate = gate

    def card(self) -> ModelCard:
        """See ``TextGenerator``."""
        return self._generator.card()

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator``."""
        prepared = await self._generator.prepare(request)
        visit = current_visit()
        if visit is not None:
            visit.expect(prepared.n_tokens, self._most_output(prepared))
        return prepared

    async def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator``. Raises ``RateLimited`` before anything is generated."""
        visit = current_visit()
        if visit is not None:
            await visit.admit()
            async with aclosing(self._metered(prepared, visit)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        request = prepared.request
        own = self._gate.visit(Subject(tenant=request.tenant, model=request.model))
        own.expect(prepared.n_tokens, self._most_output(prepared))
        try:
            await own.admit()
            async with aclosing(self._metered(prepared, own)) as deltas:
                async for delta in deltas:
                    yield delta
        except BaseException as error:
            own.close(error)
            raise
        own.close()

    async def _metered(self, prepared: Prepared, visit: Visit) -> AsyncGenerator[Delta, None]:
        """The prompt is spent with the first token of its first answer, as the answer's usage has it."""
        n_prompt = 0 if prepared.choice else prepared.n_tokens
        n_seen = 0
        is_begun = False
        async with aclosing(self._generator.generate(prepared)) as deltas:
            async for delta in deltas:
                n_new = len(delta.token_ids) or bool(delta.text)  # an upstream's pieces may come without ids
                n_more_prompt = 0 if is_begun else n_prompt
                if delta.finish is not None:
                    usage = delta.finish.usage
                    n_new = usage.completion_tokens - n_seen
                    n_more_prompt += 0 if prepared.choice else usage.prompt_tokens - n_prompt
                is_begun = True
                n_seen += n_new
                visit.spend(n_more_prompt, n_new)
                yield delta

    def _most_output(self, prepared: Prepared) -> int:
        """What one answer can have, or what the operator expects of one whose length is left open."""
        if prepared.request.max_tokens is not None:
            return prepared.request.max_tokens
        room = max(0, self._generator.card().max_model_len - prepared.n_tokens)
        estimate = self._gate.config.estimated_output_tokens
        return room if estimate is None else min(room, estimate)
