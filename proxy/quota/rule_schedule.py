"""Finds out when the limits of rules change because of an expiry, a schedule or a ramp (a gradual change of limits).

All times are Unix time, which may go back when the clock of the machine is set.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

from kafka_quota_proxy.config.model import IpRule, QuotaRule
from kafka_quota_proxy.proxy.quota.rule_terms import in_force, next_change_ms

# The heap is rebuilt only if it has more than this number of entries of replaced rules.
_LEAST_STALE: Final = 100

K = TypeVar("K", bound=Hashable)
Rule = QuotaRule | IpRule


class _Timed(NamedTuple):
    """A rule as it was written, and as it applies now (``current``, or None if it does not apply).

    ``current`` holds until ``next_ms``, or for ever if ``next_ms`` is None.
    """

    rule: Rule
    current: Rule | None
    next_ms: int | None
    number: int


class RuleSchedule(Generic[K]):
    """The rules whose limits change with time, each under a key. The caller asks it which limits have changed.

    Attributes:
        timed: The rules by key, as they were written and as they apply now.
    """

    def __init__(self, *, now_ms: int) -> None:
        self._as_of_ms = now_ms
        self.timed: dict[K, _Timed] = {}
        # The times when to look at each rule again. An entry is stale if the rule has another number now.
        self._heap: list[tuple[int, int, K]] = []
        self._number = 0
        self._repeated: set[K] = set()  # rules that ``due`` returns even if they have not changed

    def put(self, key: K, rule: Rule | None, *, now_ms: int) -> Rule | None:
        """Add or replace the rule with this key, or remove it if ``rule`` is None.

        Return the rule with the limits that it has now, or None if it does not apply now. A rule whose limits do not
        change with time is returned, but not stored in this object.
        """
        if rule is None or (rule.expires_ms is None and rule.schedule is None and rule.ramp is None):
            if self.timed.pop(key, None) is not None:
                self._repeated.discard(key)
            return rule
        return self._update(key, rule, now_ms)

    @property
    def next_ms(self) -> int | None:
        """The time when ``due`` must be called next, or None if no rule will change."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, most: int, *, now_ms: int) -> dict[K, Rule | None]:
        """Return each rule whose limits have changed since the last call, by key, with the limits that it has now.

        The value is None if the rule does not apply now. A call checks at most ``most`` rules. The caller must call
        this method again as long as ``next_ms`` is not in the future.
        """
        if now_ms < self._as_of_ms:
            # The clock was set back, so changes that were already made may be in the future again.
            self._make_all_due(now_ms)
        self._as_of_ms = now_ms
        changed: dict[K, Rule | None] = {}
        for _ in range(most):
            next_ms = self.next_ms
            if next_ms is None or next_ms > now_ms:
                break
            key = heappop(self._heap)[2]
            before = self.timed[key]
            current = self._update(key, before.rule, now_ms)
            if current != before.current or key in self._repeated:
                changed[key] = current
            self._repeated.discard(key)
        return changed

    def repeat_all(self) -> None:
        """Make ``due`` return every rule once more, because the caller could not apply the earlier results."""
        self._repeated.update(self.timed)
        self._make_all_due(self._as_of_ms)

    def _make_all_due(self, now_ms: int) -> None:
        self._heap = [(now_ms, timed.number, key) for key, timed in self.timed.items()]
        heapify(self._heap)

    def _update(self, key: K, rule: Rule, now_ms: int) -> Rule | None:
        current = in_force(rule, now_ms=now_ms)
        next_ms = next_change_ms(rule, now_ms=now_ms)
        self._number += 1
        self.timed[key] = _Timed(rule, current, next_ms, self._number)
        if next_ms is not None:
            heappush(self._heap, (next_ms, self._number, key))
            if len(self._heap) > 2 * len(self.timed) + _LEAST_STALE:
                self._heap = [entry for entry in self._heap if not self._is_stale(entry)]
                heapify(self._heap)
        return current

    def _drop_stale(self) -> None:
        while self._heap and self._is_stale(self._heap[0]):
            heappop(self._heap)

    def _is_stale(self, entry: tuple[int, int, K]) -> bool:
        _, number, key = entry
        timed = self.timed.get(key)
        return timed is None or timed.number != number
