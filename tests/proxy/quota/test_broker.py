"""Tests the quotas of one broker: all kinds, folded and exempt principals, and reloads."""

import time
from dataclasses import replace

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Address, KafkaSettings, Listener, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.principals import ANONYMOUS, Fold, Principals
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.quota.broker import MAX_NEWLY_UNLIMITED, BrokerQuotas, PrincipalRules
from kafka_quota_proxy.proxy.quota.client_quota_manager import EXPIRES_AFTER_MS
from tests.support.rules_in_force import update

LISTENER = Listener(
    name="clients", bind=Address(host="127.0.0.1", port=9092), upstream=Address(host="127.0.0.1", port=19092)
)
ALICE = QuotaRule(user="alice", producer_byte_rate=1_000.0, consumer_byte_rate=2_000.0)
BYTE_RATES = (QuotaKind.PRODUCE, QuotaKind.FETCH)
CONFIG = ProxyConfig(listeners=(LISTENER,), quotas=(ALICE,), max_throttle_time_ms=None)


def with_principals(**principals: object) -> ProxyConfig:
    return replace(CONFIG, principals=replace(Principals(), **principals))  # type: ignore[arg-type]


def test_request_percentage_is_recorded_in_nanoseconds() -> None:
    rule = QuotaRule(user="alice", request_percentage=50.0, request_rate=20.0, controller_mutation_rate=0.5)
    quotas = BrokerQuotas(replace(CONFIG, quotas=(rule,)))

    buckets = {one.kind: one for one in quotas.buckets(principal="alice", client_id="etl", now_ms=0)}

    assert buckets[QuotaKind.REQUEST].limit == 500_000_000.0  # half a second of one thread in each second
    assert buckets[QuotaKind.REQUEST_RATE].limit == 20.0
    assert buckets[QuotaKind.MUTATION].limit == 0.5
    assert [quotas.manager(kind).limit_of(buckets[kind]) for kind in BUCKET_KINDS] == [None, None, 50.0, 20.0, 0.5]
    assert [quotas.limits(kind) for kind in BUCKET_KINDS] == [False, False, True, True, True]
    # 5.4 s of one thread in 10 s are 54 %, which gives a wait of 0.8 s. 6 s would give 2 s, cut to a window of 1 s.
    assert buckets[QuotaKind.REQUEST].charge(5_400_000_000, now_ms=0) == 800
    assert buckets[QuotaKind.REQUEST].charge(600_000_000, now_ms=0) == 1_000


def test_mutations_are_always_paced_over_all_windows() -> None:
    rule = QuotaRule(user="alice", controller_mutation_rate=10.0, shaping=Shaping.SAMPLED)
    kafka = KafkaSettings(controller_quota_window_num=10, controller_quota_window_size_seconds=2)
    quotas = BrokerQuotas(replace(CONFIG, quotas=(rule,), kafka=kafka, burst_ms=1), shaping=Shaping.SAMPLED)

    bucket = quotas.bucket(QuotaKind.MUTATION, principal="alice", client_id="etl", now_ms=0)

    assert bucket.shaping is Shaping.PACED
    assert bucket.charge(200, now_ms=0) == 0
    assert bucket.charge(10, now_ms=0) == 1_000
    update(quotas, replace(CONFIG, quotas=(rule,), kafka=replace(kafka, controller_quota_window_num=5)))
    quotas.bucket(QuotaKind.MUTATION, principal="alice", client_id="etl", now_ms=0)
    assert bucket.charge(0, now_ms=60_000) == 0
    assert bucket.charge(110, now_ms=60_000) == 1_000


def test_listener_shaping_overrides_the_global_one() -> None:
    quotas = BrokerQuotas(CONFIG, shaping=Shaping.PACED)
    before = [bucket.shaping for bucket in quotas.buckets(principal="alice", client_id="etl", now_ms=0)][:2]

    update(quotas, CONFIG)
    without = [bucket.shaping for bucket in quotas.buckets(principal="alice", client_id="etl", now_ms=0)][:2]
    update(quotas, replace(CONFIG, shaping=Shaping.PACED), shaping=Shaping.SAMPLED)
    with_another = [bucket.shaping for bucket in quotas.buckets(principal="alice", client_id="etl", now_ms=0)][:2]

    assert before == [Shaping.PACED] * 2
    assert without == [Shaping.SAMPLED] * 2
    assert with_another == [Shaping.SAMPLED] * 2


def test_a_static_default_is_a_rule_of_level_8() -> None:
    for kind in BYTE_RATES:
        config = replace(CONFIG, kafka=KafkaSettings(quota_producer_default=700, quota_consumer_default=700))

        bucket = BrokerQuotas(config).buckets(principal="bob", client_id="etl", now_ms=0)[kind is QuotaKind.FETCH]

        assert bucket.limit == 700.0, kind
        assert bucket.level is not None, kind
        assert bucket.level.number == 8, kind
        assert bucket.rule is not None, kind
        assert bucket.rule.source == f"quota.{'producer' if kind is QuotaKind.PRODUCE else 'consumer'}.default", kind
        assert bucket.tags == ("", "etl"), kind


def test_first_fold_that_matches_the_whole_name_wins() -> None:
    rules = PrincipalRules(
        Principals(
            fold=(
                Fold(match=r"app-([a-z]+)-[0-9a-f]+", to=r"app-\1"),
                Fold(match=r"app-.*", to="other"),
                Fold(match=r"x", to="never"),
            )
        )
    )

    assert rules.charged_user("app-etl-09af") == ("app-etl", False)
    assert rules.charged_user("app-etl-09af!") == ("other", False)
    assert rules.charged_user("an app-etl-09af") == ("an app-etl-09af", False)
    assert rules.charged_user("xy") == ("xy", False)


