"""Tests which buckets have time series of their own, and that no counter ever decreases."""

from math import isnan

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.admin.metrics.client_quotas import OTHER, Names, Row, read
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.client_quota_manager import EXPIRES_AFTER_MS
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals
from tests.support.rules_in_force import update

NOW_MS = 86_400_000
CONFIG = ProxyConfig(listeners=(), quotas=(QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0),))


def no_rest() -> None: ...


def charge(quotas: BrokerQuotas, client_id: str, amount: int, now_ms: int = NOW_MS) -> None:
    bucket = quotas.produce.bucket(user="ANONYMOUS", client_id=client_id, now_ms=now_ms)
    wait_ms = bucket.charge(amount, now_ms=now_ms)
    if wait_ms > 0:
        bucket.throttled(wait_ms, now_ms=now_ms)


def rows_of(*quotas: BrokerQuotas, now_ms: int = NOW_MS) -> list[Row]:
    return read([one.produce for one in quotas], now_ms=now_ms, rest=no_rest)


def test_a_bucket_has_a_row_once_it_is_charged_and_the_limit_of_now() -> None:
    quotas = BrokerQuotas(ProxyConfig(listeners=()))
    quotas.buckets(principal="ANONYMOUS", client_id="idle", now_ms=NOW_MS)
    assert rows_of(quotas) == []

    charge(quotas, "etl", 4_000)
    (row,) = rows_of(quotas)
    assert (row.limit, row.utilisation) == (None, None)
    assert isnan(row.throttle_time_ms)

    limited = BrokerQuotas(CONFIG)
    charge(limited, "etl", 4_000)
    update(limited, ProxyConfig(listeners=(), quotas=(QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0),)))
    (row,) = rows_of(limited)
    assert (row.limit, row.utilisation) == (500.0, 0.8)
    charge(limited, "etl", 1_000)
    (row,) = rows_of(limited)
    assert row.used_s == 4_000 / 1_000 + 1_000 / 500, "it does not fall when the limit changes"


def test_used_seconds_do_not_fall_when_one_of_two_brokers_evicts_its_bucket() -> None:
    quiet, busy = BrokerQuotas(CONFIG), BrokerQuotas(CONFIG)
    charge(quiet, "etl", 4_000)
    charge(busy, "etl", 12_000)
    names = Names()
    later_ms = NOW_MS + EXPIRES_AFTER_MS + 1

    own, _ = names.divide(rows_of(quiet, busy), no_rest)
    assert [row.used_s for row in own] == [16.0]

    charge(busy, "etl", 1_000, later_ms)
    quiet.expire(now_ms=later_ms)
    for _ in range(2):
        own, _ = names.divide(rows_of(quiet, busy, now_ms=later_ms), no_rest)
        # Prometheus would take a lower value for a restart, and count 13 s twice.
        assert [row.used_s for row in own] == [16.0]
    charge(busy, "etl", 1_000, later_ms)
    own, _ = names.divide(rows_of(quiet, busy, now_ms=later_ms), no_rest)
    assert [row.used_s for row in own] == [17.0]


def test_buckets_of_one_name_at_two_brokers_are_one_row() -> None:
    limits = QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0, controller_mutation_rate=10.0)
    brokers = [BrokerQuotas(ProxyConfig(listeners=(), quotas=(limits,))) for _ in range(2)]
    for quotas, size_bytes, partitions in zip(brokers, (4_000, 12_000), (150, 20), strict=True):
        charge(quotas, "etl", size_bytes)
        mutations = quotas.bucket(QuotaKind.MUTATION, principal="ANONYMOUS", client_id="etl", now_ms=NOW_MS)
        mutations.charge(partitions, now_ms=NOW_MS)

    (row,) = rows_of(*brokers)
    (of_mutations,) = read([one.manager(QuotaKind.MUTATION) for one in brokers], now_ms=NOW_MS, rest=no_rest)

    assert (row.usage.amount, row.usage.requests) == (16_000, 2)
    assert (row.rate, row.limit) == (1_600.0, 1_000.0)
    assert (row.utilisation, row.throttle_time_ms) == (1.2, 2_000.0)
    assert (of_mutations.tokens, of_mutations.rate, of_mutations.usage.amount) == (-40.0, 170 / 30, 170)


