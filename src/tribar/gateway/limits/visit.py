"""One HTTP request, as the limits see it: what it may take, what it has taken, what it used."""

from collections.abc import Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tribar.core.errors import TooLarge, TribarError
from tribar.core.limits import Demand, MeterKind, Settlement, Verdict
from tribar.core.usage import UsageCounts
from tribar.gateway.limits.headers import Headers, rate_limit_headers
from tribar.gateway.limits.rules import Limit, Subject

if TYPE_CHECKING:
    from tribar.gateway.limits.gate import LimitGate

_current: ContextVar["Visit | None"] = ContextVar("visit", default=None)


def current_visit() -> "Visit | None":
    """The visit of the HTTP request that this task works for. Tasks that it starts work for it, too."""
    return _current.get()


class Visit:
    """To be entered once, and left when the last byte of the answer has gone out: so long it holds its permits.

    Generators tell what their prompts will cost at most (``expect``); then ``admit`` takes everything at once, and what
    has really been generated is told as it comes (``spend``). At the end the difference goes back.
    """

    __slots__ = (
        "_gate",
        "_is_admitted",
        "_is_closed",
        "_n_choices",
        "_n_completion",
        "_n_expected",
        "_n_prompt",
        "_n_prompt_expected",
        "_taken",
        "_token",
        "headers",
        "limits",
        "subject",
        "ticket",
    )

    def __init__(
        self, gate: "LimitGate", subject: Subject, limits: Sequence[Limit], n_choices: int, ticket: str
    ) -> None:
        self.subject = subject
        self.limits = limits
        self.ticket = ticket
        self.headers: Headers = ()
        self._gate = gate
        self._n_choices = n_choices
        self._n_expected = 0
        self._n_prompt_expected = 0
        self._n_prompt = 0
        self._n_completion = 0
        self._taken: list[tuple[Limit, Demand, int]] = []  # with the window of the level that granted it
        self._is_admitted = False
        self._is_closed = False
        self._token: Token[Visit | None] | None = None

    def check(self) -> None:
        """For the moment that a request's head is there: raise ``RateLimited`` where its body need not be read."""
        self._gate.check(self)

    async def __aenter__(self) -> Self:
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._token is not None
        _current.reset(self._token)
        self.close(error)

    def expect(self, n_prompt: int, n_output: int) -> None:
        """A prompt of ``n_prompt`` tokens, each of whose answers will have at most ``n_output``."""
        self._n_prompt_expected += n_prompt
        self._n_expected += n_prompt + n_output * self._n_choices

    async def admit(self) -> None:
        """Take what is expected and has not been taken yet; the first time the request itself and its permits, too.

        Raises ``RateLimited``, then nothing was taken; ``TooLarge`` for prompts that no wait makes fit; what the store
        of the limits raises.
        """
        if not self.limits:
            self._is_admitted = True
            return
        is_first = not self._taken
        n_expected, self._n_expected = self._n_expected, 0
        if not is_first and n_expected == 0:
            return
        self._check_prompt()
        limits = self.limits if is_first else [limit for limit in self.limits if limit.unit == "tokens"]
        demands = [
            Demand(limit.meter, min(n_expected, limit.meter.limit) if limit.unit == "tokens" else 1) for limit in limits
        ]
        verdict = await self._gate.admit(self, demands)
        if verdict is None:
            self._is_admitted = True
            return
        self.headers = rate_limit_headers(limits, verdict.levels)
        if not verdict.is_granted:
            raise self._gate.refuse(limits, demands, verdict)
        self._take(limits, demands, verdict)
        self._is_admitted = True

    def spend(self, n_prompt: int, n_completion: int) -> None:
        """So many tokens more have been used."""
        self._n_prompt += n_prompt
        self._n_completion += n_completion
        if self._is_closed:  # a generation that others still wait for outlives the request that began it
            self._settle_tokens(-(n_prompt + n_completion))
            self._gate.observer.on_use(self.subject, UsageCounts(0, n_prompt, n_completion))

    def close(self, error: BaseException | None = None) -> None:
        """Give back what was not used. A request that failed here, before its first token, costs nothing."""
        self._is_closed = True
        self._gate.release(self)
        n_used = self._n_prompt + self._n_completion
        is_free = n_used == 0 and _is_our_fault(error)
        if self._taken:
            refunds = {"requests": int(is_free), "concurrent requests": 1}
            self._gate.settle(
                self,
                [
                    Settlement(demand.meter, refunds.get(limit.unit, demand.amount - n_used), window)
                    for limit, demand, window in self._taken
                    if refunds.get(limit.unit, demand.amount - n_used)
                ],
            )
        if self._is_admitted:
            self._gate.observer.on_use(self.subject, UsageCounts(1, self._n_prompt, self._n_completion))

    def _take(self, limits: Sequence[Limit], demands: Sequence[Demand], verdict: Verdict) -> None:
        windows = [level.window for level in verdict.levels]
        taken = {limit.meter.name: (limit, demand, window) for limit, demand, window in self._taken}
        for limit, demand, window in zip(limits, demands, windows, strict=True):
            before = taken.get(limit.meter.name)
            amount = demand.amount + (0 if before is None else before[1].amount)
            taken[limit.meter.name] = (limit, Demand(demand.meter, amount), window)
        self._taken = list(taken.values())
        if any(limit.meter.kind is MeterKind.PERMITS for limit in limits):
            self._gate.hold(self)

    def _settle_tokens(self, refund: int) -> None:
        tokens = [(demand.meter, window) for limit, demand, window in self._taken if limit.unit == "tokens"]
        if tokens:
            self._gate.settle(self, [Settlement(meter, refund, window) for meter, window in tokens])

    def _check_prompt(self) -> None:
        for limit in self.limits:
            if limit.unit == "tokens" and self._n_prompt_expected > limit.meter.limit:
                raise TooLarge(
                    f"the prompt's {self._n_prompt_expected} tokens can never fit the limit of {limit.text}",
                    param="messages",
                    code="prompt_over_limit",
                )


def _is_our_fault(error: BaseException | None) -> bool:
    """Not the client's request, and not its leaving."""
    if isinstance(error, TribarError):
        return error.status >= 500
    return isinstance(error, Exception)
