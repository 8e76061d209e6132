"""Tests more names than a table has places: which buckets are evicted, and the cost of a flood of names."""

from dataclasses import dataclass, field, replace
from time import process_time
from tracemalloc import get_traced_memory, start, stop

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import EXPIRES_AFTER_MS, ClientQuotaManager
from kafka_quota_proxy.proxy.quota.rule_tables import MAX_NAME_LENGTH
from kafka_quota_proxy.proxy.quota.shared_buckets import SHARED
from tests.support.rules_in_force import update

LIMIT = 1_000.0
WINDOW_MS = 11_000
FULL = 10_000  # bytes that the limit allows in a window
A_DEFAULT = QuotaRule(client_id=DEFAULT, producer_byte_rate=LIMIT)


def quotas_of(*rules: QuotaRule, most: int, shaping: Shaping = Shaping.SAMPLED) -> BrokerQuotas:
    return BrokerQuotas(
        ProxyConfig(
            listeners=(), quotas=rules or (A_DEFAULT,), max_buckets=most, shaping=shaping, max_throttle_time_ms=None
        )
    )


@dataclass
class OneOffClients:
    """Clients that open a connection for each request and close it after the request."""

    quotas: BrokerQuotas
    buckets: dict[str, Bucket] = field(default_factory=dict)

    def charge(self, client_id: str, amount: int, now_ms: int, *, user: str = "ANONYMOUS") -> int:
        bucket = self.quotas.bucket(QuotaKind.PRODUCE, principal=user, client_id=client_id, now_ms=now_ms)
        self.quotas.hold(bucket)
        wait_ms = bucket.charge(amount, now_ms=now_ms)
        self.quotas.release(bucket, now_ms=now_ms)
        self.buckets[client_id] = bucket
        return wait_ms


STEPS = st.lists(
    st.tuples(
        st.sampled_from([f"client-{n}" for n in range(12)]),
        st.sampled_from([1, 500, 5_000, FULL, FULL + 1, 40_000]),
        st.one_of(st.just(0), st.integers(0, 3_000), st.integers(0, 15_000)),
    ),
    max_size=60,
)


@given(most=st.integers(2, 5), steps=STEPS, shaping=st.sampled_from(Shaping))
def test_no_debt_is_lost_while_indebted_names_fit_the_table(
    most: int, steps: list[tuple[str, int, int]], shaping: Shaping
) -> None:
    """Waits are compared with those of an unbounded table, from which the same buckets are removed."""
    clients = OneOffClients(quotas_of(most=most, shaping=shaping))
    unbounded = ClientQuotaManager(QuotaKind.PRODUCE, [A_DEFAULT], shaping=shaping, max_buckets=1_000_000)
    owes_until_ms: dict[str, float] = {}  # when usage no longer counts
    now_ms = 86_400_000

    for name, amount, pause_ms in steps:
        now_ms += pause_ms
        owing = [one for one, until_ms in owes_until_ms.items() if until_ms > now_ms]
        if name not in owing and len(owing) >= most - 1:
            amount = 1
        known = clients.buckets.get(name)
        wait_ms = clients.charge(name, amount, now_ms)
        if known is not clients.buckets[name]:
            assert name not in owing
            for mirror in unbounded:
                if mirror.tags.client_id == name:
                    unbounded._buckets.remove(mirror)
        mirrored_ms = unbounded.record_and_get_throttle_time_ms(amount, user="x", client_id=name, now_ms=now_ms)
        assert wait_ms == mirrored_ms
        owes_until_ms[name] = clients.buckets[name].owes_until_ms(now_ms=now_ms)
        assert len(clients.quotas.produce) <= most
    assert clients.quotas.produce.overflows == 0


