"""Tests the configuration that the demo writes, the throttle times that it reads, and the end of a run."""

import asyncio
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError

from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.proxy.cli.demo.display import BARS, Progress
from kafka_quota_proxy.proxy.cli.demo.measure import MeasurementError
from kafka_quota_proxy.proxy.cli.demo.processes import free_ports
from kafka_quota_proxy.proxy.cli.demo.runner import (
    MeasuredClient,
    Outcome,
    fetch_text,
    proxy_config,
    throttle_time_ms,
    until_first_end,
)
from kafka_quota_proxy.proxy.cli.demo.workload import DemoError, Options

METRICS = """\
# HELP kafka_quota_proxy_throttle_seconds_total Throttle time
# TYPE kafka_quota_proxy_throttle_seconds_total counter
kafka_quota_proxy_throttle_seconds_total{kind="produce",user="",client_id="demo-producer"} 1.25
kafka_quota_proxy_throttle_seconds_total{kind="fetch",user="",client_id="demo-producer"} 0.0
kafka_quota_proxy_throttle_seconds_total{kind="fetch",user="",client_id="other"} 99.0
# HELP kafka_quota_proxy_throttled_requests_total Throttled requests
# TYPE kafka_quota_proxy_throttled_requests_total counter
kafka_quota_proxy_throttled_requests_total{kind="produce",user="",client_id="demo-producer"} 50.0
"""


@pytest.mark.parametrize("shaping", list(Shaping))
def test_the_configuration_of_the_proxy_is_valid_and_has_the_options(tmp_path: Path, shaping: Shaping) -> None:
    options = Options(produce_rate=16_384, fetch_rate=5 * 1024 * 1024, seconds=15, shaping=shaping)
    path = tmp_path / "demo.yaml"
    path.write_text(proxy_config(options, proxy_port=19_092, admin_port=19_308, upstream="127.0.0.1:29092"))

    loaded = load(path)

    assert loaded.config.shaping is shaping
    assert [
        (each.client_id, each.limits.get("producer_byte_rate"), each.limits.get("consumer_byte_rate"))
        for each in loaded.config.quotas
    ] == [
        ("demo-producer", 16_384, None),
        ("demo-consumer", None, 5 * 1024 * 1024),
    ]
    assert not loaded.warnings


async def test_the_clients_end_with_the_show() -> None:
    ended = []

    async def client() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("client")

    async def show() -> float:
        await asyncio.sleep(0)
        return 42.0

    assert await until_first_end(show(), [client()]) == 42.0
    assert ended == ["client"]


async def test_the_first_failure_ends_the_show_and_is_raised() -> None:
    async def vanished_proxy() -> None:
        raise DemoError("the proxy ended")

    async def client() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KafkaConnectionError("connection lost")

    with pytest.raises(DemoError, match="the proxy ended"):
        await until_first_end(_endless_show(), [client(), vanished_proxy()])


async def test_the_error_of_a_client_is_an_error_of_the_demo() -> None:
    async def client() -> None:
        raise KafkaConnectionError("connection lost")

    with pytest.raises(DemoError, match=r"a client failed: .*connection lost"):
        await until_first_end(_endless_show(), [client()])


async def _endless_show() -> float:
    await asyncio.Event().wait()
    return 0.0


@pytest.mark.parametrize(
    ("measured", "verdict"), [(100.0, True), (95.0, True), (94.9, False), (105.0, True), (105.1, False), (0.0, False)]
)
def test_an_outcome_more_than_five_percent_off_is_not_held(measured: float, verdict: bool) -> None:
    outcome = Outcome(
        quota_bytes_per_second=100,
        measured_bytes_per_second=measured,
        throttle_time_ms=0,
        unlimited_bytes_per_second=measured,
    )

    assert outcome.is_within_tolerance is verdict


@pytest.mark.parametrize("share", [1.0, 0.9])
def test_rate_without_a_limit_does_not_count_towards_the_verdict(share: float) -> None:
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
    assert outcome.is_within_tolerance is (share == 1.0)


def test_history_has_the_rate_of_each_bar_from_the_beginning() -> None:
    client = MeasuredClient("producer", "demo-producer", 1_000, Shaping.PACED)
    client.flow.record(3_000, now_s=100)
    client.flow.record(600, now_s=101)

    view = client.view(Progress(elapsed_s=1.5, planned_s=BARS / 2, free_s=3), now_s=101.5)

    assert view.history == (6_000, 0, 1_200)
    assert not view.is_limited


def test_the_throttle_time_of_a_client_is_read_in_milliseconds() -> None:
    assert throttle_time_ms(METRICS, client_id="demo-producer") == 1_250


def test_a_client_without_series_was_not_throttled() -> None:
    assert throttle_time_ms(METRICS, client_id="demo-consumer") == 0


def test_the_error_of_a_proxy_that_does_not_answer_has_its_url() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}/metrics"

    with pytest.raises(DemoError, match=url):
        fetch_text(url)