def test_fold_of_a_long_name_is_fast() -> None:
    rules = PrincipalRules(Principals(fold=(Fold(match=r"(a+)+", to="a"), Fold(match=r"a.*!", to="other"))))
    begun_s = time.thread_time()

    for name in ("a" * 27 + "!", "a" * 4_000 + "!"):
        assert rules.charged_user(name) == ("other", False)

    assert time.thread_time() - begun_s < 0.5  # with re, the first takes 4 s and the second never ends


@pytest.mark.parametrize("exempt", ["admin-7", "admin"], ids=["by its own name", "by the name it is folded to"])
def test_exempt_principal_is_measured_but_not_limited(exempt: str) -> None:
    everyone = QuotaRule(client_id=DEFAULT, producer_byte_rate=1.0, consumer_byte_rate=1.0)
    config = with_principals(exempt=frozenset({exempt}), fold=(Fold(match="admin-.*", to="admin"),))
    quotas = BrokerQuotas(replace(config, quotas=(everyone,)))

    buckets = quotas.buckets(principal="admin-7", client_id="etl", now_ms=0)

    for bucket in buckets:
        assert bucket.charge(10**9, now_ms=0) == 0
        assert bucket.tags == ("admin-7", "etl")
    assert quotas.buckets(principal="bob", client_id="etl", now_ms=0)[0].is_limited


def test_listed_principals_are_brokers() -> None:
    quotas = BrokerQuotas(with_principals(brokers=frozenset({"broker1"})))

    assert quotas.is_broker("broker1")
    assert not quotas.is_broker("broker")
    assert not BrokerQuotas(CONFIG).is_broker(ANONYMOUS)


def test_update_starts_a_generation_and_keeps_usage() -> None:
    quotas = BrokerQuotas(CONFIG)
    before = quotas.buckets(principal="alice", client_id="etl", now_ms=0)
    for bucket in before:
        bucket.charge(10_000, now_ms=0)
    generation = quotas.generation

    halved = QuotaRule(user="alice", producer_byte_rate=500.0, consumer_byte_rate=500.0)
    update(quotas, replace(CONFIG, quotas=(halved,)))

    assert quotas.generation != generation
    after = quotas.buckets(principal="alice", client_id="etl", now_ms=0)
    assert all(old is new for old, new in zip(before, after, strict=True))
    assert [bucket.charge(0, now_ms=0) for bucket in after] == [10_000, 10_000, 0, 0, 0]


def test_update_applies_burst_and_max_throttle_time() -> None:
    quotas = BrokerQuotas(replace(CONFIG, shaping=Shaping.PACED))
    bucket, *_ = quotas.buckets(principal="alice", client_id="etl", now_ms=0)

    update(quotas, replace(CONFIG, shaping=Shaping.PACED, burst_ms=200, max_throttle_time_ms=3_000))
    quotas.buckets(principal="alice", client_id="etl", now_ms=0)

    assert bucket.max_fetch_bytes == 200
    assert bucket.max_throttle_time_ms == 3_000


def test_update_replaces_principal_rules() -> None:
    quotas = BrokerQuotas(with_principals(exempt=frozenset({"alice"}), brokers=frozenset({"broker1"})))
    exempt, *_ = quotas.buckets(principal="alice", client_id="etl", now_ms=0)

    update(quotas, with_principals(brokers=frozenset({"broker2"}), fold=(Fold(match="a.*", to="letter"),)))
    charged, *_ = quotas.buckets(principal="alice", client_id="etl", now_ms=0)

    assert not exempt.is_limited
    assert charged.tags.user == "letter"
    assert (quotas.is_broker("broker1"), quotas.is_broker("broker2")) == (False, True)


def test_expiry_starts_a_generation_in_the_slice_that_removed_buckets() -> None:
    quotas = BrokerQuotas(replace(CONFIG, quotas=(QuotaRule(user=DEFAULT, producer_byte_rate=1.0),)))
    for number in range(1_001):
        for bucket in quotas.buckets(principal=f"user-{number}", client_id="etl", now_ms=0):
            if number != 1_000:
                bucket.charge(1, now_ms=10)

    generations = [quotas.generation for _ in quotas.expire_slices(now_ms=EXPIRES_AFTER_MS + 1)]

    assert [later - generations[0] for later in generations] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert [len(manager) for manager in quotas.managers] == [1_000] * 5


def test_clients_whose_bytes_are_unlimited_are_noted() -> None:
    quotas = BrokerQuotas(
        replace(with_principals(exempt=frozenset({"mirror"}), fold=(Fold(match="app-.*", to="app"),)), testing=True)
    )

    for principal in ("alice", "mirror", "app-1", "app-2"):
        quotas.bucket(QuotaKind.PRODUCE, principal=principal, client_id="etl", now_ms=0)
    quotas.bucket(QuotaKind.MUTATION, principal="bob", client_id="etl", now_ms=0)
    quotas.bucket(QuotaKind.FETCH, principal="carol", client_id="x" * 1_000, now_ms=0)

    assert quotas.newly_unlimited is not None
    (app, etl), (carol, long_id) = quotas.newly_unlimited
    assert (app, etl, carol) == ("app", "etl", "carol")
    assert len(long_id) < 100
    assert list(quotas.newly_unlimited.values()) == [QuotaKind.PRODUCE, QuotaKind.FETCH]


def test_number_of_noted_clients_is_bounded() -> None:
    quotas = BrokerQuotas(replace(CONFIG, testing=True))

    for number in range(MAX_NEWLY_UNLIMITED + 100):
        quotas.bucket(QuotaKind.PRODUCE, principal=ANONYMOUS, client_id=str(number), now_ms=0)

    assert quotas.newly_unlimited is not None
    assert len(quotas.newly_unlimited) == MAX_NEWLY_UNLIMITED
