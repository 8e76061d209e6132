"""Applies rules when they begin, end or change with time.

The machine's clock may be set while a timer waits. So waits are short, and the clock is read after each.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from time import time_ns
from typing import Final, TypeAlias

from kafka_quota_proxy.config.model import EntityName, IpRule, QuotaRule
from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import EffectiveRules
from kafka_quota_proxy.proxy.quota.rule_changes import IpChanges, QuotaChanges, RuleChanges
from kafka_quota_proxy.proxy.quota.rule_terms import limits_of

log = logging.getLogger(__name__)

# A clock that was set is noticed within this time.
_LONGEST_WAIT_S: Final = 1.0
# Rules looked at before other tasks have a turn: some milliseconds.
_AT_ONCE: Final = 250
# The wait before rules that could not be applied are tried again.
_AGAIN_S: Final = 5.0
# The number of rules that the log names of those that change at once.
_MOST_NAMED: Final = 10

# Called on the loop with changed rules: those of users and client-ids, and those of addresses.
OnChanges: TypeAlias = Callable[[RuleChanges, IpChanges], None]


def wall_ms() -> int:
    """Return Unix time."""
    return time_ns() // 1_000_000


class RuleTimer:
    """Advances rules with the time. ``wall_ms`` returns Unix time."""

    def __init__(self, rules: EffectiveRules, *, on_changes: OnChanges, wall_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._on_changes = on_changes
        self._wall_ms = wall_ms
        self._has_changed = asyncio.Event()

    def wake(self) -> None:
        """Look at the rules again: they have changed."""
        self._has_changed.set()

    async def run(self) -> None:
        """Advance the rules, until cancelled."""
        while True:
            try:
                await self._settle()
                wait_s = self._wait_s()
            except Exception as error:  # noqa: BLE001 - clients notice only that a limit is late
                report(error, "rules could not be put in force; it is tried again")
                self._rules.schedule.repeat_all()
                wait_s = _AGAIN_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._has_changed.wait()
            self._has_changed.clear()

    def _wait_s(self) -> float | None:
        next_ms = self._rules.schedule.next_ms
        if next_ms is None and not self._rules.schedule:
            return None
        left_s = _LONGEST_WAIT_S if next_ms is None else (next_ms - self._wall_ms()) / 1_000
        return min(max(left_s, 0), _LONGEST_WAIT_S)

    async def _settle(self) -> None:
        """Apply the rules whose time has come."""
        count = 0
        while True:
            now_ms = self._wall_ms()
            changes = self._rules.advance(_AT_ONCE, now_ms=now_ms)
            if changes is not None:
                count = _log_changes(changes, count)
                self._on_changes(*changes)
            next_ms = self._rules.schedule.next_ms
            if next_ms is None or next_ms > now_ms:
                break
            await asyncio.sleep(0)
        if count > _MOST_NAMED:
            log.info("and those of %d others", count - _MOST_NAMED)


def _log_changes(changes: QuotaChanges, count: int) -> int:
    """Log the first few changes; return their number, added to ``count``."""
    named: list[tuple[str, QuotaRule | IpRule | None]] = [
        (_words(*entity), rule) for entity, rule in changes.rules.items()
    ]
    for words, rule in (*named, *((f"ip {ip}", rule) for ip, rule in changes.ips.items())):
        count += 1
        if count <= _MOST_NAMED:
            limits = ", ".join(f"{key}={limit:g}" for key, limit in limits_of(rule).items()) if rule else "none"
            log.info("by their time, the quotas of %s are now: %s", words, limits)
    return count


def _words(user: EntityName, client_id: EntityName) -> str:
    names = {"user": user, "client-id": client_id}
    return ", ".join(f"{key} {name}" for key, name in names.items() if name is not None)
