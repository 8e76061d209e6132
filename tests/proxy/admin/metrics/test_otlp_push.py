"""Tests how metrics are sent to an OpenTelemetry endpoint at regular intervals."""

import logging
import sys
import time
from collections.abc import Callable

import pytest

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig
from kafka_quota_proxy.config.otlp import Otlp
from kafka_quota_proxy.proxy.admin.metrics import otlp_push
from kafka_quota_proxy.proxy.admin.metrics.otlp_push import OtlpPush, instance_of
from kafka_quota_proxy.proxy.admin.metrics.registry import MetricRegistry
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.otlp_receiver import receiving
from tests.support.reloads import Reloads

LISTENER = Listener(
    name="clients", bind=Address(host="127.0.0.1", port=9092), upstream=Address(host="127.0.0.1", port=19_092)
)
CONFIG = ProxyConfig(listeners=(LISTENER,))


def push_to(endpoint: str, interval_ms: int = 1_000) -> OtlpPush:
    registry = MetricRegistry(Server(CONFIG), Reloads())
    return OtlpPush(Otlp(endpoint=endpoint, interval_ms=interval_ms), registry, instance=instance_of(CONFIG))


def wait_for(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_each_family_is_sent_at_the_start_and_after_each_interval() -> None:
    with receiving() as receiver, push_to(receiver.endpoint):
        wait_for(lambda: len(receiver.requests) >= 2)

    for request in receiver.requests[:2]:
        ((scope,),) = (resource.scope_metrics for resource in request.resource_metrics)
        names = {metric.name for metric in scope.metrics}
        assert {"process_cpu_seconds_total", "kafka_quota_proxy_event_loop_lag_seconds"} < names
    first, second = (request.resource_metrics[0].scope_metrics[0].metrics[0] for request in receiver.requests[:2])
    between_ns = second.gauge.data_points[0].time_unix_nano - first.gauge.data_points[0].time_unix_nano
    assert between_ns >= 1e9


def test_an_endpoint_that_is_away_is_logged_once_a_minute_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(otlp_push, "monotonic", lambda: clock[0])
    caplog.set_level(logging.INFO)
    with receiving() as receiver:
        receiver.status = 403
        with push_to(receiver.endpoint, interval_ms=3_600_000) as push:
            wait_for(lambda: len(caplog.records) == 2)
            for clock[0] in (1.0, 59.0, 60.0):
                push._push()
            receiver.status = 200
            push._push()
            push._push()

    failed = f"could not send metrics to {receiver.endpoint}: Failed to export metrics batch code: 403"
    assert [record.getMessage()[: len(failed)] for record in caplog.records[1:]] == [
        failed,
        failed,
        f"metrics are sent to {receiver.endpoint} again",
    ]


@pytest.mark.parametrize("delay_s", [0.0, 5.0])
def test_the_metrics_are_sent_once_more_at_the_end_for_two_seconds_at_most(delay_s: float) -> None:
    with receiving() as receiver:
        with push_to(receiver.endpoint, interval_ms=3_600_000):
            wait_for(lambda: len(receiver.requests) == 1)
            time.sleep(0.1)
            assert len(receiver.requests) == 1
            receiver.delay_s = delay_s
            began_s = time.monotonic()
        took_s = time.monotonic() - began_s

        if delay_s:
            assert 1.9 < took_s < 3.0
        else:
            assert len(receiver.requests) == 2


def test_an_endpoint_that_does_not_answer_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    with receiving() as receiver:
        closed = receiver.endpoint
    push = push_to(closed, interval_ms=1_500)
    began_s = time.monotonic()
    with push:
        assert time.monotonic() - began_s < 0.5
        wait_for(lambda: bool(caplog.records))
    assert time.monotonic() - began_s < 10

    (record,) = caplog.records
    assert "Connection" in record.getMessage()


def test_without_the_packages_the_start_fails_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kafka_quota_proxy.proxy.admin.metrics.otlp_data", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(StartError, match=r"pip install '.\[otlp\]'") as caught:
        push_to("http://127.0.0.1:4318")

    assert caught.value.location == ("otlp",)
