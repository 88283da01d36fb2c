"""The dynamic batcher once more, slow and obvious: sorts the whole queue and looks at every prefix each time."""

from collections.abc import Hashable
from dataclasses import dataclass

from tribar.modelserver.batcher import BatchingPolicy, QueuePolicy


@dataclass(eq=False)
class Waiting:
    """A request; ``number`` is its place in the order of arrival."""

    number: int
    size: int
    key: Hashable
    level: int
    enqueued_ns: int
    deadline_ns: int
    is_delayed: bool = False


class ObviousBatcher:
    """Same verbs as ``Batcher``, requests by number."""

    def __init__(self, policy: BatchingPolicy) -> None:
        self.policy = policy
        self.waiting: list[Waiting] = []
        self.due_ns: int | None = None

    def queue_policy(self, level: int) -> QueuePolicy:
        return self.policy.queue_policies.get(level, self.policy.queue_policy)

    def enqueue(self, number: int, size: int, key: Hashable, priority: int, timeout_ns: int, now_ns: int) -> bool:
        level = 0 if self.policy.n_levels == 0 else priority or self.policy.default_level
        policy = self.queue_policy(level)
        if policy.max_queue_size and sum(one.level == level for one in self.waiting) >= policy.max_queue_size:
            return False
        timeout = policy.default_timeout_ns
        if policy.allows_timeout_override and timeout_ns and timeout_ns < timeout:
            timeout = timeout_ns
        self.waiting.append(Waiting(number, size, key, level, now_ns, now_ns + timeout if timeout else 0))
        return True

    def cancel(self, number: int) -> bool:
        before = len(self.waiting)
        self.waiting = [one for one in self.waiting if one.number != number]
        return len(self.waiting) < before

    def expire(self, now_ns: int) -> list[int]:
        late = [one for one in self.waiting if one.deadline_ns and one.deadline_ns <= now_ns and not one.is_delayed]
        late.sort(key=lambda one: (one.deadline_ns, one.number))
        refused = []
        for one in late:
            if self.queue_policy(one.level).delays_expired:
                one.is_delayed = True
            else:
                self.waiting.remove(one)
                refused.append(one.number)
        return refused

    def take(self, now_ns: int) -> list[int]:
        line = sorted(
            self.waiting,
            key=lambda one: (one.level, one.is_delayed, one.deadline_ns if one.is_delayed else 0, one.number),
        )
        n_taken = self.n_due(line, now_ns) if line else 0
        self.waiting = [one for one in self.waiting if one not in line[:n_taken]]
        return [one.number for one in line[:n_taken]]

    def n_due(self, line: list[Waiting], now_ns: int) -> int:
        policy = self.policy
        preferred = set(policy.preferred_batch_sizes) or {policy.max_batch_size}
        sums = [sum(one.size for one in line[:n]) for n in range(len(line) + 1)]
        possible = [1] + [
            n
            for n in range(2, len(line) + 1)
            if policy.shares_batches and sums[n] <= policy.max_batch_size and len({one.key for one in line[:n]}) == 1
        ]
        longest = possible[-1]
        due_ns = min(one.enqueued_ns for one in line[:longest]) + policy.max_queue_delay_ns
        if policy.max_queue_delay_ns and now_ns >= due_ns:
            return longest
        hits = [n for n in possible if sums[n] in preferred]
        if hits:
            return hits[-1]
        below = [n for n in possible if n == 1 or sums[n] <= max(preferred)]
        if below[-1] < len(line) and sums[below[-1] + 1] > max(preferred):
            return below[-1]
        is_blocked = longest < len(line)
        if is_blocked or sums[longest] >= max(preferred) or policy.max_queue_delay_ns == 0:
            return longest
        self.due_ns = due_ns
        return 0

    def next_ns(self, *, can_run: bool) -> int | None:
        """After a ``take`` that gave nothing, where ``can_run``."""
        times = [one.deadline_ns for one in self.waiting if one.deadline_ns and not one.is_delayed]
        if can_run and self.waiting and self.due_ns is not None:
            times.append(self.due_ns)
        return min(times, default=None)
