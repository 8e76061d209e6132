"""The usage log on the loop: at each interval from the counters to the sinks. Nothing here waits for a disk."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, monotonic_ns, time_ns
from typing import Final

from kafka_quota_proxy.config.model import ProxyConfig, UsageLog
from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.usage.meter import Meter, MeteredBroker, MeteredReplicas
from kafka_quota_proxy.proxy.usage.record import Batch
from kafka_quota_proxy.proxy.usage.segments import Segments
from kafka_quota_proxy.proxy.usage.sink import Sink
from kafka_quota_proxy.proxy.usage.timeline import Timeline

log = logging.getLogger(__name__)

# How long a stop waits for what is left to be written. Beside ``drain_timeout``, below what supervisors allow for both.
STOP_TIMEOUT_S: Final = 5.0
# How long a thread has to let go of its file once nobody waits any more, and how often it is looked at meanwhile.
_HURRIED_S: Final = 0.2
_LOOK_S: Final = 0.01


class MissingPackageError(Exception):
    """The configuration wants what is not installed."""


class UsageLogger:
    """Writes the usage log of a proxy, between ``start`` and ``stop``.

    Args:
        settings: The file's section.
        proxy: The name in the records.
        brokers: Returns what is to be read, each time anew.
        replicas: Likewise.
        sinks: Where it goes.
    """

    def __init__(
        self,
        settings: UsageLog,
        proxy: str,
        *,
        brokers: Callable[[], Iterable[MeteredBroker]],
        replicas: Callable[[], Iterable[MeteredReplicas]],
        sinks: Sequence[Sink],
    ) -> None:
        self.sinks = sinks
        self.postponed = 0  # intervals that went on because a sink was full or not ready
        self._interval_ms = settings.interval_ms
        self._brokers = brokers
        self._replicas = replicas
        self._meter = Meter(proxy, Timeline(wall_ms=_wall_ms(), now_ms=_now_ms()))
        self._is_ready = False

    def start(self) -> None:
        """Have the sinks made ready, in their threads."""
        for sink in self.sinks:
            sink.start()

    async def run(self) -> None:
        """End an interval where the wall clock does, until cancelled."""
        while True:
            await asyncio.sleep(_until_end_ms(_wall_ms(), self._interval_ms) / 1_000)
            if not self._may_read():
                self.postponed += 1
                continue
            try:
                for batch in self._read():
                    if batch is not None:
                        self._put(batch)
                    await asyncio.sleep(0)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a log, clients do not feel it
                report(error, "an interval could not be read to its end; what was used is in a later one")

    async def stop(self, hurry: asyncio.Event) -> None:
        """Log what was used until now, and wait for the sinks to write it, for a while.

        Args:
            hurry: Once it is set nothing is waited for any more.
        """
        self._may_read()
        for batch in self._read():
            if batch is not None:
                self._put(batch)
        for sink in self.sinks:
            sink.stop(STOP_TIMEOUT_S)
        ends_s = monotonic() + STOP_TIMEOUT_S + 1
        while any(sink.is_running for sink in self.sinks) and monotonic() < ends_s:
            if hurry.is_set():
                for sink in self.sinks:
                    sink.stop(0)
                ends_s = min(ends_s, monotonic() + _HURRIED_S)
            await asyncio.sleep(_LOOK_S)
        for sink in self.sinks:
            sink.join(0)

    def _may_read(self) -> bool:
        """Whether every sink has room. The first time, begin behind what is there already."""
        if not self._is_ready:
            known = [sink.last_start_ms for sink in self.sinks]
            if None not in known:
                self._is_ready = True
                self._go_on_behind(max(start_ms or 0 for start_ms in known))
        return self._is_ready and all(sink.has_room for sink in self.sinks)

    def _go_on_behind(self, start_ms: int) -> None:
        self._meter.timeline.start_after(start_ms)
        ahead_ms = start_ms - _wall_ms()
        if ahead_ms > self._interval_ms:
            log.warning(
                "the usage log is %d s ahead of the clock: it goes on from there, at half the speed, until the clock "
                "has caught up; where that takes too long, stop, move its files away, and start again",
                ahead_ms // 1_000,
            )

    def _read(self) -> Iterable[Batch | None]:
        # Listed at once: in the middle of a reading a broker may join.
        return self._meter.read(list(self._brokers()), list(self._replicas()), wall_ms=_wall_ms(), now_ms=_now_ms())

    def _put(self, batch: Batch) -> None:
        for sink in self.sinks:
            sink.put(batch)


def usage_log(
    config: ProxyConfig,
    *,
    brokers: Callable[[], Iterable[MeteredBroker]],
    replicas: Callable[[], Iterable[MeteredReplicas]],
) -> UsageLogger | None:
    """Return what writes the log that a configuration wants; None where it wants none.

    Raises:
        MissingPackageError: It wants a topic, and aiokafka is not installed.
    """
    settings = config.usage_log
    if settings is None:
        return None
    proxy = proxy_name(config)
    sinks: list[Sink] = []
    if settings.files is not None:
        sinks.append(Sink(Segments(settings.files, proxy)))
    if settings.topic is not None:
        # Here, for it loads aiokafka, which nothing else of the proxy has need of.
        try:
            from kafka_quota_proxy.proxy.usage.topic import TopicWriter
        except ModuleNotFoundError as error:
            message = f"usage_log.kafka needs {error.name}, which is not installed"
            raise MissingPackageError(f"{message}: pip install 'kafka-quota-proxy[usage-topic]'") from error
        sinks.append(Sink(TopicWriter(settings.topic, proxy)))
    return UsageLogger(settings, proxy, brokers=brokers, replicas=replicas, sinks=sinks)


def proxy_name(config: ProxyConfig) -> str:
    """Return what this proxy is called, in the usage log and by who divides limits by it."""
    given = config.usage_log.proxy if config.usage_log is not None else None
    return given or f"{socket.gethostname()}-{config.listeners[0].bind.port}"


def _until_end_ms(wall_ms: int, interval_ms: int) -> int:
    """Return how long it is until the next whole interval of the wall clock; not the one that a timer was early for."""
    left_ms = interval_ms - wall_ms % interval_ms
    return left_ms if left_ms > interval_ms // 10 else left_ms + interval_ms


def _wall_ms() -> int:
    return time_ns() // 1_000_000


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000
