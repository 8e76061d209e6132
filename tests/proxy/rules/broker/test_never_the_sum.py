"""Tests that a client of a broker and a proxy with the same quota waits for the longer throttle time, not for both."""

from typing import NamedTuple

import pytest

from kafka_quota_proxy.config.model import QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager

KIB = 1 << 10
LIMIT = 10 << 20
SECONDS = 220


class Flow(NamedTuple):
    rate: float  # as a multiple of the limit
    waited_ms: int
    quiet: float  # the share of seconds with less than a quarter of the limit


def manager(shaping: Shaping, burst_ms: int) -> ClientQuotaManager:
    rules = [QuotaRule(client_id="etl", producer_byte_rate=LIMIT)]
    return ClientQuotaManager(QuotaKind.PRODUCE, rules, shaping=shaping, burst_ms=burst_ms)


def flow(*shapings: Shaping, request_bytes: int, is_held: bool = False, burst_ms: int = 1_000) -> Flow:
    """Return the flow of a client that always sends, except during throttle times.

    ``shapings`` has the broker's shaping and, if there is a proxy, the proxy's. If ``is_held``, the proxy also delays
    its responses.
    """
    managers = [manager(shaping, burst_ms) for shaping in shapings]
    now_ms = waited_ms = 0
    seconds = [0] * SECONDS
    while now_ms < SECONDS * 1_000:
        seconds[now_ms // 1_000] += request_bytes
        waits_ms = [
            one.record_and_get_throttle_time_ms(request_bytes, user="alice", client_id="etl", now_ms=now_ms)
            for one in managers
        ]
        wait_ms = max(waits_ms) + (waits_ms[-1] if is_held else 0)
        waited_ms += wait_ms
        now_ms += 1 + wait_ms
    quiet = sum(moved < LIMIT / 4 for moved in seconds) / SECONDS
    return Flow(sum(seconds) / LIMIT / SECONDS, waited_ms, quiet)


@pytest.mark.parametrize("request_kib", [64, 256, 1_024])
def test_sampled_quotas_of_proxy_and_broker_throttle_like_the_brokers_alone(request_kib: int) -> None:
    alone = flow(Shaping.SAMPLED, request_bytes=request_kib * KIB)

    assert flow(Shaping.SAMPLED, Shaping.SAMPLED, request_bytes=request_kib * KIB) == alone


@pytest.mark.parametrize("request_kib", [64, 1_024])
def test_paced_quotas_in_front_of_a_broker_are_as_fast_and_nearly_even(request_kib: int) -> None:
    alone = flow(Shaping.SAMPLED, request_bytes=request_kib * KIB)
    paced = flow(Shaping.SAMPLED, Shaping.PACED, request_bytes=request_kib * KIB)
    narrow = flow(Shaping.SAMPLED, Shaping.PACED, request_bytes=request_kib * KIB, burst_ms=100)

    assert alone.quiet > 0.2
    # The burst of a second recurs with the broker's windows, once in eleven seconds.
    assert paced.quiet < 0.1
    assert narrow.quiet == 0
    for one in (paced, narrow):
        assert one.rate == pytest.approx(1, abs=0.01)
        assert one.rate == pytest.approx(alone.rate, abs=0.02)


@pytest.mark.parametrize("request_kib", [64, 1_024])
def test_delay_in_front_of_a_broker_quota_costs_some_per_cent(request_kib: int) -> None:
    held = flow(Shaping.SAMPLED, Shaping.SAMPLED, request_bytes=request_kib * KIB, is_held=True)

    assert 0.94 < held.rate < 0.98
