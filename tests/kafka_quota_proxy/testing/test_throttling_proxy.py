"""Tests the proxy that tests start, with a real client and the embedded broker."""

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from kafka_quota_proxy.testing import ControlError, StartError, ThrottlingProxy


@pytest.fixture(scope="module")
def running() -> Iterator[ThrottlingProxy]:
    with ThrottlingProxy(quotas=[{"client-id": "slow", "producer_byte_rate": 1_000, "shaping": "paced"}]) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: ThrottlingProxy) -> ThrottlingProxy:
    running.reset()
    return running


def produce(proxy: ThrottlingProxy, count: int, *, client_id: str = "app", size_bytes: int = 10) -> list[float]:
    """Produce records one by one. Return the times at which they were delivered, in seconds."""
    producer = confluent_kafka.Producer({"bootstrap.servers": proxy.bootstrap_servers, "client.id": client_id})
    times = [time.monotonic()]
    for _ in range(count):
        producer.produce("topic", bytes(size_bytes))
        assert producer.flush(20) == 0
        times.append(time.monotonic())
    return times


def test_next_responses_are_throttled(proxy: ThrottlingProxy) -> None:
    assert proxy.next(2, api="Produce", throttle_time_ms=300, client_id="app") > 0

    times = produce(proxy, 4)

    found = proxy.observed(client_id="app")
    assert [(one.api, one.throttle_time_ms, one.reason) for one in found] == [("Produce", 300, "testing")] * 2
    assert times[3] - times[0] >= 0.6
    assert times[4] - times[3] < 0.3
    proxy.reset()
    assert len(proxy.observed()) == 0


def test_limits_are_set_replaced_and_removed(proxy: ThrottlingProxy) -> None:
    proxy.limit(client_id="app", producer_byte_rate=1_000, shaping="paced")
    proxy.limit(client_id="other", producer_byte_rate="1KiB", shaping="paced")
    produce(proxy, 2, size_bytes=1_500)
    produce(proxy, 2, size_bytes=1_500, client_id="other")
    assert {one.client_id for one in proxy.observed()} == {"app", "other"}
    assert {one.reason for one in proxy.observed()} == {"quota"}

    proxy.limit(client_id="app")
    count = len(proxy.observed("app"))
    produce(proxy, 2, size_bytes=1_500)
    assert len(proxy.observed("app")) == count


def test_rules_of_the_start_hold_again_after_a_reset(proxy: ThrottlingProxy) -> None:
    produce(proxy, 2, size_bytes=1_500, client_id="slow")
    assert proxy.observed("slow").throttle_time_ms > 0
    proxy.limit(client_id="slow")
    proxy.reset()
    produce(proxy, 2, size_bytes=1_500, client_id="slow")
    assert proxy.observed("slow").throttle_time_ms > 0


def test_faults_are_named(proxy: ThrottlingProxy) -> None:
    with pytest.raises(ControlError, match="producer_byte_rat"):
        proxy.limit(client_id="app", producer_byte_rat=1)
    with pytest.raises(ControlError, match="api must be"):
        proxy.next(api="Produces", throttle_time_ms=1)
    with pytest.raises(RuntimeError, match="with block"):
        ThrottlingProxy().observed()
    with pytest.raises(StartError, match=r"the proxy ended(.|\n)*quotas\[0\]"), ThrottlingProxy(quotas=[{"user": 1}]):
        pass
