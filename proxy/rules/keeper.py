"""Keeps the rules in force up to date, on the event loop.

They depend on the configuration file, on a source, and on the time. A clock that is set to another time is noticed
within a second.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import time_ns
from typing import Final, TypeAlias

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.proxy.quota.address_limits import Ip
from kafka_quota_proxy.proxy.quota.entity import Entity as RuleEntity
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.quota.rule_terms import limits_of
from kafka_quota_proxy.proxy.rules.effective import NOWHERE, EffectiveRules
from kafka_quota_proxy.proxy.rules.model import Change, Entity
from kafka_quota_proxy.proxy.rules.source import RuleSource
from kafka_quota_proxy.proxy.rules.text import shown_limit
from kafka_quota_proxy.proxy.runtime.isolation import report

log = logging.getLogger(__name__)

# The longest wait, so that a clock that was changed is soon noticed.
_LONGEST_WAIT_S: Final = 1.0
# The number of rules to apply before other tasks get a turn. This takes some milliseconds.
_AT_ONCE: Final = 250
# How long to wait before rules that could not be applied are tried again.
_AGAIN_S: Final = 5.0
# If many rules change at once, this number of them is logged.
_MOST_NAMED: Final = 10
# The highest number of entities with a rule in the file and one in the source that the log names.
_MOST_DOUBLES: Final = 100

# Is called on the event loop with the rules in force that have changed.
OnChanges: TypeAlias = Callable[[QuotaChanges], None]


def wall_ms() -> int:
    """Return the Unix time in milliseconds."""
    return time_ns() // 1_000_000


class RuleKeeper:
    """Changes ``rules``, and reports which of the rules in force have changed.

    Before ``begin``, changes are not reported but collected, and ``follow_file`` returns them. ``wall_ms`` returns the
    Unix time in milliseconds.

    Attributes:
        using_rules: A lock for the rules. A task holds it while the task changes the rules, or while a thread reads
            them or makes them follow the file.
    """

    def __init__(self, config: ProxyConfig, source: RuleSource | None, *, wall_ms: Callable[[], int]) -> None:
        self.rules = EffectiveRules(
            config,
            name="" if source is None else source.name,
            places=NOWHERE if source is None else source.places,
            is_writable=source is not None and source.writer is not None,
            now_ms=wall_ms(),
        )
        self.using_rules = asyncio.Lock()
        self._on_changes: OnChanges | None = None
        self._wall_ms = wall_ms
        self._unreported: list[QuotaChanges] = []
        self._has_changed = asyncio.Event()
        self._warned: set[Entity] = set()

    def begin(self, on_changes: OnChanges) -> None:
        """Report all later changes to ``on_changes``."""
        self._on_changes = on_changes

    def wake(self) -> None:
        """Make ``run`` look at the rules again, because they have changed."""
        self._has_changed.set()

    def follow_file(self, config: ProxyConfig) -> QuotaChanges:
        """Replace the rules of the file by those of ``config``, and return all changes that have not been reported.

        This may be called in a thread, while the caller holds ``using_rules``. Call ``wake`` on the event loop
        afterwards.
        """
        changes = _merged((*self._unreported, self.rules.follow_file(config, now_ms=self._wall_ms())))
        self._unreported = []
        self._warned &= self.rules.sources.keys()
        self._warn_of_doubles(entity for entity in self.rules.sources if entity in self.rules.stored)
        return changes

    async def apply(self, changes: Sequence[Change]) -> None:
        """Apply changes of the source. If some cannot be reported, still apply the others, then raise the last error.

        What could not be reported is reported again by the next call, or by ``run`` after some seconds.
        """
        failure: Exception | None = None
        for begin in range(0, max(len(changes), 1), _AT_ONCE):
            some = changes[begin : begin + _AT_ONCE]
            async with self.using_rules:
                changed = self.rules.change(some, now_ms=self._wall_ms())
                if changed.rules or changed.ips:
                    self._unreported.append(changed)
                if self.rules.sources:
                    self._warn_of_doubles(entity for entity, rule in some if rule is not None)
                try:
                    self._report()
                except Exception as error:  # noqa: BLE001 - the other changes are stored, so they are applied
                    failure = error
            await asyncio.sleep(0)
        if failure is not None or self.rules.schedule.timed:
            self.wake()
        if failure is not None:
            raise failure

    async def run(self) -> None:
        """Apply each rule at the times at which it begins, ends or changes its limits, until cancelled."""
        while True:
            try:
                await self._settle()
            except Exception as error:  # noqa: BLE001 - clients notice only that a limit is late
                report(error, "rules could not be applied; trying again")
                async with self.using_rules:
                    self.rules.schedule.repeat_all()
                wait_s: float | None = _AGAIN_S
            else:
                async with self.using_rules:
                    wait_s = self._wait_s()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._has_changed.wait()
            self._has_changed.clear()

    # -- internal --

    def _report(self) -> None:
        """Report the changes that are not yet reported. If this fails, the next call reports them again."""
        if self._on_changes is not None and self._unreported:
            self._on_changes(self._unreported[0] if len(self._unreported) == 1 else _merged(self._unreported))
            self._unreported = []

    def _wait_s(self) -> float | None:
        next_ms = self.rules.schedule.next_ms
        if next_ms is None and not self.rules.schedule.timed:
            return None
        left_s = _LONGEST_WAIT_S if next_ms is None else (next_ms - self._wall_ms()) / 1_000
        return min(max(left_s, 0), _LONGEST_WAIT_S)

    async def _settle(self) -> None:
        """Apply all rules that, by now, should have begun, ended or changed their limits."""
        count = 0
        while True:
            async with self.using_rules:
                now_ms = self._wall_ms()
                changes = self.rules.advance(_AT_ONCE, now_ms=now_ms)
                if changes is not None:
                    count = _log_changes(changes, count)
                    self._unreported.append(changes)
                self._report()
                next_ms = self.rules.schedule.next_ms
            if next_ms is None or next_ms > now_ms:
                break
            await asyncio.sleep(0)
        if count > _MOST_NAMED:
            log.info("and those of %d others", count - _MOST_NAMED)

    def _warn_of_doubles(self, entities: Iterable[Entity]) -> None:
        for entity in entities:
            if entity in self.rules.sources and entity not in self._warned and len(self._warned) < _MOST_DOUBLES:
                self._warned.add(entity)
                log.warning("%s", self.rules.double(entity))


def _merged(all_changes: Iterable[QuotaChanges]) -> QuotaChanges:
    """Return all these changes as one. If a rule changes more than once, its last change counts."""
    rules: dict[RuleEntity, QuotaRule | None] = {}
    ips: dict[Ip, IpRule | None] = {}
    for changes in all_changes:
        rules.update(changes.rules)
        ips.update(changes.ips)
    return QuotaChanges(rules, ips)


def _log_changes(changes: QuotaChanges, count: int) -> int:
    """Log changes, but in total only the first ``_MOST_NAMED``. ``count`` is the number of earlier changes.

    Return the number of changes so far, including these.
    """
    named: list[tuple[Entity, QuotaRule | IpRule | None]] = []
    named += ((Entity(*names), rule) for names, rule in changes.rules.items())
    named += ((Entity(ip=ip), rule) for ip, rule in changes.ips.items())
    for entity, rule in named:
        count += 1
        if count <= _MOST_NAMED:
            limits = limits_of(rule).items() if rule else ()
            shown = ", ".join(f"{key}={shown_limit(key, limit)}" for key, limit in limits) or "none"
            log.info("the schedule of a rule changed the quotas of %s: %s", entity, shown)
    return count
