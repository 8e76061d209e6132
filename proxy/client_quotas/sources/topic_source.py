"""A quota topic on the loop: events of the reader change the state, and changed rules go to the server."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import nan
from time import monotonic_ns, time_ns
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
from kafka_quota_proxy.proxy.usage.log import proxy_name

log = logging.getLogger(__name__)

# How many rules are processed before the loop serves others: some milliseconds.
_AT_ONCE: Final = 250
# The wait before another attempt to put rules in force.
_AGAIN_S: Final = 5.0

OnChanges: TypeAlias = Callable[[Mapping[Entity, QuotaRule | None]], None]


class TopicSource:
    """Follows one topic. All methods run on the loop.

    Args:
        settings: The file's section.
        proxy: Whose shares count.
        file_rules: Those of the file.
        on_changes: Is called on the loop with rules of the topic that have changed, and None for those that went.
        reader: See ``ReaderBridge``.

    Attributes:
        state: What is known of the topic.
        has_read: Set once it has been read to its end.
        may_serve: Set once clients need not wait for that: it has been, or cannot be.
        is_connected: Whether it has been since the last failure.
        failures: How often it could not be read.
    """

    def __init__(
        self,
        settings: QuotasFrom,
        proxy: str,
        file_rules: Iterable[QuotaRule],
        *,
        on_changes: OnChanges,
        reader: Callable[[EventHandler], ReaderThread],
    ) -> None:
        self.name = str(settings)
        self.state = TopicRules(proxy=proxy, topic=settings.topic, file_rules=file_rules)
        self.has_read = asyncio.Event()
        self.may_serve = asyncio.Event()
        self.is_connected = False
        self.failures = 0
        self._is_failing = False
        self._on_changes = on_changes
        self._hearing = ReaderBridge(reader, self._hear)
        self._has_heard = asyncio.Event()
        self._is_within_batch = False

    @property
    def rules(self) -> tuple[QuotaRule, ...]:
        """Every rule of the topic that is in force."""
        return tuple(self.state.in_force.values())

    def news_age_s(self) -> float:
        """Return how long ago the last news had come; NaN before the first."""
        heard_ms = self.state.news_heard_ms
        return nan if heard_ms is None else (_now_ms() - heard_ms) / 1_000

    def detail(self) -> dict[str, object]:
        """Return what ``/readyz`` says of it."""
        return {
            "topic": self.name,
            "connected": self.is_connected,
            "read": self.has_read.is_set(),
            "rules": self.state.rules,
            "shares": self.state.shares,
            "lease_in_force": self.state.has_lease,
        }

    def follow_file(self, config: ProxyConfig) -> None:
        """Use the rules of a new file, also those that do not hold now: their entities are the file's.

        ``rules`` are right when this returns; ``on_changes`` is not called. None says that any rule may have changed.
        """
        self.state.follow_file(config.quotas)
        self.state.changes()
        self._say()

    def start(self) -> None:
        """Begin to read."""
        self._hearing.start()

    async def run(self) -> None:
        """End the lease when it is over without news, until cancelled."""
        while True:
            next_ms = self.state.next_ms
            with suppress(TimeoutError):
                async with asyncio.timeout(None if next_ms is None else max(0, next_ms - _now_ms()) / 1_000):
                    await self._has_heard.wait()
            self._has_heard.clear()
            self.state.advance(now_ms=_now_ms())
            try:
                await self._settle()
            except Exception as error:  # noqa: BLE001 - clients notice only that a limit is late
                report(error, "quotas_from %s: rules could not be put in force; it is tried again", self.name)
                await asyncio.sleep(_AGAIN_S)
                self._has_heard.set()

    async def stop(self) -> None:
        """Stop reading. Waits a moment for the reader to close its connections."""
        await self._hearing.stop()

    async def _hear(self, told: ReaderEvent) -> None:
        now_ms, wall_ms = _now_ms(), time_ns() // 1_000_000
        self._is_within_batch = isinstance(told, RecordsRead) and not told.is_whole
        if isinstance(told, ReadingBegan):
            self.state.begin()
        elif isinstance(told, RecordsRead):
            self.state.take(told.records, since_ms=told.since_ms, now_ms=now_ms, wall_ms=wall_ms)
        elif isinstance(told, EndReached):
            self.state.end_reached(now_ms=now_ms)
            # All rules take effect before the first client is served.
            await self._settle()
            self._succeed()
        else:
            self._fail(told)
        self._has_heard.set()
        await self._settle()

    async def _settle(self) -> None:
        self._say()
        # A half-read batch may contain limits without their terms.
        while self.state.is_unsettled and not self._is_within_batch:
            changes = self.state.changes(_AT_ONCE)
            if changes:
                self._put_in_force(changes)
            self._say()
            await asyncio.sleep(0)

    def _put_in_force(self, changes: Mapping[Entity, QuotaRule | None]) -> None:
        try:
            self._on_changes(changes)
        except Exception:
            self.state.take_back(changes)
            raise

    def _succeed(self) -> None:
        self.is_connected = True
        if self._is_failing or not self.has_read.is_set():
            log.info("quotas_from %s: read, %d rules and %d shares", self.name, self.state.rules, self.state.shares)
        self._is_failing = False
        self.has_read.set()
        self.may_serve.set()

    def _fail(self, told: ReadFailed) -> None:
        self.is_connected = False
        self.failures += 1
        if not self._is_failing:
            self._is_failing = True
            log.warning(
                "quotas_from %s: cannot be read: %s; it is tried again, and what is known stays in force",
                self.name, told.reason,
            )  # fmt: skip
        if told.is_own_fault:
            self.may_serve.set()

    def _say(self) -> None:
        for notice in self.state.notices:
            log.log(
                logging.WARNING if notice.is_warning else logging.INFO, "quotas_from %s: %s", self.name, notice.text
            )


def topic_source(config: ProxyConfig, *, on_changes: OnChanges) -> TopicSource | None:
    """Return the source for the topic of a configuration; None if it names no topic."""
    settings = config.quotas_from
    if not isinstance(settings, QuotasFrom):
        return None
    reader = topic_reader(config, settings)
    return TopicSource(settings, proxy_name(config), config.quotas, on_changes=on_changes, reader=reader)


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000
