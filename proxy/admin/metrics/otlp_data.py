"""Converts the metrics to OpenTelemetry's data model, and sends them by OTLP over HTTP with OpenTelemetry's exporter.

A metric keeps its name and its labels. Counters become cumulative sums, which began when the proxy started.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, cast

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, Rest, paced
from kafka_quota_proxy.proxy.runtime.build import installed_version

# The exporter turns the points of one request into bytes without a pause. So many take about as long as a scrape works
# between two pauses.
MAX_POINTS: Final = 200

_NAME: Final = "kafka-quota-proxy"
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE

_Points = list[NumberDataPoint] | list[HistogramDataPoint]


class OtlpSender:
    """Sends metrics to one OTLP endpoint.

    Args:
        endpoint: The base URL of the endpoint.
        instance: The name of this proxy, unique among all proxies.
        started_ns: The Unix time at which the proxy started, in ns.
        timeout_s: How long one request may take, including its repetitions.
    """

    def __init__(self, endpoint: str, *, instance: str, started_ns: int, timeout_s: float) -> None:
        self._exporter = OTLPMetricExporter(f"{endpoint}/v1/metrics", timeout=timeout_s, compression=Compression.Gzip)
        self._started_ns = started_ns
        version = installed_version() or "unknown"
        # Variables such as OTEL_RESOURCE_ATTRIBUTES add to these attributes.
        self._resource = Resource.create(
            {"service.name": _NAME, "service.version": version, "service.instance.id": instance}
        )
        self._scope = InstrumentationScope(_NAME, version)

    def send(self, families: Iterable[Family], *, now_ns: int, rest: Rest) -> bool:
        """Send all metrics, in several requests if there are many. Return False as soon as a request fails."""
        for data in self.requests(families, now_ns=now_ns, rest=rest):
            if self._exporter.export(data) is not MetricExportResult.SUCCESS:
                return False
            rest()
        return True

    def close(self) -> None:
        """End a request that is being repeated, and close the connection."""
        self._exporter.shutdown()

    def requests(self, families: Iterable[Family], *, now_ns: int, rest: Rest) -> Iterator[MetricsData]:
        """Yield the metrics in requests of at most ``MAX_POINTS`` data points. ``now_ns`` is the Unix time in ns."""
        metrics: list[Metric] = []
        size = 0
        for family in families:
            points = self._points(family, now_ns, rest)
            while some := list(islice(points, MAX_POINTS - size)):
                metrics.append(_metric(family, cast("_Points", some)))
                size += len(some)
                if size == MAX_POINTS:
                    yield self._data(metrics)
                    metrics, size = [], 0
        if metrics:
            yield self._data(metrics)

    def _data(self, metrics: list[Metric]) -> MetricsData:
        scope = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        return MetricsData([ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")])

    def _points(
        self, family: Family, now_ns: int, rest: Rest
    ) -> Iterator[NumberDataPoint] | Iterator[HistogramDataPoint]:
        if family.type == "histogram":
            return self._histogram_points(family, now_ns)
        started_ns = self._started_ns if family.type == "counter" else 0
        return (
            NumberDataPoint(attributes(text), started_ns, now_ns, value) for text, value in paced(family.samples, rest)
        )

    def _histogram_points(self, family: Family, now_ns: int) -> Iterator[HistogramDataPoint]:
        """Yield a point for each set of labels. Its samples are those of all bounds, ``_count`` and ``_sum``."""
        buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        sums: dict[tuple[tuple[str, str], ...], float] = {}
        for text, value in family.samples:
            suffix, _, _ = text.partition("{")
            labels = attributes(text)
            bound = labels.pop("le", "")
            if suffix == "_bucket":
                buckets.setdefault((*labels.items(),), []).append((float(bound), value))
            elif suffix == "_sum":
                sums[*labels.items(),] = value
        for key, up_to in buckets.items():
            counts = [count for _, count in up_to]
            yield HistogramDataPoint(
                attributes=dict(key),
                start_time_unix_nano=self._started_ns,
                time_unix_nano=now_ns,
                count=int(counts[-1]),
                sum=sums[key],
                bucket_counts=[int(count - before) for before, count in zip([0, *counts], counts, strict=False)],
                explicit_bounds=[bound for bound, _ in up_to[:-1]],  # the last one is infinite
                min=cast("float", None),  # not measured
                max=cast("float", None),
            )


def attributes(text: str) -> dict[str, str]:
    """Return the labels of a sample, which are written as ``exposition.labels`` writes them."""
    return {name: _unescaped(value) for name, value in _LABEL.findall(text)}


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value) if "\\" in value else value


def _metric(family: Family, points: _Points) -> Metric:
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(cast("list[HistogramDataPoint]", points), _CUMULATIVE)
    elif family.type == "counter":
        data = Sum(cast("list[NumberDataPoint]", points), _CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(cast("list[NumberDataPoint]", points))
    return Metric(name=family.name, description=family.help, unit="", data=data)
