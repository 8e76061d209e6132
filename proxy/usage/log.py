"""Reads the counters of quotas at the end of each interval, and passes the records of the usage log to the sink.

The sink writes the records to files or to a Kafka topic, in a thread of its own.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from time import monotonic, monotonic_ns, time_ns
from typing import Final

from kafka_quota_proxy.config.model import ProxyConfig, UsageFiles, UsageLog
from kafka_quota_proxy.proxy.runtime.isolation import report
from kafka_quota_proxy.proxy.usage.meter import Meter, MeteredBroker, MeteredReplicas
from kafka_quota_proxy.proxy.usage.record import Batch, Timeline
from kafka_quota_proxy.proxy.usage.segments import Segments
from kafka_quota_proxy.proxy.usage.sink import Sink, Writer

log = logging.getLogger(__name__)

# How long a stop waits for the last records to be written. Together with ``drain_timeout`` this stays below the time
# after which supervisors usually kill a process.
STOP_TIMEOUT_S: Final = 5.0
# After a second signal to stop, a thread has this long to close its file. ``_LOOK_S`` is how often that is checked.
_HURRIED_S: Final = 0.2
_LOOK_S: Final = 0.01


class UsageLogger:
    """Writes the usage log of a proxy, between the calls of ``start`` and ``stop``.

    ``brokers`` and ``replicas`` are called at the end of each interval, and return the quotas whose counters are read.
    """

    def __init__(
        self,
        settings: UsageLog,
        proxy: str,
        *,
        brokers: Callable[[], Iterable[MeteredBroker]],
        replicas: Callable[[], Iterable[MeteredReplicas]],
        sink: Sink,
    ) -> None:
        self.sink = sink
        self.postponed = 0  # intervals that were extended because the sink was full or not ready
        self._interval_ms = settings.interval_ms
        self._brokers = brokers
        self._replicas = replicas
        self._meter = Meter(proxy, Timeline(wall_ms=_wall_ms(), now_ms=_now_ms()))
        self._is_ready = False

    def start(self) -> None:
        """Start the thread that writes the usage log to files or to a Kafka topic."""
        self.sink.start()

    async def run(self) -> None:
        """Log the usage of each interval, until cancelled.

        An interval ends when the wall clock is at a multiple of the configured interval length.
        """
        while True:
            await asyncio.sleep(_until_end_ms(_wall_ms(), self._interval_ms) / 1_000)
            if not self._may_read():
                self.postponed += 1
                continue
            try:
                for batch in self._read():
                    if batch is not None:
                        self.sink.put(batch)
                    await asyncio.sleep(0)
            except Exception as error:  # noqa: BLE001 - a fault of the log must not affect clients
                report(error, "could not close an interval of the usage log; its usage will be in a later interval")

    async def stop(self, hurry: asyncio.Event) -> None:
        """Log the usage up to now. Wait until it is written, ``STOP_TIMEOUT_S`` has passed, or ``hurry`` is set."""
        self._may_read()
        for batch in self._read():
            if batch is not None:
                self.sink.put(batch)
        self.sink.stop(STOP_TIMEOUT_S)
        ends_s = monotonic() + STOP_TIMEOUT_S + 1
        while self.sink.is_running and monotonic() < ends_s:
            if hurry.is_set():
                self.sink.stop(0)
                ends_s = min(ends_s, monotonic() + _HURRIED_S)
            await asyncio.sleep(_LOOK_S)
        self.sink.join(0)

    def _may_read(self) -> bool:
        """Return whether the destination of the usage log is ready and has room for more records.

        If False, the current interval is not ended yet, so it becomes longer.
        """
        if not self._is_ready and self.sink.last_start_ms is not None:
            self._is_ready = True
            self._continue_after(self.sink.last_start_ms)
        return self._is_ready and self.sink.has_room

    def _continue_after(self, start_ms: int) -> None:
        self._meter.timeline.start_after(start_ms)
        ahead_ms = start_ms - _wall_ms()
        if ahead_ms > self._interval_ms:
            log.warning(
                "the usage log is %d s ahead of the clock; it continues at half speed until the clock catches up. If "
                "that takes too long: stop the proxy, move the files of the log away, start again",
                ahead_ms // 1_000,
            )

    def _read(self) -> Iterable[Batch | None]:
        # The lists are copied, because a broker may join while the counters are read.
        return self._meter.read(list(self._brokers()), list(self._replicas()), wall_ms=_wall_ms(), now_ms=_now_ms())


def usage_log(
    config: ProxyConfig,
    *,
    brokers: Callable[[], Iterable[MeteredBroker]],
    replicas: Callable[[], Iterable[MeteredReplicas]],
) -> UsageLogger | None:
    """Return the logger that ``config`` describes, or None if it has no section ``usage_log``."""
    settings = config.usage_log
    if settings is None:
        return None
    proxy = proxy_name(config)
    writer: Writer
    if isinstance(settings.to, UsageFiles):
        writer = Segments(settings.to, proxy)
    else:
        # The import loads aiokafka, which a proxy without a topic does not need.
        from kafka_quota_proxy.proxy.usage.topic import TopicWriter

        writer = TopicWriter(settings.to, proxy)
    return UsageLogger(settings, proxy, brokers=brokers, replicas=replicas, sink=Sink(writer))


def proxy_name(config: ProxyConfig) -> str:
    """Return the name of this proxy in the usage log.

    If the configuration contains no name, the name consists of the host name and the port of the first listener.
    """
    given = config.usage_log.proxy if config.usage_log is not None else None
    return given or f"{socket.gethostname()}-{config.listeners[0].bind.port}"


def _until_end_ms(wall_ms: int, interval_ms: int) -> int:
    """Return for how many ms to wait until the wall clock is at a multiple of ``interval_ms``.

    If that time is less than a tenth of an interval away, wait until the multiple after it.
    """
    left_ms = interval_ms - wall_ms % interval_ms
    # Otherwise a timer that fires slightly early would be followed by a very short interval.
    return left_ms if left_ms > interval_ms // 10 else left_ms + interval_ms


def _wall_ms() -> int:
    return time_ns() // 1_000_000


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000
