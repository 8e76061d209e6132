"""Makes the proxy apply the rules that a publisher writes to a Kafka topic (``quotas_from``)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule, QuotasFrom
from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.client_quotas.topic.reader_events import (
    EndReached,
    ReaderEvent,
    ReadFailed,
    ReadingBegan,
    RecordsRead,
)
from kafka_quota_proxy.proxy.client_quotas.topic.reader_thread import (
    EventHandler,
    ReaderBridge,
    ReaderThread,
    topic_reader,
)
from kafka_quota_proxy.proxy.client_quotas.topic.topic_rules import TopicRules
from kafka_quota_proxy.proxy.quota.entity import Entity
from kafka_quota_proxy.proxy.quota.rule_changes import QuotaChanges

log = logging.getLogger(__name__)

# How many rules are applied before other tasks have a turn. They take some milliseconds.
_AT_ONCE: Final = 250
# The wait before rules that could not be applied are tried again.
_AGAIN_S: Final = 5.0

OnChanges: TypeAlias = Callable[[Mapping[Entity, QuotaRule | None]], None]


class TopicSource:
    """A ``QuotaSource`` that reads one topic. Use it on the event loop.

    ``on_changes`` is called with the changed rules by entity, where None stands for a removed rule.
    """

    def __init__(
        self,
        settings: QuotasFrom,
        file_rules: Iterable[QuotaRule],
        *,
        on_changes: OnChanges,
        reader: Callable[[EventHandler], ReaderThread],
    ) -> None:
        self.name = str(settings)
        self.state = TopicRules(topic=settings.topic, file_rules=file_rules)
        self.has_read = asyncio.Event()
        self.may_serve = asyncio.Event()
        self.is_connected = False
        self.failures = 0
        self._is_failing = False
        self.using_rules = asyncio.Lock()
        self._on_changes = on_changes
        self._bridge = ReaderBridge(reader, self._on_event)
        self._has_changed = asyncio.Event()
        self._is_within_batch = False

    @property
    def rules(self) -> tuple[QuotaRule, ...]:
        """The rules of the topic that this proxy applies now."""
        return tuple(self.state.in_force.values())

    def detail(self) -> dict[str, object]:
        """Return the state of reading the topic, as a part of the response to ``/readyz``."""
        return {
            "topic": self.name,
            "connected": self.is_connected,
            "read": self.has_read.is_set(),
            "rules": self.state.rules,
        }

    def follow_file(self, config: ProxyConfig) -> QuotaChanges:
        """Replace the rules that came from the configuration file. They hide the topic's rules of these entities.

        Return the changed rules of the topic. None of them is for an entity with a rule in the file.
        """
        # All rules of the file, even those that are not in force at this time, hide rules of the topic.
        self.state.follow_file(config.quotas)
        changes = QuotaChanges(self.state.changes(), {})
        self._log_notices()
        return changes

    def wake(self) -> None:
        """Do nothing, because rules of a topic have no times."""

    def start(self) -> None:
        """Begin reading the topic."""
        self._bridge.start()

    async def run(self) -> None:
        """Apply changed rules until cancelled."""
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            try:
                async with self.using_rules:
                    await self._apply_changes()
            except Exception as error:  # noqa: BLE001 - clients notice only that a limit is late
                report(error, "quotas_from %s: rules could not be applied; trying again", self.name)
                await asyncio.sleep(_AGAIN_S)
                self._has_changed.set()

    async def stop(self) -> None:
        """Stop the reader, and wait up to a second until its connections are closed."""
        await self._bridge.stop()

    async def _on_event(self, event: ReaderEvent) -> None:
        async with self.using_rules:
            await self._take(event)

    async def _take(self, event: ReaderEvent) -> None:
        self._is_within_batch = isinstance(event, RecordsRead) and not event.is_whole
        if isinstance(event, ReadingBegan):
            self.state.begin()
        elif isinstance(event, RecordsRead):
            self.state.take(event.records)
        elif isinstance(event, EndReached):
            self.state.end_reached()
            # The rules are applied first, so that all are in force before the first client is served.
            await self._apply_changes()
            self._succeed()
        else:
            self._fail(event)
        self._has_changed.set()
        await self._apply_changes()

    async def _apply_changes(self) -> None:
        """Apply changed rules, unless only part of a record batch has been read.

        The rest of the batch may contain the terms (expiry, schedule, ramp) of a limit, and the limit must not apply
        without them.
        """
        self._log_notices()
        while self.state.is_unsettled and not self._is_within_batch:
            changes = self.state.changes(_AT_ONCE)
            if changes:
                try:
                    self._on_changes(changes)
                except Exception:
                    self.state.take_back(changes)
                    raise
            self._log_notices()
            await asyncio.sleep(0)

    def _succeed(self) -> None:
        self.is_connected = True
        if self._is_failing or not self.has_read.is_set():
            log.info("quotas_from %s: read, rules: %d", self.name, self.state.rules)
        self._is_failing = False
        self.has_read.set()
        self.may_serve.set()

    def _fail(self, failure: ReadFailed) -> None:
        self.is_connected = False
        self.failures += 1
        if not self._is_failing:
            self._is_failing = True
            log.warning(
                "quotas_from %s: cannot be read: %s; trying again, and known quotas still apply",
                self.name, failure.reason,
            )  # fmt: skip
        if failure.is_own_fault:
            self.may_serve.set()

    def _log_notices(self) -> None:
        for notice in self.state.notices:
            log.warning("quotas_from %s: %s", self.name, notice)


def topic_source(config: ProxyConfig, *, on_changes: OnChanges) -> TopicSource | None:
    """Return the object that reads and applies the rules of a topic, or None if ``quotas_from`` names no topic."""
    settings = config.quotas_from
    if not isinstance(settings, QuotasFrom):
        return None
    reader = topic_reader(config, settings)
    return TopicSource(settings, config.quotas, on_changes=on_changes, reader=reader)
