"""Reads throttles, topic ids and reassignments from the cluster every few seconds in a thread.

Each change is reported on the event loop as a new ``ClusterView``. If the cluster cannot be reached, the last
``ClusterView`` stays in force.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from kafka_quota_proxy.config.model import Address, AdminClient, Replication
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView, ForgottenThrottle, Readings, view_of
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.isolation import attempt

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.replication.cluster_reader import ClusterReader

log = logging.getLogger(__name__)

# The shortest time between two polls, because each fetch with an unknown topic id requests one.
_LEAST_BETWEEN_S: Final = 0.5
_WARN_EVERY_MS: Final = 60_000
# Reading all topics of a large cluster takes a while, so it is not done at each poll. It finds deleted topics, and
# lists of throttled replicas that are left although no broker has a rate.
_ALL_TOPICS_EVERY_MS: Final = 30_000
_IDENTIFY_AGAIN_MS: Final = 30_000


class ReplicationWatcher:
    """Polls the state of one cluster, and reports each change of its ``ClusterView``.

    Its public methods run on the event loop.

    Attributes:
        view: The view that was last passed to ``on_view``.
        is_successful: Whether the last poll succeeded. It is False before the first poll.
        last_success_s: When the last successful poll ended, in Unix time. It is 0 before the first poll.
    """

    def __init__(
        self,
        replication: Replication,
        upstreams: Mapping[Address, int | None],
        *,
        fallback: tuple[Address, ...],
        on_view: Callable[[ClusterView], None],
        connect: Callable[[AdminClient, tuple[Address, ...]], ClusterReader] | None = None,
    ) -> None:
        """Prepare to poll a cluster.

        Args:
            replication: The section ``replication`` of the configuration file.
            upstreams: The address of each listener's upstream, with its node id from the configuration file, or None.
            fallback: The brokers to ask if ``replication`` names none.
            on_view: Called on the event loop with each view that differs from the previous one.
            connect: Returns a reader, and is called in a thread. By default it returns a ``ClusterReader``.
        """
        self.is_successful = False
        self.last_success_s = 0.0
        self._replication = replication
        self._fallback = fallback
        self._on_view = on_view
        self._connect = connect or _connect
        self._unidentified = [address for address, node_id in upstreams.items() if node_id is None]
        given = {address: node_id for address, node_id in upstreams.items() if node_id is not None}
        self.view = self._read = ClusterView(node_ids=given)  # the view in force, and the view as it was read
        self._forgotten = ForgottenThrottle()
        self._reader: ClusterReader | None = None
        self._requested = asyncio.Event()
        self._epoch = 0  # counts how often the connection was closed
        self._unread: frozenset[str] = frozenset()
        self._warn_from_ms = 0
        self._all_topics_from_ms = 0
        self._identify_from_ms = 0
        self._identified_among: frozenset[int] = frozenset()

    @property
    def is_orphaned(self) -> bool:
        """Whether the operator was warned that a throttle is still set although no partition is being reassigned."""
        return self._forgotten.is_reported

    def request(self) -> None:
        """Ask for a poll soon that also reads all topics, for example because a fetch names an unknown topic id.

        Calls may be frequent, because polls are a minimum time apart.
        """
        self._all_topics_from_ms = 0
        self._requested.set()

    def update(self, replication: Replication) -> None:
        """Apply the section ``replication`` of a reloaded configuration file."""
        if replication.admin_client != self._replication.admin_client:
            self._close()
        if replication.from_cluster != self._replication.from_cluster:
            self._read = ClusterView(topic_names=self._read.topic_names, node_ids=self._read.node_ids)
        self._replication = replication
        self.request()
        self._report()

    async def run(self) -> None:
        """Poll the cluster regularly until cancelled. The first poll begins at once."""
        if self.view.node_ids:
            self._on_view(self.view)
        try:
            while True:
                self._requested.clear()
                await self._poll()
                interval_s = self._replication.poll_interval_ms / 1_000
                await asyncio.sleep(min(interval_s, _LEAST_BETWEEN_S))
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, interval_s - _LEAST_BETWEEN_S)):
                        await self._requested.wait()
        finally:
            self._close()

    async def _poll(self) -> None:
        replication, now_ms = self._replication, monotonic_ns() // 1_000_000
        is_time_for_all = now_ms >= self._all_topics_from_ms
        has_topic_configs = replication.from_cluster and (is_time_for_all or self._read.has_throttle)
        ask = partial(
            self._ask,
            replication.admin_client,
            self._epoch,
            has_topics=is_time_for_all,
            has_configs=replication.from_cluster,
            has_topic_configs=has_topic_configs,
        )
        try:
            readings = await in_thread(ask)
        except Exception as error:  # noqa: BLE001 - whatever the Kafka client raises, the proxy serves on
            if replication is self._replication:
                self._fail(error)
            return
        if replication is not self._replication:  # a reload has changed the section meanwhile
            return
        if not self.is_successful:
            log.info("the cluster answers: %d brokers", len(readings.brokers))
        self.is_successful, self.last_success_s, self._warn_from_ms = True, time.time(), 0
        if is_time_for_all:
            self._all_topics_from_ms = now_ms + _ALL_TOPICS_EVERY_MS
        self._read, unread = view_of(readings, self._read)
        if self._read.has_throttle and replication.from_cluster and not has_topic_configs:
            self.request()  # a new rate takes effect only together with its lists
        for what in sorted(frozenset(unread) - self._unread):
            log.warning("ignored a throttle of the cluster that cannot be read: %s", what)
        self._unread = frozenset(unread)
        self._report()
        await self._identify(readings.brokers)

    def _report(self) -> None:
        if message := self._forgotten.warning(self._read, now_ms=monotonic_ns() // 1_000_000):
            log.warning("%s", message)
        if self._read != self.view:
            self.view = self._read
            self._on_view(self.view)

    def _fail(self, error: Exception) -> None:
        self._close()
        self.is_successful = False
        now_ms = monotonic_ns() // 1_000_000
        if now_ms >= self._warn_from_ms:
            self._warn_from_ms = now_ms + _WARN_EVERY_MS
            log.warning(
                "cannot ask the cluster for its throttles (%s: %s); the last known ones still apply",
                type(error).__name__, error,
            )  # fmt: skip

    async def _identify(self, node_ids: tuple[int, ...]) -> None:
        """Ask the brokers for the node ids that the configuration file does not give."""
        reader, now_ms = self._reader, monotonic_ns() // 1_000_000
        is_early = now_ms < self._identify_from_ms and frozenset(node_ids) == self._identified_among
        if reader is None or not self._unidentified or is_early:
            return
        self._identify_from_ms, self._identified_among = now_ms + _IDENTIFY_AGAIN_MS, frozenset(node_ids)
        for upstream in tuple(self._unidentified):
            why = "no broker of the cluster has this address"
            try:
                node_id = await in_thread(partial(reader.identify, upstream, node_ids))
            except Exception as error:  # noqa: BLE001 - as in _poll
                node_id, why = None, f"{type(error).__name__}: {error}"
            if node_id is None:
                log.warning("cannot find out which broker %s is (%s); give its listener a node_id", upstream, why)
                continue
            log.info("upstream %s is broker %d", upstream, node_id)
            self._unidentified.remove(upstream)
            self._read = replace(self._read, node_ids={**self._read.node_ids, upstream: node_id})
            self._report()

    def _close(self) -> None:
        """Close the connection to the cluster. A call that is in progress on it fails.

        A thread does this, because closing may block.
        """
        self._epoch += 1
        reader, self._reader = self._reader, None
        if reader is not None:
            threading.Thread(target=attempt, args=(reader.close,), name="cluster-close", daemon=True).start()

    def _ask(
        self, settings: AdminClient, epoch: int, *, has_topics: bool, has_configs: bool, has_topic_configs: bool
    ) -> Readings:
        """Read the requested data from the cluster, and connect first if necessary. Runs in a thread."""
        reader = self._reader
        if reader is None:
            reader = self._reader = self._connect(settings, self._fallback)
            if epoch != self._epoch:  # closed meanwhile, when there was nothing to close yet
                self._reader = None
                reader.close()
        return reader.read(has_topics=has_topics, has_configs=has_configs, has_topic_configs=has_topic_configs)


def _connect(settings: AdminClient, fallback: tuple[Address, ...]) -> ClusterReader:
    # This is imported here because it loads aiokafka, which costs time and memory that most configurations can save.
    from kafka_quota_proxy.proxy.replication.cluster_reader import ClusterReader

    return ClusterReader(settings, fallback)