@pytest.mark.parametrize("shaping", Shaping)
def test_flood_of_names_evicts_no_debt(shaping: Shaping) -> None:
    clients = OneOffClients(quotas_of(most=100, shaping=shaping))
    alone = ClientQuotaManager(QuotaKind.PRODUCE, [A_DEFAULT], shaping=shaping)
    charge_alone = alone.record_and_get_throttle_time_ms

    assert clients.charge("debtor", 15_000, 0) == charge_alone(15_000, user="u", client_id="debtor", now_ms=0)
    for number in range(2_000):
        clients.charge(f"flood-{number}", 100, number // 2)

    assert clients.charge("debtor", 1, 1_000) == charge_alone(1, user="u", client_id="debtor", now_ms=1_000) > 0
    assert len(clients.quotas.produce) == 100


# -- all buckets owe --


def fill(clients: OneOffClients, most: int, *, now_ms: int = 0) -> None:
    for number in range(most):
        assert clients.charge(f"debtor-{number}", FULL + 1, now_ms) > 0


def test_new_names_share_one_quota_while_all_owe() -> None:
    clients = OneOffClients(quotas_of(most=10))
    fill(clients, 10)

    waits_ms = [clients.charge(f"new-{number}", FULL // 100, 0) for number in range(101)]

    assert waits_ms == [0] * 100 + [100]
    assert len({id(clients.buckets[f"new-{number}"]) for number in range(101)}) == 1
    assert clients.buckets["new-0"].tags == ("", SHARED)
    assert clients.quotas.produce.overflows == 101
    assert clients.charge("debtor-3", 1, 0) > 0


def test_each_rule_has_its_own_shared_bucket() -> None:
    for user, client_id, tags in [
        (None, DEFAULT, ("", SHARED)),
        (DEFAULT, None, (SHARED, "")),
        (DEFAULT, DEFAULT, (SHARED, SHARED)),
        ("alice", DEFAULT, ("alice", SHARED)),
        (DEFAULT, "etl", (SHARED, "etl")),
    ]:
        rule = QuotaRule(user=user, client_id=client_id, producer_byte_rate=5.0)
        clients = OneOffClients(
            quotas_of(rule, QuotaRule(user="bob", client_id=DEFAULT, producer_byte_rate=LIMIT), most=3)
        )
        for number in range(3):
            clients.charge(f"debtor-{number}", FULL + 1, 0, user="bob")

        clients.charge("etl", 1, 0, user="alice")

        bucket = clients.buckets["etl"]
        assert bucket.tags == tags, (user, client_id, tags)
        assert bucket.limit == 5.0, (user, client_id, tags)
        assert bucket in list(clients.quotas.produce), (user, client_id, tags)


def test_unlimited_names_share_an_unlimited_bucket() -> None:
    pairs = QuotaRule(user=DEFAULT, client_id=DEFAULT, producer_byte_rate=LIMIT)
    config = ProxyConfig(listeners=(), quotas=(pairs,), max_buckets=2)
    quotas = BrokerQuotas(replace(config, principals=replace(config.principals, exempt=frozenset({"admin"}))))
    clients = OneOffClients(quotas)
    fill(clients, 2)

    assert clients.charge("limited", FULL + 1, 0) > 0
    assert clients.charge("unlimited", 2**40, 0, user="admin") == 0

    assert clients.buckets["unlimited"].tags == clients.buckets["limited"].tags == (SHARED, SHARED)
    assert not clients.buckets["unlimited"].is_limited
    assert clients.buckets["limited"].is_limited


def test_named_bucket_never_shares_and_is_never_evicted() -> None:
    etl = QuotaRule(client_id="etl", producer_byte_rate=LIMIT)
    clients = OneOffClients(quotas_of(A_DEFAULT, etl, most=10))
    assert clients.charge("etl", 9_000, 0) == 0  # 9,000 bytes are within its quota
    for number in range(1_000):
        clients.charge(f"flood-{number}", 100, 0)
    fill(clients, 10)

    assert clients.charge("etl", 2_000, 0) == 1_000
    assert clients.buckets["etl"].tags == ("", "etl")
    assert len(clients.quotas.produce) == 11


def test_sharing_ends_with_a_new_generation_when_there_is_room() -> None:
    clients = OneOffClients(quotas_of(most=2))
    fill(clients, 2)
    clients.charge("new", 1, 0)
    generation = clients.quotas.generation

    clients.charge("new", 1, WINDOW_MS - 1)
    assert clients.buckets["new"].tags.client_id == SHARED
    assert clients.quotas.generation == generation
    clients.charge("new", 1, 2 * WINDOW_MS)
    assert clients.buckets["new"].tags.client_id == "new"
    assert clients.quotas.generation == generation + 1


def test_sharing_lasts_for_a_second_at_least() -> None:
    """At the end of sharing, all connections look up their buckets again. That must be rare."""
    clients = OneOffClients(quotas_of(most=1))
    held = clients.quotas.bucket(QuotaKind.PRODUCE, principal="u", client_id="held", now_ms=0)
    clients.quotas.hold(held)
    clients.charge("new", 1, 0)
    clients.quotas.release(held, now_ms=0)
    generation = clients.quotas.generation

    for now_ms in range(0, 1_000, 100):
        clients.charge("new", 1, now_ms)
    assert clients.quotas.generation == generation
    clients.charge("new", 1, 1_000)
    assert clients.quotas.generation == generation + 1


def test_expiry_ends_sharing() -> None:
    clients = OneOffClients(quotas_of(most=2))
    fill(clients, 2)
    clients.charge("new", 1, 0)
    generation = clients.quotas.generation

    clients.quotas.expire(now_ms=WINDOW_MS - 1)
    assert clients.quotas.generation == generation
    clients.quotas.expire(now_ms=2 * WINDOW_MS)
    assert clients.quotas.generation == generation + 1


def test_shared_bucket_expires_when_it_is_unused() -> None:
    clients = OneOffClients(quotas_of(most=2))
    fill(clients, 2)
    clients.charge("new", FULL + 1, 0)
    clients.quotas.expire(now_ms=2_000)

    assert clients.charge("another", 1, 2_000) > 0  # the clients that shared this bucket before left a debt
    clients.quotas.expire(now_ms=2_000 + EXPIRES_AFTER_MS)
    assert [bucket.tags.client_id for bucket in clients.quotas.produce] == [SHARED]
    clients.quotas.expire(now_ms=2_001 + EXPIRES_AFTER_MS)
    assert list(clients.quotas.produce) == []


# -- reloads --


def test_lower_limit_protects_new_debts_from_eviction() -> None:
    """A bucket takes its new limit when it is next looked up. Its usage must not be lost before that."""
    clients = OneOffClients(quotas_of(most=2))
    clients.charge("a", 5_000, 0)
    clients.charge("b", 5_000, 0)

    low = replace(A_DEFAULT, limits={**A_DEFAULT.limits, "producer_byte_rate": 100.0})
    update(clients.quotas, ProxyConfig(listeners=(), quotas=(low,), max_buckets=2, max_throttle_time_ms=None))
    clients.charge("c", 1, 1)

    assert clients.buckets["c"].tags.client_id == SHARED
    assert clients.charge("a", 1, 1) == 40_009


def test_bound_follows_a_reload() -> None:
    clients = OneOffClients(quotas_of(most=5))
    for number in range(5):
        clients.charge(f"client-{number}", 1, 0)

    update(clients.quotas, ProxyConfig(listeners=(), quotas=(A_DEFAULT,), max_buckets=2))
    for number in range(5, 12):
        clients.charge(f"client-{number}", 1, WINDOW_MS)

    assert len(clients.quotas.produce) == 2


# -- long names --


def test_long_name_has_its_own_bucket_under_a_short_name() -> None:
    quotas = quotas_of(most=10)
    clients = OneOffClients(quotas)
    one, other = "x" * 32_766 + "1", "x" * 32_766 + "2"

    assert clients.charge(one, FULL + 1, 0) > 0
    assert clients.charge(other, FULL, 0) == 0
    assert clients.charge(one, 1, 0) > 0

    assert all(len(bucket.tags.client_id) <= MAX_NAME_LENGTH for bucket in quotas.produce)
    assert all(len(client_id) <= MAX_NAME_LENGTH for _, client_id in quotas.produce._resolved)


# -- costs --


def _flood(names: int, most: int) -> tuple[float, float]:
    """Charge new names. Return the CPU time of each in microseconds, and the memory in MB after the flood."""
    clients = OneOffClients(quotas_of(most=most))
    begun_s = process_time()
    for number in range(names):
        clients.charge(f"client-{number}", 100, number // 100)
        clients.buckets.clear()
    cost_us = (process_time() - begun_s) / names * 1e6
    assert len(clients.quotas.produce) == most
    return cost_us, get_traced_memory()[0] / 1e6


def test_memory_depends_on_the_bound_not_on_the_names() -> None:
    start()
    try:
        _, few_mb = _flood(2_000, most=1_000)
        _, many_mb = _flood(6_000, most=1_000)
    finally:
        stop()

    # The cache of look-ups may still have up to a thousand evicted buckets.
    assert few_mb < 3
    assert many_mb < 3
