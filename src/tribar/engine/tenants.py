"""Virtual token counters: what each tenant has been served, so that the one that was served least is next.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): a counter grows by the weighted tokens that are
computed for its tenant, and a tenant that comes back is lifted to the least counter of the active ones, so that nobody
saves up a claim by staying away. A tenant that left ahead of the others keeps its counter, so that nobody sheds a debt
by leaving either; once the others have caught up, nothing is left to remember.
"""

PROMPT_WEIGHT = 1
OUTPUT_WEIGHT = 2
"""Of a computed prompt token and of a generated one: the paper's weights. Cached prompt tokens cost nothing."""

MAX_DEBTORS = 1024
"""How many tenants that have left ahead of the others are remembered; beyond it, the one that left first is not."""


class Tenants:
    """The counters of active tenants: those with a request that has not ended."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._n_live: dict[str, int] = {}
        self._debtors: dict[str, int] = {}
        self._level = 0

    def __len__(self) -> int:
        return len(self._served)

    def served(self, tenant: str) -> int:
        """The counter of ``tenant``, in weighted tokens; of one that is not active, what it would start with."""
        served = self._served.get(tenant)
        return self._start(tenant) if served is None else served

    def join(self, tenant: str) -> None:
        """A request of ``tenant`` was accepted."""
        if tenant not in self._served:
            self._served[tenant] = self._start(tenant)
            self._n_live[tenant] = 0
            self._debtors.pop(tenant, None)
        self._n_live[tenant] += 1

    def leave(self, tenant: str) -> None:
        """A request of ``tenant`` ended."""
        self._n_live[tenant] -= 1
        if self._n_live[tenant]:
            return
        self._level = self._least()
        del self._n_live[tenant]
        served = self._served.pop(tenant)
        if served > self._least():
            self._remember(tenant, served)

    def charge_prompt(self, tenant: str, n_tokens: int) -> None:
        """``n_tokens`` of a prompt are computed for ``tenant``."""
        self._served[tenant] += PROMPT_WEIGHT * n_tokens

    def charge_output(self, tenant: str, n_tokens: int) -> None:
        """``n_tokens`` were generated for ``tenant``."""
        self._served[tenant] += OUTPUT_WEIGHT * n_tokens

    def check(self, live: list[str]) -> None:
        """Raise ``AssertionError`` unless the active tenants are those of the ``live`` requests."""
        assert self._n_live == {tenant: live.count(tenant) for tenant in set(live)}, "live requests are miscounted"
        assert self._served.keys() == self._n_live.keys(), "a counter without a tenant"
        assert not self._served.keys() & self._debtors.keys(), "a tenant is here and gone"
        assert len(self._debtors) <= MAX_DEBTORS, "too many are remembered"

    def _remember(self, tenant: str, served: int) -> None:
        self._debtors[tenant] = served
        if len(self._debtors) > MAX_DEBTORS:
            least = self._least()
            self._debtors = {name: counter for name, counter in self._debtors.items() if counter > least}
        if len(self._debtors) > MAX_DEBTORS:
            del self._debtors[next(iter(self._debtors))]

    def _start(self, tenant: str) -> int:
        return max(self._least(), self._debtors.get(tenant, 0))

    def _least(self) -> int:
        """The least counter of the active; with nobody active, that of the last ones that were."""
        return min(self._served.values(), default=self._level)
