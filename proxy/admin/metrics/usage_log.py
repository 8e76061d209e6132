"""Reads the metrics of the usage log, such as whether it can be written and how many records are queued.

The usage log records the usage of each entity (a user, a client-id, or both) in each interval.
"""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, Metric, Namespace, labels
from kafka_quota_proxy.proxy.usage.log import UsageLogger
from kafka_quota_proxy.proxy.usage.sink import Sink

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
        yield from _LOG.table(_OF_SINKS, [(labels(sink=sink.name), sink) for sink in usage.sinks])
        help_ = "Intervals whose end was postponed because a sink was full or not ready; no record is lost."
        yield _LOG.counter("postponed_intervals", help_, [("", usage.postponed)])
