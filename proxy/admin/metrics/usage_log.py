"""Metrics of the usage log: whether it is written, and how far it is behind."""

from collections.abc import Callable, Iterator
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, Namespace, labels
from kafka_quota_proxy.proxy.usage.log import UsageLogger
from kafka_quota_proxy.proxy.usage.sink import Sink

_LOG: Final = Namespace("kafka_quota_proxy_usage_log")

# name, type, help, how it is read
_OF_SINKS: Final[tuple[tuple[str, str, str, Callable[[Sink], float]], ...]] = (
    ("records_total", "counter", "Records that were written.", lambda sink: sink.written),
    ("dropped_records_total", "counter", "Records that a stop did not wait for, and that are lost.",
     lambda sink: sink.dropped),
    ("queued_records", "gauge", "Records that wait to be written.", lambda sink: sink.queued),
    ("failures_total", "counter", "Attempts to write that failed; each is repeated.", lambda sink: sink.failures),
    ("last_write_successful", "gauge", "Whether the last attempt to write succeeded.",
     lambda sink: not sink.is_failing),
    ("last_write_timestamp_seconds", "gauge", "When records were last written, Unix time; 0: never.",
     lambda sink: sink.last_write_s),
)  # fmt: skip


def usage_log_metrics(usage: UsageLogger | None) -> Iterator[Family]:
    """Yield the metrics; None: there is no usage log."""
    if usage is None:
        return
    for name, kind, help_, read in _OF_SINKS:
        samples = [(labels(sink=sink.name), float(read(sink))) for sink in usage.sinks]
        yield Family(f"{_LOG.prefix}_{name}", kind, help_, samples)
    help_ = "Intervals whose end was postponed because a sink was full or not ready; no record is lost."
    yield _LOG.counter("postponed_intervals", help_, [("", usage.postponed)])
