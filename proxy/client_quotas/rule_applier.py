"""Changes the rules in force, on the event loop.

The rules in force depend on the store or the brokers, the configuration file, and the time.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.proxy.client_quotas.rule_timer import OnChanges, RuleTimer
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import EffectiveRules
from kafka_quota_proxy.proxy.quota.rule_changes import IpChanges, QuotaChanges, RuleChanges, merge_changes

# The number of rules to apply before other tasks get a turn. This takes some milliseconds.
_AT_ONCE: Final = 250


class RuleApplier:
    """Changes ``rules``, and reports to ``on_changes`` which of the rules in force have changed.

    Before ``begin``, changes are not reported but collected, and ``follow_file`` returns them. ``name`` is the source
    of all rules that are not from the configuration file.

    Attributes:
        using_rules: A lock for the rules. A task holds it while the task changes the rules, or while a thread reads
            them or makes them follow the file.
    """

    def __init__(self, config: ProxyConfig, *, name: str, on_changes: OnChanges, wall_ms: Callable[[], int]) -> None:
        self.rules = EffectiveRules(config, name=name, now_ms=wall_ms())
        self.using_rules = asyncio.Lock()
        self._on_changes = on_changes
        self._wall_ms = wall_ms
        self.timer = RuleTimer(self.rules, self.using_rules, on_changes=self._apply_timed, wall_ms=wall_ms)
        self._unreported: list[QuotaChanges] = []
        self._has_begun = False

    def begin(self) -> None:
        """Report all later changes."""
        self._has_begun = True

    @property
    def is_reported(self) -> bool:
        """Whether no change waits to be passed to ``on_changes`` or to be returned by ``follow_file``."""
        return not self._unreported

    async def apply(self, changes: Sequence[Change]) -> None:
        """Apply changes of stored rules. If some fail, still apply the others, and then raise the last error."""
        failure: Exception | None = None
        for begin in range(0, len(changes), _AT_ONCE):
            try:
                await self._apply_some(changes[begin : begin + _AT_ONCE])
            except Exception as error:  # noqa: BLE001 - the other changes are stored, so they are applied
                failure = error
            await asyncio.sleep(0)
        self.timer.wake()
        if failure is not None:
            raise failure

    def follow_file(self, config: ProxyConfig) -> QuotaChanges:
        """Replace the rules of the file by those of ``config``, and return all changes that have not been reported.

        This may be called in a thread, while the caller holds ``using_rules``. Then wake the timer on the event loop.
        """
        changes = merge_changes(*self._unreported, self.rules.follow_file(config, now_ms=self._wall_ms()))
        self._unreported = []
        return changes

    async def _apply_some(self, changes: Sequence[Change]) -> None:
        async with self.using_rules:
            changed = self.rules.change(changes, now_ms=self._wall_ms())
        self._unreported.append(changed)
        if self._has_begun:
            self.report()

    def _apply_timed(self, rules: RuleChanges, ips: IpChanges) -> None:
        self._unreported.append(QuotaChanges(rules, ips))
        self.report()

    def report(self) -> None:
        """Report the changes that are not yet reported. If this fails, the next call reports them again."""
        if self._unreported:
            self._on_changes(*merge_changes(*self._unreported))
            self._unreported = []
