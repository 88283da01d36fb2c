"""Which requests may enter the queue: is there room, shared fairly, and would they be served in time."""

from collections.abc import Callable
from typing import NoReturn

from tribar.core.errors import Overloaded, RateLimited, TribarError
from tribar.engine.config import SchedulerConfig
from tribar.engine.forecast import Forecast
from tribar.engine.waiting import WaitingQueue
from tribar.wire.messages import Submit

REASONS = ("max_waiting", "max_waiting_tokens", "tenant_share", "max_ttft", "deadline")

MIN_RETRY_S, MAX_RETRY_S = 1.0, 600.0
"""Between these, a refused client is told in how many seconds there will be room."""


def _duration(seconds: float) -> str:
    """A time with three digits at least, in milliseconds below a second."""
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


class Intake:
    """Refuses at once what would only wait in vain.

    Room: ``max_waiting`` requests and ``max_waiting_tokens`` prompt tokens. When it is used up, a tenant that has
    less than its share waiting (the room over the number of tenants that wait) may still enter, so nobody's flood
    shuts out another; twice the room is the end for everyone. An empty queue takes any request.
    """

    def __init__(self, config: SchedulerConfig, waiting: WaitingQueue, forecast: Forecast) -> None:
        self.refused = dict.fromkeys(REASONS, 0)
        self._config = config
        self._waiting = waiting
        self._forecast = forecast

    def check(self, submit: Submit) -> None:
        """Raise ``Overloaded`` or (``submit.tenant`` has its share) ``RateLimited`` when it may not enter.

        ``retry_after_s`` of these is when it might.
        """
        n_prompt = len(submit.ids) // 4
        load = self._waiting.load
        config = self._config
        self._check_room(submit.tenant, "max_waiting", load.n_requests, 1, config.max_waiting, self._of_requests)
        n_waiting_tokens = load.n_tokens if load.n_requests else -n_prompt  # an empty queue takes any
        self._check_room(
            submit.tenant, "max_waiting_tokens", n_waiting_tokens, n_prompt, config.max_waiting_tokens, self._of_tokens
        )
        self._check_time(submit, n_prompt)

    def _of_requests(self, tenant: str) -> int:
        return self._waiting.load_of(tenant).n_requests

    def _of_tokens(self, tenant: str) -> int:
        return self._waiting.load_of(tenant).n_tokens

    def _check_room(
        self, tenant: str, limit_name: str, n_waiting: int, n_new: int, limit: int, own: Callable[[str], int]
    ) -> None:
        """``n_waiting`` and ``own`` are requests or tokens in the queue, of all and of a tenant."""
        if n_waiting + n_new <= limit:
            return
        n_own = own(tenant)
        n_tenants = self._waiting.n_tenants + (n_own == 0)
        if n_own + n_new <= limit // n_tenants and n_waiting + n_new <= 2 * limit:
            return
        mean = n_waiting / max(1, self._waiting.load.n_requests)
        n_starts = (n_waiting + n_new - limit) / mean
        what = "requests" if limit_name == "max_waiting" else "prompt tokens"
        if n_tenants > 1 and n_own:
            message = f"{n_own} of your {what} are waiting already, your share of a full queue: let some of them finish"
            self._refuse("tenant_share", RateLimited, message, self._forecast.starts_s(round(n_starts * n_tenants)))
        message = f"{n_waiting} {what} are waiting already"
        self._refuse(limit_name, Overloaded, message, self._forecast.starts_s(round(n_starts)))

    def _check_time(self, submit: Submit, n_prompt: int) -> None:
        max_ttft_s, deadline_s = self._config.max_ttft_s, submit.deadline_s
        if max_ttft_s is None and deadline_s is None:
            return
        outlook = self._forecast.of(n_prompt, submit.max_tokens, submit.tenant, submit.priority)
        if outlook is None:
            return
        if deadline_s is not None:
            if outlook.end_s > deadline_s:
                end = _duration(outlook.end_s)
                message = f"the answer would take about {end}, the request's deadline is {_duration(deadline_s)}"
                self._refuse("deadline", Overloaded, message, outlook.end_s - deadline_s)
        elif max_ttft_s is not None and outlook.ttft_s > max_ttft_s and outlook.wait_s > 0:
            ttft = _duration(outlook.ttft_s)
            message = f"the first token would take about {ttft}, more than the {_duration(max_ttft_s)} allowed"
            self._refuse("max_ttft", Overloaded, message, min(outlook.ttft_s - max_ttft_s, outlook.wait_s))

    def _refuse(self, reason: str, error_class: type[TribarError], message: str, retry_after_s: float) -> NoReturn:
        self.refused[reason] += 1
        raise error_class(message, retry_after_s=min(max(retry_after_s, MIN_RETRY_S), MAX_RETRY_S))
