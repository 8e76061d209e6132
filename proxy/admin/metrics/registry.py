"""Collects every metric of the proxy.

Metrics that only this proxy has use base units, such as seconds and bytes. Metrics that Kafka also has use the names
that Prometheus exporters give to Kafka's JMX metrics.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import ProcessCollector

from kafka_quota_proxy.proxy.admin.metrics.client_quotas import ClientQuotaMetrics
from kafka_quota_proxy.proxy.admin.metrics.connections import connection_metrics
from kafka_quota_proxy.proxy.admin.metrics.exposition import PROXY, Family, Metric, Namespace, Rest, labels, rest
from kafka_quota_proxy.proxy.admin.metrics.fair_queue import fair_queue_metrics
from kafka_quota_proxy.proxy.admin.metrics.listeners import (
    Reloads,
    bypass_metric,
    certificate_metrics,
    latency_metric,
    listener_metrics,
    process_metrics,
    upstream_metric,
)
from kafka_quota_proxy.proxy.admin.metrics.quota_sources import (
    quota_change_metrics,
    quota_source_metrics,
)
from kafka_quota_proxy.proxy.admin.metrics.replication import replication_metrics
from kafka_quota_proxy.proxy.server.loop_lag import BOUNDS_NS, LoopLag
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.usage.log import UsageLogger
from kafka_quota_proxy.proxy.usage.sink import Sink

_BOUNDS: Final = (*(repr(bound / 1e9) for bound in BOUNDS_NS), "+Inf")
# It reads /proc, and collects nothing on systems without.
_PROCESS: Final = ProcessCollector(registry=None)


def resource_metrics(lag: LoopLag) -> Iterator[Family]:
    """Yield the metrics of the process that all Prometheus clients have, and the lag of the event loop."""
    for found in _PROCESS.collect():
        for sample in found.samples:
            yield Family(sample.name, found.type, found.documentation, [("", sample.value)])
    yield _lag_metric(lag)


def _lag_metric(lag: LoopLag) -> Family:
    samples: list[tuple[str, float]] = []
    up_to_here = 0
    for bound, count in zip(_BOUNDS, lag.counts.copy(), strict=True):
        up_to_here += count
        samples.append(("_bucket" + labels(le=bound), up_to_here))
    samples += [("_count", up_to_here), ("_sum", lag.sum_ns / 1e9)]
    help_ = "How late the event loop ran a timer, four times a second."
    return Family(f"{PROXY.prefix}_event_loop_lag_seconds", "histogram", help_, samples)


_LOG: Final = Namespace("kafka_quota_proxy_usage_log")

_OF_SINKS: Final[tuple[Metric[Sink], ...]] = (
    ("records_total", "Records that were written.", lambda sink: sink.written),
    ("dropped_records_total", "Records that were not written before a stop and are lost.", lambda sink: sink.dropped),
    ("queued_records", "Records that wait to be written.", lambda sink: sink.queued),
    ("failures_total", "Attempts to write that failed; each is repeated.", lambda sink: sink.failures),
    ("last_write_successful", "Whether the last attempt to write succeeded.", lambda sink: not sink.is_failing),
    ("last_write_timestamp_seconds", "When records were last written, Unix time; 0 if none were.",
     lambda sink: sink.last_write_s),
)  # fmt: skip


def usage_log_metrics(usage: UsageLogger | None) -> Iterator[Family]:
    """Yield the metrics of the usage log. If ``usage`` is None, the proxy has no usage log, and nothing is yielded."""
    if usage is not None:
        yield from _LOG.table(_OF_SINKS, [(labels(sink=usage.sink.name), usage.sink)])
        help_ = "Intervals whose end was postponed because the sink was full or not ready; no record is lost."
        yield _LOG.counter("postponed_intervals", help_, [("", usage.postponed)])


class MetricRegistry:
    """Collects the metrics of one proxy. It remembers which entities have time series of their own."""

    def __init__(self, server: Server, reloads: Reloads, *, most_buckets: int | None = None) -> None:
        self._server = server
        self._reloads = reloads
        self._client_quotas = ClientQuotaMetrics(most_buckets=most_buckets)

    def collect(self, now_ms: int, rest: Rest = rest) -> Iterator[Family]:
        """Yield all metrics. Each metric is read only when the caller takes it from the iterator."""
        server, brokers = self._server, self._server.brokers
        listeners, replication = list(server.listeners), server.replication
        yield from process_metrics(self._reloads)
        yield from resource_metrics(server.loop_lag)
        yield from listener_metrics(listeners, now_ms)
        yield latency_metric(listeners)
        yield from certificate_metrics(server)
        yield from replication_metrics(replication.throttle, replication.watcher, listeners, now_ms)
        yield upstream_metric(brokers.faults())
        yield bypass_metric(brokers)
        yield from connection_metrics(brokers.quotas_by_name, listeners, now_ms)
        yield from fair_queue_metrics(brokers.queues_by_name, listeners)
        yield from usage_log_metrics(server.usage)
        yield from quota_source_metrics(server.quota_manager)
        yield from quota_change_metrics(server.quota_manager.change_log)
        has_values = server.config.kafka.client_quota_metric_value_enable
        yield from self._client_quotas.collect(brokers.quotas, rest, now_ms=now_ms, has_values=has_values)