def test_a_bucket_named_other_is_summed_with_the_others() -> None:
    quotas = BrokerQuotas(
        ProxyConfig(listeners=(), quotas=(QuotaRule(user=DEFAULT, client_id=DEFAULT, producer_byte_rate=1e9),))
    )
    quotas.produce.bucket(user=OTHER.user, client_id=OTHER.client_id, now_ms=NOW_MS).charge(7, now_ms=NOW_MS)

    own, other = Names().divide(rows_of(quotas), no_rest)

    assert own == []
    assert other == UsageTotals(7, 1, 0, 0, 0)


def test_the_largest_buckets_have_their_own_series_while_they_live() -> None:
    quotas = BrokerQuotas(CONFIG)
    names = Names(most=1)
    for client_id, amount in (("small", 3), ("first", 10)):
        charge(quotas, client_id, amount)
    own, other = names.divide(rows_of(quotas), no_rest)
    assert [row.tags.client_id for row in own] == ["first"]
    assert other == UsageTotals(3, 1, 0, 0, 0)
    later_ms = NOW_MS + EXPIRES_AFTER_MS + 1
    charge(quotas, "second", 1_000, later_ms)

    own, other = names.divide(rows_of(quotas), no_rest)
    assert [row.tags.client_id for row in own] == ["first"]
    assert other == UsageTotals(1_003, 2, 0, 0, 0)

    quotas.expire(now_ms=later_ms)
    charge(quotas, "second", 5, later_ms)
    own, other = names.divide(rows_of(quotas), no_rest, gone=quotas.produce.departed_usage)
    # The first 1,000 bytes stay in the series where they were counted.
    assert [(row.tags.client_id, row.usage) for row in own] == [("second", UsageTotals(5, 1, 0, 0, 0))]
    assert other == UsageTotals(1_003, 2, 0, 0, 0)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["charge", "charge", "charge", "go", "scrape"])),
        max_size=40,
    ),
    most=st.integers(0, 4),
)
def test_no_counter_falls_and_their_sum_is_the_charge(steps: list[tuple[str, str]], most: int) -> None:
    """Some of the buckets come and go between two scrapes."""
    names = Names(most)
    used: dict[str, UsageTotals] = {}
    gone = ended = last_other = NO_USAGE
    last_own: dict[str, UsageTotals] = {}
    charged = 0

    for client_id, action in [*steps, ("a", "scrape")]:
        if action == "charge":
            used[client_id] = used.get(client_id, NO_USAGE).plus(UsageTotals(10, 1, 0, 0, 0))
            charged += 10
            continue
        if action == "go":
            gone = gone.plus(used.pop(client_id, NO_USAGE))
            continue
        own, other = names.divide(made(used), no_rest, gone=gone)

        assert len(own) <= most
        now_own = {row.tags.client_id: row.usage for row in own}
        for name, usage in last_own.items():
            if name in now_own:
                assert now_own[name].requests >= usage.requests
            else:
                assert name not in used
                ended = ended.plus(usage)
        assert (other or NO_USAGE).requests >= last_other.requests
        total = sum(usage.amount for usage in now_own.values()) + (other or NO_USAGE).amount + ended.amount
        assert total == charged
        last_own, last_other = now_own, other or NO_USAGE


def made(used: dict[str, UsageTotals]) -> list[Row]:
    return [
        Row(QuotaKind.PRODUCE, Tags("", client_id), usage, 0.0, None, 0.0, None, None)
        for client_id, usage in used.items()
    ]
