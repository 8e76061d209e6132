"""The configuration that the demo writes, and how a run of clients and processes ends."""

import asyncio
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.proxy.cli.demo.errors import ClientError, DemoError, ProcessError
from kafka_quota_proxy.proxy.cli.demo.load import Options, Shape
from kafka_quota_proxy.proxy.cli.demo.stage import Outcome, proxy_config, while_all_is_well


@pytest.mark.parametrize("shape", list(Shape))
def test_the_proxys_file_is_valid_and_says_what_was_asked_for(tmp_path: Path, shape: Shape) -> None:
    options = Options(produce_rate=16_384, fetch_rate=5 * 1024 * 1024, seconds=15, shape=shape)
    path = tmp_path / "demo.yaml"
    path.write_text(proxy_config(options, proxy_port=19_092, admin_port=19_308, upstream="127.0.0.1:29092"))

    loaded = load(path)

    assert loaded.config.shaping is Shaping(shape.value)
    assert [
        (each.client_id, each.limits.get("producer_byte_rate"), each.limits.get("consumer_byte_rate"))
        for each in loaded.config.quotas
    ] == [
        ("demo-producer", 16_384, None),
        ("demo-consumer", None, 5 * 1024 * 1024),
    ]
    assert not loaded.warnings


async def test_the_shows_end_ends_the_clients() -> None:
    forever = asyncio.Event()
    ended = []

    async def client() -> None:
        try:
            await forever.wait()
        finally:
            ended.append("client")

    async def show() -> float:
        await asyncio.sleep(0)
        return 42.0

    assert await while_all_is_well(show(), [client()]) == 42.0
    assert ended == ["client"]


async def test_the_first_failure_ends_the_show_and_is_raised() -> None:
    async def vanished_proxy() -> None:
        raise ProcessError("the proxy ended")

    async def client() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ClientError("connection lost")

    async def show() -> float:
        await asyncio.Event().wait()
        return 0.0

    with pytest.raises(DemoError, match="the proxy ended"):
        await while_all_is_well(show(), [client(), vanished_proxy()])


@pytest.mark.parametrize(("measured", "verdict"), [(95.0, True), (94.9, False), (105.0, True), (105.1, False)])
def test_an_outcome_more_than_five_percent_off_is_not_held(measured: float, verdict: bool) -> None:
    outcome = Outcome(quota_bytes_per_second=100, measured_bytes_per_second=measured, throttle_time_ms=0)

    assert outcome.is_within_tolerance is verdict
