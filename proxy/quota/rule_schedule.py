"""Rules that change with time: their current form, and when the next of them changes. No clock.

The cost depends on the number of these rules, not on the number of rules without times. Time is Unix time, so it may
step back when the clock is set.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

from kafka_quota_proxy.config.model import IpRule, QuotaRule
from kafka_quota_proxy.proxy.quota.rule_terms import in_force, is_timed, next_change_ms

# The heap may have this many entries of rules that were replaced since, before it is rebuilt.
_LEAST_STALE: Final = 100

K = TypeVar("K", bound=Hashable)
Rule = QuotaRule | IpRule


class _Timed(NamedTuple):
    """A rule, and its form until ``next_ms``; None: for ever."""

    rule: Rule
    current: Rule | None
    next_ms: int | None
    number: int


class RuleSchedule(Generic[K]):
    """Keeps the rules that change with Unix time."""

    def __init__(self, *, now_ms: int) -> None:
        self._as_of_ms = now_ms
        self._timed: dict[K, _Timed] = {}
        # When to look at which rule. An entry is stale if its number is not the rule's.
        self._heap: list[tuple[int, int, K]] = []
        self._number = 0
        self._repeated: set[K] = set()  # ``due`` returns these even if they have not changed

    def __len__(self) -> int:
        return len(self._timed)

    def rules(self) -> dict[K, Rule]:
        """Return the rules as they were put."""
        return {key: timed.rule for key, timed in self._timed.items()}

    def put(self, key: K, rule: Rule | None, *, now_ms: int) -> Rule | None:
        """Add, replace or, with None, remove a rule; return its current form."""
        if rule is None or not is_timed(rule):
            if self._timed.pop(key, None) is not None:
                self._repeated.discard(key)
            return rule
        return self._update(key, rule, now_ms)

    @property
    def next_ms(self) -> int | None:
        """When to call ``due``; None: never."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, most: int, *, now_ms: int) -> dict[K, Rule | None]:
        """Return the rules whose form has changed, None for those without one now. Looks at ``most`` rules.

        There may be more while ``next_ms`` is not in the future.
        """
        if now_ms < self._as_of_ms:
            # The clock was set back: a change since then may not have happened yet.
            self._make_all_due(now_ms)
        self._as_of_ms = now_ms
        changed: dict[K, Rule | None] = {}
        for _ in range(most):
            next_ms = self.next_ms
            if next_ms is None or next_ms > now_ms:
                break
            key = heappop(self._heap)[2]
            before = self._timed[key]
            current = self._update(key, before.rule, now_ms)
            if current != before.current or key in self._repeated:
                changed[key] = current
            self._repeated.discard(key)
        return changed

    def repeat_all(self) -> None:
        """Let ``due`` return every rule once more: what it returned before was lost."""
        self._repeated.update(self._timed)
        self._make_all_due(self._as_of_ms)

    def _make_all_due(self, now_ms: int) -> None:
        self._heap = [(now_ms, timed.number, key) for key, timed in self._timed.items()]
        heapify(self._heap)

    def _update(self, key: K, rule: Rule, now_ms: int) -> Rule | None:
        current = in_force(rule, now_ms=now_ms)
        next_ms = next_change_ms(rule, now_ms=now_ms)
        self._number += 1
        self._timed[key] = _Timed(rule, current, next_ms, self._number)
        if next_ms is not None:
            heappush(self._heap, (next_ms, self._number, key))
            if len(self._heap) > 2 * len(self._timed) + _LEAST_STALE:
                self._heap = [entry for entry in self._heap if not self._is_stale(entry)]
                heapify(self._heap)
        return current

    def _drop_stale(self) -> None:
        while self._heap and self._is_stale(self._heap[0]):
            heappop(self._heap)

    def _is_stale(self, entry: tuple[int, int, K]) -> bool:
        _, number, key = entry
        timed = self._timed.get(key)
        return timed is None or timed.number != number
