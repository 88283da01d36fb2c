"""Who gives up its row for a tenant that has fewer than its share.

The order of service alone would let a flood that came first keep every row until its answers end, however long they
are. A preempted sequence keeps its blocks in the prefix cache, so giving up a row costs little more than the wait.
"""

from collections import Counter
from collections.abc import Sequence as Series

from tribar.engine.sequence import Sequence
from tribar.engine.tenants import Tenants


def one_to_yield(tenant: str, priority: int, running: Series[Sequence], tenants: Tenants) -> Sequence | None:
    """The one of ``running`` (in order of service) to be preempted so that a newcomer, the next to start, may.

    It is the last to have started of the tenant with the most rows among those that have more than an equal share
    and whose turn comes after the newcomer's: one that comes before would take its row back at once. None: nobody
    need yield, in any case not to a tenant with its share.
    """
    n_tenants = len(tenants) + (tenant not in tenants)
    if n_tenants < 2:
        return None
    n_rows = Counter(sequence.tenant for sequence in running)
    share = max(1, len(running) // n_tenants)
    if n_rows[tenant] >= share:
        return None
    turn = (priority, tenants.served(tenant))
    candidates = [
        item for item in running if n_rows[item.tenant] > share and turn < (item.order[0], tenants.served(item.tenant))
    ]
    return max(candidates, key=lambda item: (n_rows[item.tenant], item.order), default=None)
