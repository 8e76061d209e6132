"""Reads what the process uses: CPU time, memory, file descriptors, and how late its event loop is."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import ProcessCollector

from kafka_quota_proxy.proxy.admin.metrics.exposition import PROXY, Family, labels
from kafka_quota_proxy.proxy.server.loop_lag import BOUNDS_NS, LoopLag

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
