"""Rules that are not the same at all times: which of them hold, and when that changes. No clock.

What it costs is by how many of them there are, however many rules are the same at all times. Time may step back as well
as forward, for it is Unix time: a clock that is set.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

from kafka_quota_proxy.config.model import IpRule, QuotaRule
from kafka_quota_proxy.proxy.quota.rule_terms import in_force, is_timed, next_change_ms

# As many entries of rules that were changed since are borne before the heap is made anew.
_LEAST_STALE: Final = 100

K = TypeVar("K", bound=Hashable)
Rule = QuotaRule | IpRule


class _Timed(NamedTuple):
    """A rule, and what of it holds until ``next_ms``; None: for ever."""

    rule: Rule
    held: Rule | None
    next_ms: int | None
    number: int


class RuleSchedule(Generic[K]):
    """Keeps the rules whose times matter.

    Args:
        now_ms: Unix time.
    """

    def __init__(self, *, now_ms: int) -> None:
        self._as_of_ms = now_ms
        self._timed: dict[K, _Timed] = {}
        # When which is to be looked at, and the number that it has to have for that to be so still.
        self._heap: list[tuple[int, int, K]] = []
        self._number = 0
        self._untold: set[K] = set()  # what ``due`` has to return whatever was before

    def __len__(self) -> int:
        return len(self._timed)

    def rules(self) -> dict[K, Rule]:
        """Return the rules, as they were put."""
        return {key: timed.rule for key, timed in self._timed.items()}

    def put(self, key: K, rule: Rule | None, *, now_ms: int) -> Rule | None:
        """Take a rule in the place of another, or with None none, and return it as it holds."""
        if rule is None or not is_timed(rule):
            if self._timed.pop(key, None) is not None:
                self._untold.discard(key)
            return rule
        return self._look(key, rule, now_ms)

    @property
    def next_ms(self) -> int | None:
        """When to ask what is ``due``; None: never."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, most: int, *, now_ms: int) -> dict[K, Rule | None]:
        """Return the rules that hold otherwise now, None for those that hold no more; so many are looked at.

        As long as ``next_ms`` is not later than now there may be others.
        """
        if now_ms < self._as_of_ms:
            # The clock was set back: what has changed since then may not have changed yet.
            self._look_at_all(now_ms)
        self._as_of_ms = now_ms
        changed: dict[K, Rule | None] = {}
        for _ in range(most):
            next_ms = self.next_ms
            if next_ms is None or next_ms > now_ms:
                break
            key = heappop(self._heap)[2]
            before = self._timed[key]
            held = self._look(key, before.rule, now_ms)
            if held != before.held or key in self._untold:
                changed[key] = held
            self._untold.discard(key)
        return changed

    def repeat_all(self) -> None:
        """Have ``due`` return all of them, once: what it had returned did not come through."""
        self._untold.update(self._timed)
        self._look_at_all(self._as_of_ms)

    def _look_at_all(self, now_ms: int) -> None:
        self._heap = [(now_ms, timed.number, key) for key, timed in self._timed.items()]
        heapify(self._heap)

    def _look(self, key: K, rule: Rule, now_ms: int) -> Rule | None:
        held = in_force(rule, now_ms=now_ms)
        next_ms = next_change_ms(rule, now_ms=now_ms)
        self._number += 1
        self._timed[key] = _Timed(rule, held, next_ms, self._number)
        if next_ms is not None:
            heappush(self._heap, (next_ms, self._number, key))
            if len(self._heap) > 2 * len(self._timed) + _LEAST_STALE:
                self._heap = [(at_ms, number, key) for at_ms, number, key in self._heap if self._is_now(key, number)]
                heapify(self._heap)
        return held

    def _drop_stale(self) -> None:
        while self._heap and not self._is_now(self._heap[0][2], self._heap[0][1]):
            heappop(self._heap)

    def _is_now(self, key: K, number: int) -> bool:
        timed = self._timed.get(key)
        return timed is not None and timed.number == number
