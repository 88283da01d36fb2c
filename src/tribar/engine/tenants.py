"""Virtual token counters: what each tenant has been served, so that the one that was served least is next.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): a counter grows by the weighted tokens that are
computed for its tenant, and a tenant that comes back is lifted to the least counter of those that stayed, so that
nobody saves up a claim by staying away. In addition:

It is lifted to ``BURST`` below them: somebody who asks now and then comes before a flood with a whole request, not with
every other chunk of it. These head starts are paid from an allowance that grows with half of all service, so however
many new names come, those that stayed get the other half. A tenant that left ahead of the others keeps its counter, so
that nobody sheds a debt by leaving.
"""

PROMPT_WEIGHT = 1
OUTPUT_WEIGHT = 2
"""Of a computed prompt token and of a generated one: the paper's weights. Cached prompt tokens cost nothing."""

BURST = 2048
"""Weighted tokens that a tenant which was away may be served before it is on a level with the others."""

MAX_ALLOWANCE = 16 * BURST
"""Head starts that may be given out at one time."""

MAX_DEBTORS = 1024
"""How many tenants that left ahead of the others are remembered; beyond it, the one that left first is not."""


class Tenants:
    """The counters of active tenants: those with a request that has not ended. They only grow."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._lifted_to: dict[str, float] = {}
        self._n_live: dict[str, int] = {}
        self._debtors: dict[str, float] = {}
        self._last_level = 0.0
        self._known_level = 0.0  # not above the level: what the last look found
        self._allowance = float(MAX_ALLOWANCE)

    def __len__(self) -> int:
        return len(self._served)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._served

    def served(self, tenant: str) -> float:
        """The counter of ``tenant``, in weighted tokens; of one that is not active, what it would start with."""
        served = self._served.get(tenant)
        if served is None:
            served = max(self._level() - self._head_start(), self._debtors.get(tenant, 0.0))
        return served

    def join(self, tenant: str) -> None:
        """A request of ``tenant`` was accepted."""
        if tenant not in self._served:
            level, served = self._level(), self.served(tenant)
            self._allowance -= max(0.0, level - served)
            self._lifted_to[tenant] = level
            self._served[tenant] = served
            self._known_level = min(level, served)
            self._n_live[tenant] = 0
            self._debtors.pop(tenant, None)
        self._n_live[tenant] += 1

    def leave(self, tenant: str) -> None:
        """A request of ``tenant`` ended."""
        self._n_live[tenant] -= 1
        if self._n_live[tenant]:
            return
        del self._n_live[tenant]
        served = self._served.pop(tenant)
        if not self._served:
            self._last_level = self._known_level = served
        self._grow_allowance(max(0.0, self._lifted_to.pop(tenant) - served))
        if served > self._known_level - BURST:
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
        assert self._lifted_to.keys() == self._n_live.keys(), "a head start without a tenant"
        assert 0 <= self._allowance <= MAX_ALLOWANCE, "allowance"
        assert len(self._debtors) <= MAX_DEBTORS, "too many are remembered"

    def _charge(self, tenant: str, service: int) -> None:
        self._served[tenant] += service
        self._grow_allowance(service / 2)

    def _remember(self, tenant: str, served: float) -> None:
        self._debtors[tenant] = served
        if len(self._debtors) > MAX_DEBTORS:
            self._known_level = self._level()
            floor = self._known_level - BURST
            self._debtors = {name: counter for name, counter in self._debtors.items() if counter > floor}
        if len(self._debtors) > MAX_DEBTORS:
            del self._debtors[next(iter(self._debtors))]

    def _level(self) -> float:
        """The least counter of the active tenants, without any that of the last one that was. O(active tenants)."""
        return min(self._served.values(), default=self._last_level)

    def _head_start(self) -> int:
        return BURST if self._allowance >= BURST else 0

    def _grow_allowance(self, service: float) -> None:
        self._allowance = min(self._allowance + service, float(MAX_ALLOWANCE))
