"""Tests the state of clients, the throttle times that the demo reads, and the end of a run."""

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.proxy.cli.demo.measure import MeasurementError
from kafka_quota_proxy.proxy.cli.demo.runner import (
    MeasuredClient,
    fetch_text,
    throttle_time_ms,
    until_first_end,
)
from kafka_quota_proxy.proxy.cli.demo.workload import DemoError
from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports

METRICS = """\
# TYPE kafka_quota_proxy_throttle_seconds_total counter
kafka_quota_proxy_throttle_seconds_total{kind="produce",user="",client_id="demo-producer"} 1.25
kafka_quota_proxy_throttle_seconds_total{kind="fetch",user="",client_id="other"} 99.0
# TYPE kafka_quota_proxy_throttled_requests_total counter
kafka_quota_proxy_throttled_requests_total{kind="produce",user="",client_id="demo-producer"} 50.0
"""


async def test_clients_end_with_the_show_and_the_first_failure_ends_all() -> None:
    ended = []

    async def client() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("client")

    async def client_of_a_vanished_proxy() -> None:
        try:
            await client()
        finally:
            raise KafkaConnectionError("connection lost")

    async def vanished_proxy() -> None:
        raise DemoError("the proxy ended")

    async def lost() -> None:
        raise KafkaConnectionError("connection lost")

    async def show(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return 42.0

    assert await until_first_end(show(0), [client()]) == 42.0
    with pytest.raises(DemoError, match=r"^the proxy ended$"):
        await until_first_end(show(60), [client_of_a_vanished_proxy(), vanished_proxy()])
    assert ended == ["client"] * 2
    with pytest.raises(DemoError, match=r"a client failed: .*connection lost"):
        await until_first_end(show(60), [lost()])


@pytest.mark.parametrize(("share", "is_held"), [(1.0, True), (0.96, True), (0.94, False), (1.06, False)])
def test_rate_without_a_limit_does_not_count_towards_the_verdict(share: float, is_held: bool) -> None:
    client = MeasuredClient("producer", "demo-producer", 1_000, Shaping.PACED)
    for tick in range(300):
        client.flow.record(100, now_s=100 + tick / 100)
    with pytest.raises(MeasurementError):
        client.rate(now_s=103)
    client.limit(now_s=103)
    for tick in range(100):
        client.flow.record(round(100 * share), now_s=103 + tick / 10)

    outcome = client.outcome(now_s=113)

    assert outcome.unlimited_bytes_per_second == 10_000
    assert outcome.measured_bytes_per_second == pytest.approx(1_000 * share, rel=0.01)
    assert outcome.is_within_tolerance is is_held


def test_a_line_has_rate_quota_average_and_throttle_time_as_far_as_there_are_any() -> None:
    client = MeasuredClient("producer", "demo-producer", 1_024, Shaping.PACED)
    client.flow.record(3_072, now_s=100)
    assert client.line(now_s=100.5) == "producer 3.0 KiB/s without a limit"
    client.limit(now_s=101)
    client.throttle_time_ms = 12_345.6
    client.flow.record(1_024, now_s=101)

    assert client.line(now_s=101.5) == "producer 1.0 KiB/s of 1.0 KiB/s, throttled 12.3 s"
    for tick in range(20):
        client.flow.record(1_024, now_s=102 + tick)
    assert client.line(now_s=121.5).startswith("producer 1.0 KiB/s of 1.0 KiB/s, average 1.0 KiB/s (")


def test_the_throttle_time_of_a_client_is_read_in_milliseconds() -> None:
    assert throttle_time_ms(METRICS, client_id="demo-producer") == 1_250
    assert throttle_time_ms(METRICS, client_id="demo-consumer") == 0


def test_the_error_of_a_proxy_that_does_not_answer_has_its_url() -> None:
    url = f"http://127.0.0.1:{adjacent_ports(1)[0]}/metrics"

    with pytest.raises(DemoError, match=url):
        fetch_text(url)
