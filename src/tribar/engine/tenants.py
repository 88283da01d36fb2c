"""Virtual token counters: what each tenant has been served, so that the one that was served least is next.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): a counter grows by the weighted tokens that are
computed for its tenant, and a tenant that comes back is lifted to those that stayed, so that nobody saves up a claim
by staying away. Two additions:

- It is lifted to ``BURST`` below them: somebody who asks now and then comes before a flood with a whole request, not
  with every other chunk of it.
- "Those that stayed" is their least counter or the virtual time of fair queueing (service over active tenants, summed
  up), whichever is more: however many new tenants come, one that is not served falls behind them and has its turn.

A tenant that left ahead of the others keeps its counter, so that nobody sheds a debt by leaving.
"""

PROMPT_WEIGHT = 1
OUTPUT_WEIGHT = 2
"""Of a computed prompt token and of a generated one: the paper's weights. Cached prompt tokens cost nothing."""

BURST = 2048
"""Weighted tokens that a tenant which was away may be served before it is on a level with the others."""

MAX_DEBTORS = 1024
"""How many tenants that left ahead of the others are remembered; beyond it, the one that left first is not."""


class Tenants:
    """The counters of active tenants: those with a request that has not ended. They only grow."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._n_live: dict[str, int] = {}
        self._debtors: dict[str, float] = {}
        self._virtual_time = 0.0

    def __len__(self) -> int:
        return len(self._served)

    def served(self, tenant: str) -> float:
        """The counter of ``tenant``, in weighted tokens; of one that is not active, what it would start with."""
        served = self._served.get(tenant)
        return max(self._entry_level(), self._debtors.get(tenant, 0.0)) if served is None else served

    def join(self, tenant: str) -> None:
        """A request of ``tenant`` was accepted."""
        if tenant not in self._served:
            self._served[tenant] = self.served(tenant)
            self._n_live[tenant] = 0
            self._debtors.pop(tenant, None)
        self._n_live[tenant] += 1

    def leave(self, tenant: str) -> None:
        """A request of ``tenant`` ended."""
        self._n_live[tenant] -= 1
        if self._n_live[tenant]:
            return
        self._virtual_time = max(self._virtual_time, min(self._served.values()))
        del self._n_live[tenant]
        served = self._served.pop(tenant)
        if served > self._entry_level():
            self._remember(tenant, served)

    def charge_prompt(self, tenant: str, n_tokens: int) -> None:
        """``n_tokens`` of a prompt are computed for ``tenant``."""
        self._charge(tenant, PROMPT_WEIGHT * n_tokens)

    def charge_output(self, tenant: str, n_tokens: int) -> None:
        """``n_tokens`` were generated for ``tenant``."""
        self._charge(tenant, OUTPUT_WEIGHT * n_tokens)

    def check(self, live: list[str]) -> None:
        """Raise ``AssertionError`` unless the active tenants are those of the ``live`` requests."""
        assert self._n_live == {tenant: live.count(tenant) for tenant in set(live)}, "live requests are miscounted"
        assert self._served.keys() == self._n_live.keys(), "a counter without a tenant"
        assert not self._served.keys() & self._debtors.keys(), "a tenant is here and gone"
        assert len(self._debtors) <= MAX_DEBTORS, "too many are remembered"

    def _charge(self, tenant: str, service: int) -> None:
        self._served[tenant] += service
        self._virtual_time += service / len(self._served)

    def _remember(self, tenant: str, served: float) -> None:
        self._debtors[tenant] = served
        if len(self._debtors) > MAX_DEBTORS:
            level = self._entry_level()
            self._debtors = {name: counter for name, counter in self._debtors.items() if counter > level}
        if len(self._debtors) > MAX_DEBTORS:
            del self._debtors[next(iter(self._debtors))]

    def _entry_level(self) -> float:
        """Where a tenant starts that owes nothing. O(active tenants)."""
        return max(self._virtual_time, min(self._served.values(), default=0.0)) - BURST
