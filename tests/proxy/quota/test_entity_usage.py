"""Tests that the usage of two quota states of one broker is added up, without loss or double counts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Address, IpRule, Listener, ProxyConfig, QuotaRule, Shaping, UsageLog
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.open_connections import Identity
from kafka_quota_proxy.proxy.quota.rate import Rate
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables
from kafka_quota_proxy.proxy.usage.meter import Meter, MeteredBroker
from kafka_quota_proxy.proxy.usage.timeline import Timeline

NOW_MS = 86_400_000
LISTENER = Listener(
    name="clients", bind=Address(host="127.0.0.1", port=9092), upstream=Address(host="127.0.0.1", port=19092)
)
ETL = QuotaRule(client_id="etl", producer_byte_rate=1_000.0, connections=3)
CONFIG = ProxyConfig(
    listeners=(LISTENER,),
    quotas=(ETL, QuotaRule(user="alice", client_id=DEFAULT, producer_byte_rate=1_000.0)),
    ip_quotas=(IpRule(ip="10.0.0.1", connection_creation_rate=1.0),),
    max_throttle_time_ms=None,
    usage_log=UsageLog(proxy="one"),
)


def two(config: ProxyConfig = CONFIG) -> tuple[BrokerQuotas, BrokerQuotas]:
    rules = RuleTables(config)
    return BrokerQuotas(config, rules=rules), BrokerQuotas(config, rules=rules)


def produce(quotas: BrokerQuotas, client_id: str = "etl", *, user: str = "bob", now_ms: int = NOW_MS) -> Bucket:
    return quotas.bucket(QuotaKind.PRODUCE, principal=user, client_id=client_id, now_ms=now_ms)


@pytest.mark.parametrize("shaping", list(Shaping))
def test_client_waits_for_usage_of_both_brokers_quotas(shaping: Shaping) -> None:
    one, other = two(replace(CONFIG, shaping=shaping))
    alone = produce(BrokerQuotas(replace(CONFIG, shaping=shaping)))
    for quotas in (one, other):
        produce(quotas).charge(8_000, now_ms=NOW_MS)
    alone.charge(16_000, now_ms=NOW_MS)

    one.absorb(other, now_ms=NOW_MS)

    assert produce(one).charge(1, now_ms=NOW_MS + 100) == alone.charge(1, now_ms=NOW_MS + 100) > 0


@given(
    charges=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4_000), st.integers(0, 3_000)), max_size=30),
    after=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 3_000)), min_size=1, max_size=10),
)
def test_merged_rate_counts_as_one_rate_within_two_windows(
    charges: list[tuple[int, int, int]], after: list[tuple[int, int]]
) -> None:
    """The slots of two rates begin at different times, so a merged record may leave the window earlier or later."""
    one, other = Rate(samples=11, window_ms=1_000), Rate(samples=11, window_ms=1_000)
    recorded: list[tuple[int, int]] = []
    now_ms = NOW_MS
    for which, pause_ms, value in charges:
        now_ms += pause_ms
        (one, other)[which].record(value, now_ms=now_ms)
        recorded.append((now_ms, value))

    one.absorb(other, now_ms=now_ms)
    for pause_ms, value in after:
        now_ms += pause_ms
        one.record(value, now_ms=now_ms)
        recorded.append((now_ms, value))
        one.measure(now_ms=now_ms)

        surely = sum(value for at_ms, value in recorded if now_ms - at_ms < 10_000)
        at_most = sum(value for at_ms, value in recorded if now_ms - at_ms < 13_000)
        assert surely <= one.total <= at_most
        assert len(one.slots()) <= 12


def test_merge_moves_buckets_that_exist_once() -> None:
    one, other = two()
    theirs = produce(other, "only there")
    theirs.charge(500, now_ms=NOW_MS)
    of_alice = produce(other, "reader", user="alice")
    of_alice.charge(30_000, now_ms=NOW_MS)

    one.absorb(other, now_ms=NOW_MS)

    assert produce(one, "only there") is theirs
    assert not theirs.is_limited
    assert produce(one, "reader", user="alice").charge(1, now_ms=NOW_MS) > 0
    assert {bucket.tags: bucket.amount for bucket in one.produce} == {
        Tags("", "only there") if theirs.tags.user == "" else theirs.tags: 500,
        of_alice.tags: 30_001,
    }


def test_request_in_flight_charges_the_merged_bucket() -> None:
    one, other = two()
    own, theirs = produce(one), produce(other)
    other.hold(theirs)
    theirs.in_flight = 20_000

    one.absorb(other, now_ms=NOW_MS)
    wait_ms = theirs.charge(20_000, now_ms=NOW_MS)
    theirs.silence(wait_ms, now_ms=NOW_MS)
    theirs.throttled(wait_ms, now_ms=NOW_MS)
    one.release(theirs, now_ms=NOW_MS)

    assert wait_ms == 10_000
    assert (own.amount, own.requests, own.throttling.requests) == (20_000, 1, 1)
    assert own.silent_until_ms == NOW_MS + 10_000
    assert produce(one) is own
    assert not own.has_room(1, now_ms=NOW_MS)
    assert not theirs.has_room(1, now_ms=NOW_MS)


def test_throttling_of_both_brokers_is_since_the_later_history() -> None:
    one, other = two()
    for quotas, after_ms in ((one, 0), (other, 5_000)):
        produce(quotas).charge(1, now_ms=NOW_MS)
        produce(quotas).throttled(100, now_ms=NOW_MS + after_ms)

    one.absorb(other, now_ms=NOW_MS + 5_000)

    history = produce(one).throttling.history
    assert history is not None
    assert history.is_throttled(now_ms=NOW_MS + 5_050)
    assert history.since_ms == NOW_MS + 5_000


def test_waits_that_overlap_count_once_in_the_throttle_time() -> None:
    bucket = produce(BrokerQuotas(CONFIG))

    for after_ms, wait_ms in ((0, 100), (50, 100), (60, 20)):
        bucket.throttled(wait_ms, now_ms=NOW_MS + after_ms)

    assert (bucket.throttling.requests, bucket.throttling.time_ms) == (3, 150)


def counted(manager: ClientQuotaManager) -> int:
    return sum(bucket.amount for bucket in manager) + manager.departed_usage.amount


def test_usage_log_has_merged_usage_once() -> None:
    one, other = two()
    meter = Meter("one", Timeline(wall_ms=0, now_ms=NOW_MS))
    produce(one).charge(100, now_ms=NOW_MS)
    produce(other).charge(20, now_ms=NOW_MS)

    def logged(*brokers: BrokerQuotas) -> int:
        batches = list(meter.read([MeteredBroker(1, each, True) for each in brokers], (), wall_ms=1, now_ms=NOW_MS))
        return sum(used.amount for batch in batches if batch is not None for _, used in batch.records)

    assert logged(one, other) == 120
    produce(one).charge(3, now_ms=NOW_MS)
    produce(other).charge(4, now_ms=NOW_MS)
    produce(other, "only there").charge(5, now_ms=NOW_MS)

    one.absorb(other, now_ms=NOW_MS)

    assert counted(one.produce) == 132
    assert produce(one).used_s == pytest.approx(0.127)
    assert logged(one) == 12
    assert logged(one) == 0


def test_merged_buckets_without_a_place_share_one() -> None:
    one, other = two(replace(CONFIG, max_buckets=2))
    for quotas in (one, other):
        for name in ("a", "b"):
            bucket = produce(quotas, f"{name}{id(quotas)}")
            quotas.hold(bucket)
            bucket.charge(10, now_ms=NOW_MS)

    one.absorb(other, now_ms=NOW_MS)

    assert counted(one.produce) == 40
    assert len(one.produce) == 3


def test_open_connections_of_both_count_together() -> None:
    one, other = two()
    etl = Identity("bob", "etl")
    for quotas in (one, one, other):
        quotas.connections.enter(etl, quotas.connections.check(etl))

    one.absorb(other, now_ms=NOW_MS)

    assert one.connections.check(etl).exceeded is not None
    other.connections.leave(etl)
    assert one.connections.check(etl).open_now == 2
    one.connections.leave(etl)
    one.connections.leave(etl)
    assert one.connections.open_now() == {}


def test_connection_rates_of_both_count_together() -> None:
    one, other = two()
    here, there = one.arrivals.listener("here"), other.arrivals.listener("there")
    for listener in (here, there):
        for _ in range(6):
            listener.record(now_ms=NOW_MS)
            assert not listener.record_address("10.0.0.1", served_ms=NOW_MS, now_ms=NOW_MS)

    one.absorb(other, now_ms=NOW_MS)
    there.record(now_ms=NOW_MS)

    assert there.record_address("10.0.0.1", served_ms=NOW_MS, now_ms=NOW_MS) > 0
    assert one.arrivals.listener("there") is there
    assert (here.arrived, there.arrived) == (6, 7)
    assert one.arrivals.rate.total == 12  # the last connection was refused and uncharged


def test_merge_surpasses_the_generation_of_both() -> None:
    one, other = two()
    other.renew()
    before = {one.generation, other.generation}

    one.absorb(other, now_ms=NOW_MS)

    assert one.generation not in before
