"""Changes the limits that apply at the times that quota rules set with an expiry, a schedule or a ramp.

The timer waits at most a second before it reads the clock again, because the clock of the machine may be set to another
time.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from time import time_ns
from typing import Final, TypeAlias

from kafka_quota_proxy.config.model import EntityName, IpRule, QuotaRule
from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.client_quotas.formats.format_rule import shown_limit
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import EffectiveRules
from kafka_quota_proxy.proxy.quota.rule_changes import IpChanges, QuotaChanges, RuleChanges
from kafka_quota_proxy.proxy.quota.rule_terms import limits_of

log = logging.getLogger(__name__)

# The longest wait, so that the timer soon notices if the clock was changed.
_LONGEST_WAIT_S: Final = 1.0
# The number of rules to look at before other tasks get a turn. This takes some milliseconds.
_AT_ONCE: Final = 250
# How long to wait before rules that could not be applied are tried again.
_AGAIN_S: Final = 5.0
# If many rules change at once, this number of them is logged.
_MOST_NAMED: Final = 10

# Is called on the event loop with the changed rules of users and client-ids, and the changed rules of addresses.
OnChanges: TypeAlias = Callable[[RuleChanges, IpChanges], None]


def wall_ms() -> int:
    """Return the Unix time in milliseconds."""
    return time_ns() // 1_000_000


class RuleTimer:
    """Changes the limits that apply at the times that quota rules set with an expiry, a schedule or a ramp.

    ``on_changes`` is called with the changed limits, while the timer holds ``using_rules``. ``wall_ms`` returns the
    Unix time in milliseconds.
    """

    def __init__(
        self, rules: EffectiveRules, using_rules: asyncio.Lock, *, on_changes: OnChanges, wall_ms: Callable[[], int]
    ) -> None:
        self._rules = rules
        self._using_rules = using_rules
        self._on_changes = on_changes
        self._wall_ms = wall_ms
        self._has_changed = asyncio.Event()

    def wake(self) -> None:
        """Make ``run`` look at the rules again, because they have changed."""
        self._has_changed.set()

    async def run(self) -> None:
        """Apply each rule at the times at which it begins, ends or changes its limits, until cancelled."""
        while True:
            try:
                await self._settle()
            except Exception as error:  # noqa: BLE001 - clients notice only that a limit is late
                report(error, "rules could not be applied; trying again")
                async with self._using_rules:
                    self._rules.schedule.repeat_all()
                wait_s: float | None = _AGAIN_S
            else:
                async with self._using_rules:
                    wait_s = self._wait_s()
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
        """Apply all rules that, by now, should have begun, ended or changed their limits."""
        count = 0
        while True:
            async with self._using_rules:
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
    """Log changes, but in total only the first ``_MOST_NAMED``. ``count`` is the number of earlier changes.

    Return the number of changes so far, including these.
    """
    named: list[tuple[str, QuotaRule | IpRule | None]] = [
        (_words(*entity), rule) for entity, rule in changes.rules.items()
    ]
    for words, rule in (*named, *((f"ip {ip}", rule) for ip, rule in changes.ips.items())):
        count += 1
        if count <= _MOST_NAMED:
            limits = limits_of(rule).items() if rule else ()
            shown = ", ".join(f"{key}={shown_limit(key, limit)}" for key, limit in limits) or "none"
            log.info("the schedule of a rule changed the quotas of %s: %s", words, shown)
    return count


def _words(user: EntityName, client_id: EntityName) -> str:
    names = {"user": user, "client-id": client_id}
    return ", ".join(f"{key} {name}" for key, name in names.items() if name is not None)
