"""Follows the cluster: reads it every few seconds in a thread, and reports it on the loop as one ``ClusterView``.

An unreachable cluster changes nothing: its last view stays in force. Nothing here writes to the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic_ns
from typing import Final, Protocol

from kafka_quota_proxy.config.model import Address, AdminClient, Replication
from kafka_quota_proxy.proxy.background.in_thread import in_thread
from kafka_quota_proxy.proxy.background.isolation import attempt
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView, Lease, Readings, view_of

log = logging.getLogger(__name__)

# Each fetch with an unknown topic id requests a poll.
_LEAST_BETWEEN_S: Final = 0.5
_WARN_EVERY_MS: Final = 60_000
# Reading all topics of a large cluster takes a while. It finds deleted topics, and lists of throttled replicas that are
# left although no broker has a rate.
_ALL_TOPICS_EVERY_MS: Final = 30_000
_IDENTIFY_AGAIN_MS: Final = 30_000


class ConfigReader(Protocol):
    """Reads a cluster, from one thread at a time. Any exception of a method makes a failed poll."""

    def read(self, *, has_topics: bool, has_configs: bool, has_topic_configs: bool) -> Readings:
        """Return the cluster's answers."""

    def identify(self, upstream: Address, node_ids: Iterable[int]) -> int | None:
        """Return the node id of the broker at an address."""

    def close(self) -> None:
        """Close its connections. For any thread."""


class ReplicationWatcher:
    """Follows one cluster. All methods run on the loop, except ``_ask``, which runs in a thread.

    Attributes:
        view: The last argument of ``on_view``.
        is_successful: Whether the last poll succeeded; false before the first.
        last_success_s: When the last successful poll ended, in Unix time; 0 before the first.
    """

    def __init__(
        self,
        replication: Replication,
        upstreams: Mapping[Address, int | None],
        *,
        fallback: tuple[Address, ...],
        on_view: Callable[[ClusterView], None],
        connect: Callable[[AdminClient, tuple[Address, ...]], ConfigReader] | None = None,
    ) -> None:
        """Prepare to follow a cluster.

        Args:
            replication: The file's section.
            upstreams: The upstreams of the listeners, with the node ids that the file gives.
            fallback: The brokers to ask if the section names none: ``proxy.replication.cluster_view.servers_behind``.
            on_view: Is called on the loop with each view that differs from the one before.
            connect: Returns the reader, in a thread; left out: a ``cluster_reader.ClusterReader``.
        """
        self.is_successful = False
        self.last_success_s = 0.0
        self._replication = replication
        self._fallback = fallback
        self._on_view = on_view
        self._connect = connect or _connect
        self._unidentified = [address for address, node_id in upstreams.items() if node_id is None]
        given = {address: node_id for address, node_id in upstreams.items() if node_id is not None}
        self.view = self._read = ClusterView(node_ids=given)  # the view in force; the cluster's own
        self._lease = Lease(replication.lease_ms)
        self._reader: ConfigReader | None = None
        self._requested = asyncio.Event()
        self._epoch = 0  # counts how often the connection was closed
        self._unread: frozenset[str] = frozenset()
        self._warn_from_ms = 0
        self._all_topics_from_ms = 0
        self._identify_from_ms = 0
        self._identified_among: frozenset[int] = frozenset()

    @property
    def is_orphaned(self) -> bool:
        """Whether the cluster has a throttle while nothing has been reassigned for a while."""
        return self._lease.is_orphaned

    def request(self) -> None:
        """Read everything again soon, topic ids in particular: at most twice a second, however often this is called.

        If ``poll_interval`` is shorter, as often as that.
        """
        self._all_topics_from_ms = 0
        self._requested.set()

    def update(self, replication: Replication) -> None:
        """Apply a changed section of the file."""
        if replication.admin_client != self._replication.admin_client:
            self._close()
        if replication.from_cluster != self._replication.from_cluster:
            self._read = ClusterView(
                topic_names=self._read.topic_names, racks=self._read.racks, node_ids=self._read.node_ids
            )
        self._lease.lease_ms = replication.lease_ms
        self._replication = replication
        self.request()
        self._report()

    async def run(self) -> None:
        """Poll until cancelled; the first time at once."""
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
        if replication is not self._replication:  # the configuration has changed meanwhile
            return
        if not self.is_successful:
            log.info("the cluster answers: %d brokers", len(readings.racks))
        self.is_successful, self.last_success_s, self._warn_from_ms = True, time.time(), 0
        if is_time_for_all:
            self._all_topics_from_ms = now_ms + _ALL_TOPICS_EVERY_MS
        self._read, unread = view_of(readings, self._read)
        if self._read.has_throttle and replication.from_cluster and not has_topic_configs:
            self.request()  # a new rate takes effect with its lists only
        for what in sorted(frozenset(unread) - self._unread):
            log.warning("the cluster has a throttle that cannot be read, and that is passed over: %s", what)
        self._unread = frozenset(unread)
        self._report()
        await self._identify(tuple(readings.racks))

    def _report(self) -> None:
        view, messages = self._lease.apply(self._read, now_ms=monotonic_ns() // 1_000_000)
        for message in messages:
            log.warning("%s", message)
        if view != self.view:
            self.view = view
            self._on_view(view)

    def _fail(self, error: Exception) -> None:
        self._close()
        self.is_successful = False
        now_ms = monotonic_ns() // 1_000_000
        if now_ms >= self._warn_from_ms:
            self._warn_from_ms = now_ms + _WARN_EVERY_MS
            log.warning(
                "cannot ask the cluster about itself (%s: %s); what was known last stays in force",
                type(error).__name__, error,
            )  # fmt: skip

    async def _identify(self, node_ids: tuple[int, ...]) -> None:
        """Find the node id of each upstream that has none in the file."""
        reader, now_ms = self._reader, monotonic_ns() // 1_000_000
        is_early = now_ms < self._identify_from_ms and frozenset(node_ids) == self._identified_among
        if reader is None or not self._unidentified or is_early:
            return
        self._identify_from_ms, self._identified_among = now_ms + _IDENTIFY_AGAIN_MS, frozenset(node_ids)
        for upstream in tuple(self._unidentified):
            why = "none of the cluster's brokers says that it is it"
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
        """Close the connection. A reading in progress fails; a hanging thread is not waited for."""
        self._epoch += 1
        reader, self._reader = self._reader, None
        if reader is not None:
            threading.Thread(target=attempt, args=(reader.close,), name="cluster-close", daemon=True).start()

    def _ask(
        self, settings: AdminClient, epoch: int, *, has_topics: bool, has_configs: bool, has_topic_configs: bool
    ) -> Readings:
        """Read. Runs in a thread, one at a time."""
        reader = self._reader
        if reader is None:
            reader = self._reader = self._connect(settings, self._fallback)
            if epoch != self._epoch:  # closed meanwhile, when there was nothing to close yet
                self._reader = None
                reader.close()
        return reader.read(has_topics=has_topics, has_configs=has_configs, has_topic_configs=has_topic_configs)


def _connect(settings: AdminClient, fallback: tuple[Address, ...]) -> ConfigReader:
    # Imported here: it loads aiokafka, which costs time and memory where no cluster is asked.
    from kafka_quota_proxy.proxy.replication.cluster_reader import ClusterReader

    return ClusterReader(settings, fallback)
