"""Adds up for how long each rule throttles, over all of its clients and all brokers."""

from typing import Final

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.proxy.quota.entity import Entity

# How many rules have a sum of their own. A store may have 100,000 rules, and the metrics have a line for each sum.
MAX_RULES: Final = 5_000


class RuleThrottleTimes:
    """The throttle time of each rule that has throttled, for one kind of quota.

    No sum ever falls: it stays when the rule's buckets expire, and when the rule itself is removed.

    Attributes:
        by_entity: The time in ms, by the user and client-id of the rule.
        other_ms: The time of all rules that throttled first when ``max_rules`` others already had.
    """

    def __init__(self, max_rules: int = MAX_RULES) -> None:
        self.by_entity: dict[Entity, int] = {}
        self.other_ms = 0
        self._max_rules = max_rules

    def add(self, rule: QuotaRule, time_ms: int) -> None:
        """Add ``time_ms`` to the throttle time of ``rule``."""
        entity = (rule.user, rule.client_id)
        before_ms = self.by_entity.get(entity)
        if before_ms is not None:
            self.by_entity[entity] = before_ms + time_ms
        elif len(self.by_entity) < self._max_rules:
            self.by_entity[entity] = time_ms
        else:
            self.other_ms += time_ms
