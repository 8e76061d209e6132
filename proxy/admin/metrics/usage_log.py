"""The metrics of the usage log: whether it is written, and what it is behind."""

from collections.abc import Callable, Iterator
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, labels
from kafka_quota_proxy.proxy.usage.log import UsageLogger
from kafka_quota_proxy.proxy.usage.sink import Sink

_PREFIX: Final = "kafka_quota_proxy_usage_log"

# name, type, what it means, how it is read
_OF_SINKS: Final[tuple[tuple[str, str, str, Callable[[Sink], float]], ...]] = (
    ("records_total", "counter", "Records that were written.", lambda sink: sink.written),
    ("dropped_records_total", "counter", "Records that are lost: a stop did not wait for them.",
     lambda sink: sink.dropped),
    ("queued_records", "gauge", "Records that wait to be written.", lambda sink: sink.queued),
    ("failures_total", "counter", "Attempts to write that failed; each is repeated.", lambda sink: sink.failures),
    ("last_write_successful", "gauge", "Whether what was tried last worked.", lambda sink: not sink.is_failing),
    ("last_write_timestamp_seconds", "gauge", "When records were written last, Unix time; 0: none were yet.",
     lambda sink: sink.last_write_s),
)  # fmt: skip


def families(usage: UsageLogger | None) -> Iterator[Family]:
    """Return them; nothing where there is no usage log."""
    if usage is None:
        return
    for name, kind, help_, read in _OF_SINKS:
        samples = [(labels(sink=sink.name), float(read(sink))) for sink in usage.sinks]
        yield Family(f"{_PREFIX}_{name}", kind, help_, samples)
    help_ = "Ends of intervals that were put off because a sink was full or not ready; nothing is lost by that."
    yield Family(f"{_PREFIX}_postponed_intervals_total", "counter", help_, [("", usage.postponed)])
