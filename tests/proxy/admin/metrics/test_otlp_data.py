"""Tests the conversion of metrics to OpenTelemetry's data, as a receiver decodes it."""

from collections.abc import Iterator
from math import isnan

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.proxy.admin.metrics.exposition import PROXY, Family, labels, write
from kafka_quota_proxy.proxy.admin.metrics.otlp_data import MAX_POINTS, OtlpSender, attributes
from tests.support.otlp_receiver import OtlpReceiver, receiving

NOW_NS = 1_800_000_000_000_000_000
STARTED_NS = NOW_NS - 60_000_000_000
HOSTILE = 'a"b\\n\n{c="d"},e=é'


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with receiving() as one:
        yield one


def send(receiver: OtlpReceiver, *families: Family) -> bool:
    sender = OtlpSender(receiver.endpoint, instance="host:9092", started_ns=STARTED_NS, timeout_s=5.0)
    is_sent = sender.send(families, now_ns=NOW_NS, rest=lambda: None)
    sender.close()
    return is_sent


def received(receiver: OtlpReceiver) -> list[Metric]:
    return [
        metric
        for request in receiver.requests
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]


def test_a_counter_is_a_cumulative_sum_since_the_start(receiver: OtlpReceiver) -> None:
    assert send(receiver, PROXY.counter("bytes", "Charged bytes.", [(labels(kind="produce", user=""), 2**53 + 1)]))

    (metric,) = received(receiver)
    (point,) = metric.sum.data_points
    assert receiver.paths == {"/v1/metrics"}
    assert (metric.name, metric.description, metric.unit) == ("kafka_quota_proxy_bytes_total", "Charged bytes.", "")
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert {one.key: one.value.string_value for one in point.attributes} == {"kind": "produce", "user": ""}
    assert point.as_int == 2**53 + 1
    assert (point.start_time_unix_nano, point.time_unix_nano) == (STARTED_NS, NOW_NS)


def test_a_histogram_has_the_counts_between_its_bounds(receiver: OtlpReceiver) -> None:
    samples: list[tuple[str, float]] = [
        (f"_bucket{labels(api=api, le=bound)}", count * factor)
        for api, factor in (("Fetch", 1), ("Produce", 2))
        for bound, count in (("0.5", 1), ("1.0", 1), ("+Inf", 4))
    ]
    for api, factor in (("Fetch", 1), ("Produce", 2)):
        samples += [(f"_count{labels(api=api)}", 4 * factor), (f"_sum{labels(api=api)}", 7.5 * factor)]

    send(receiver, Family("kafka_latency_seconds", "histogram", "", samples))

    (metric,) = received(receiver)
    fetch, produce = metric.histogram.data_points
    assert metric.histogram.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert [(one.key, one.value.string_value) for one in produce.attributes] == [("api", "Produce")]
    assert list(fetch.explicit_bounds) == [0.5, 1.0]
    assert (list(fetch.bucket_counts), fetch.count, fetch.sum) == ([1, 0, 3], 4, 7.5)
    assert (list(produce.bucket_counts), produce.count, produce.sum) == ([2, 0, 6], 8, 15.0)
    assert not fetch.HasField("max")


def test_labels_are_those_that_prometheus_reads() -> None:
    text = labels(user=HOSTILE, client_id="\\")
    exposition = b"".join(write([PROXY.gauge("x", "", [(text, 1)])], lambda: None)).decode()
    ((sample,),) = (family.samples for family in text_string_to_metric_families(exposition))

    assert attributes(text) == sample.labels == {"user": HOSTILE, "client_id": "\\"}


def test_many_points_are_sent_in_several_requests_with_what_the_environment_adds(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.name=other")
    count = 2 * MAX_POINTS + 1
    families = [PROXY.gauge("first", "", [("", 0.25)]), PROXY.gauge("age", "", [("", float("nan"))])]
    families.append(PROXY.gauge("second", "", [(labels(n=str(n)), n) for n in range(count)]))

    send(receiver, *families)

    first, age, *others = received(receiver)
    assert first.gauge.data_points[0].as_double == 0.25
    assert isnan(age.gauge.data_points[0].as_double)
    sizes = [
        sum(len(metric.gauge.data_points) for metric in request.resource_metrics[0].scope_metrics[0].metrics)
        for request in receiver.requests
    ]
    assert sizes == [MAX_POINTS, MAX_POINTS, 3]
    values = [point.as_int for metric in others for point in metric.gauge.data_points]
    assert values == list(range(count))
    resource = {one.key: one.value.string_value for one in receiver.requests[2].resource_metrics[0].resource.attributes}
    assert resource["service.name"] == "kafka-quota-proxy"
    assert resource["service.instance.id"] == "host:9092"
    assert resource["deployment.environment"] == "test"
    assert receiver.tokens == {"secret"}


def test_a_request_that_is_refused_ends_the_sending(receiver: OtlpReceiver) -> None:
    receiver.status = 400

    is_sent = send(receiver, PROXY.gauge("x", "", [(labels(n=str(n)), n) for n in range(MAX_POINTS + 1)]))

    assert not is_sent
    assert len(receiver.requests) == 1
