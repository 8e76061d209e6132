"""Collects every metric of the proxy.

Metrics that only this proxy has use base units, such as seconds and bytes. Metrics that Kafka also has use the names
that Prometheus exporters give to Kafka's JMX metrics.
"""

from collections.abc import Iterator

from kafka_quota_proxy.proxy.admin.metrics.client_quotas import ClientQuotaMetrics
from kafka_quota_proxy.proxy.admin.metrics.connections import connection_metrics
from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, Rest, rest
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
from kafka_quota_proxy.proxy.admin.metrics.resources import resource_metrics
from kafka_quota_proxy.proxy.admin.metrics.usage_log import usage_log_metrics
from kafka_quota_proxy.proxy.server.server import Server


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
