"""Buckets and who keeps them. Kafka's own numbers are in ``test_vectors``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from math import isnan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, EntityName, KafkaSettings, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import EXPIRES_AFTER_MS, ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import LEVELS
from tests.support import kafka_entities, kafka_rate
from tests.support.kafka_rate import MetricConfig

STARTS_MS = (0, 3, 86_400_000, 1_767_225_600_000)
INT32_MAX = 2**31 - 1


def rule(
    user: EntityName = None, client_id: EntityName = None, limit: float = 1_000.0, shaping: Shaping | None = None
) -> QuotaRule:
    return QuotaRule(user=user, client_id=client_id, producer_byte_rate=limit, shaping=shaping)


def manager_of(
    *rules: QuotaRule,
    shaping: Shaping = Shaping.SAMPLED,
    burst_ms: int = 1_000,
    max_throttle_time_ms: int | None = None,
) -> ClientQuotaManager:
    return ClientQuotaManager(
        QuotaKind.PRODUCE, rules, shaping=shaping, burst_ms=burst_ms, max_throttle_time_ms=max_throttle_time_ms
    )


def put(
    manager: ClientQuotaManager,
    *rules: QuotaRule,
    shaping: Shaping = Shaping.SAMPLED,
    burst_ms: int = 1_000,
    max_throttle_time_ms: int | None = None,
) -> None:
    manager.table.update(rules)
    manager.rules_changed(None)
    manager.configure(shaping=shaping, burst_ms=burst_ms, max_throttle_time_ms=max_throttle_time_ms)


def alices(manager: ClientQuotaManager, now_ms: int = 0) -> Bucket:
    return manager.bucket(user="alice", client_id="etl", now_ms=now_ms)


# -- charging --


def test_every_charge_is_counted() -> None:
    bucket = alices(manager_of(rule("alice")))

    assert bucket.charge(10_000, now_ms=0) == 0
    assert bucket.charge(1_000, now_ms=700) == 300

    assert (bucket.amount, bucket.requests, bucket.last_record_ms) == (11_000, 2, 700)
    assert bucket.rate.total == 11_000


def test_an_unlimited_bucket_is_measured_and_never_waits() -> None:
    bucket = alices(manager_of())

    assert bucket.charge(2**40, now_ms=0) == 0

    assert not bucket.is_limited
    assert bucket.limit == float(UNLIMITED)
    assert bucket.amount == 2**40
    assert bucket.has_room(2**40, now_ms=0)
    assert bucket.rate.peek(now_ms=0) > 0


@pytest.mark.parametrize(("max_ms", "wait_ms"), [(None, 90_000), (25_000, 25_000), (90_000, 90_000), (90_001, 90_000)])
@pytest.mark.parametrize("shaping", Shaping)
def test_max_throttle_time_bounds_the_wait_but_not_the_debt(shaping: Shaping, max_ms: int | None, wait_ms: int) -> None:
    bucket = alices(manager_of(rule("alice"), shaping=shaping, burst_ms=10_000, max_throttle_time_ms=max_ms))

    owed_ms = bucket.charge(100_000, now_ms=0)

    assert owed_ms == 90_000
    assert min(owed_ms, bucket.max_throttle_time_ms) == wait_ms


@pytest.mark.parametrize("shaping", Shaping)
def test_a_wait_without_bound_saturates(shaping: Shaping) -> None:
    bucket = alices(manager_of(rule("alice", limit=0.001), shaping=shaping))

    assert bucket.charge(INT32_MAX, now_ms=0) == INT32_MAX


@pytest.mark.parametrize("start_ms", STARTS_MS)
@pytest.mark.parametrize("shaping", Shaping)
def test_usage_over_the_limit_is_waited_for_once(shaping: Shaping, start_ms: int) -> None:
    bucket = alices(manager_of(rule("alice"), shaping=shaping, burst_ms=10_000), start_ms)

    waits_ms = [bucket.charge(12_000, now_ms=start_ms), bucket.charge(0, now_ms=start_ms + 11_000)]

    assert waits_ms == [2_000, 0]


@given(
    limit=st.floats(1_000, 1e9),
    elapsed_ms=st.integers(10_000, 10_990),
    wait_ms=st.integers(1, 900),
    start_ms=st.sampled_from(STARTS_MS),
)
def test_rate_is_at_the_limit_after_the_wait(limit: float, elapsed_ms: int, wait_ms: int, start_ms: int) -> None:
    """To a rounded millisecond, in a full window from which nothing leaves meanwhile: the formula assumes no less."""
    bucket = alices(manager_of(rule("alice", limit=limit)), start_ms)
    bucket.charge(1, now_ms=start_ms)
    bucket.charge(1, now_ms=start_ms + 999)
    size_bytes = round(limit * (elapsed_ms + wait_ms) / 1_000)

    waited_ms = bucket.charge(size_bytes, now_ms=start_ms + elapsed_ms)

    assert abs(waited_ms - wait_ms) <= 3
    window_ms = elapsed_ms + waited_ms
    one_millisecond_more = (window_ms + 1) / window_ms
    assert bucket.rate.peek(now_ms=start_ms + window_ms) <= limit * one_millisecond_more
    assert bucket.rate.peek(now_ms=start_ms + window_ms) * one_millisecond_more >= limit


# -- taking back --


@given(
    shaping=st.sampled_from(Shaping),
    start_ms=st.sampled_from(STARTS_MS),
    charges=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 5_000)), max_size=20),
    amount=st.integers(1, 10**6),
)
def test_uncharge_undoes_a_charge(shaping: Shaping, start_ms: int, charges: list[tuple[int, int]], amount: int) -> None:
    bucket, other = (alices(manager_of(rule("alice"), shaping=shaping), start_ms) for _ in range(2))
    now_ms = start_ms
    for pause_ms, size_bytes in charges:
        now_ms += pause_ms
        assert bucket.charge(size_bytes, now_ms=now_ms) == other.charge(size_bytes, now_ms=now_ms)
    other.charge(0, now_ms=now_ms)

    bucket.charge(amount, now_ms=now_ms)
    bucket.uncharge(amount, now_ms=now_ms)

    assert bucket.amount == other.amount
    assert bucket.rate.total == other.rate.total
    assert bucket.charge(700, now_ms=now_ms + 100) == other.charge(700, now_ms=now_ms + 100)


@pytest.mark.parametrize("shaping", Shaping)
def test_uncharge_counts_at_its_own_time(shaping: Shaping) -> None:
    """Source: ``ClientQuotaManager.unrecordQuotaSensor``, which records at the current time."""
    manager = manager_of(rule("alice"), shaping=shaping)
    bucket = alices(manager)
    bucket.charge(5_000, now_ms=0)

    bucket.uncharge(5_000, now_ms=6_000)

    assert bucket.rate.peek(now_ms=6_000) == 0
    assert bucket.last_record_ms == 6_000
    assert manager.expire(now_ms=EXPIRES_AFTER_MS + 1) == 0


def test_uncharged_amount_expires_like_a_charge() -> None:
    bucket = alices(manager_of(rule("alice")))
    bucket.uncharge(5_000, now_ms=0)
    bucket.charge(10_000, now_ms=5_000)

    wait_ms = bucket.charge(500, now_ms=12_000)

    # 10,500 B in 10 s: the 5,000 B are too old.
    assert wait_ms == 500


def test_uncharge_gives_tokens_back() -> None:
    bucket = alices(manager_of(rule("alice"), shaping=Shaping.PACED))
    bucket.charge(1_500, now_ms=0)

    bucket.uncharge(1_200, now_ms=0)

    assert bucket.has_room(700, now_ms=0)
    assert not bucket.has_room(701, now_ms=0)


# -- room --

RoomStep = tuple[int, str, int]


@given(
    shaping=st.sampled_from(Shaping),
    limit=st.one_of(st.sampled_from([100.0, 1_000.0]), st.floats(1, 1e7)),
    start_ms=st.sampled_from(STARTS_MS),
    steps=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 1_500), st.sampled_from([999, 1_000, 1_001, 10_000, 10_999, 11_000, 11_001])),
            st.sampled_from(["charge", "charge", "charge", "uncharge", "rest"]),
            st.integers(0, 20_000),
        ),
        max_size=30,
    ),
    amount=st.integers(1, 20_000),
)
@example(
    # What was taken back is as old as the windows by now, what it was taken from left before: the sum says too little.
    shaping=Shaping.SAMPLED,
    limit=1_000.0,
    start_ms=0,
    steps=[
        (0, "charge", 1_000),
        (5_000, "uncharge", 1_000),
        (1_000, "charge", 10_000),
        (9_500, "charge", 0),
        (500, "rest", 0),
    ],
    amount=500,
)
def test_has_room_predicts_whether_a_charge_waits(
    shaping: Shaping, limit: float, start_ms: int, steps: list[RoomStep], amount: int
) -> None:
    bucket = alices(manager_of(rule("alice", limit=limit), shaping=shaping), start_ms)
    now_ms = start_ms
    for pause_ms, action, size_bytes in steps:
        now_ms += pause_ms
        if action == "charge":
            bucket.charge(size_bytes, now_ms=now_ms)
        elif action == "uncharge":
            bucket.uncharge(size_bytes, now_ms=now_ms)

    has_room = bucket.has_room(amount, now_ms=now_ms)
    wait_ms = bucket.charge(amount, now_ms=now_ms)

    if has_room:
        assert wait_ms == 0
    elif shaping is Shaping.SAMPLED:
        # A wait below half a millisecond is none.
        assert bucket.rate.peek(now_ms=now_ms) > limit
    else:
        assert not bucket.has_room(0, now_ms=now_ms)


@pytest.mark.parametrize("shaping", Shaping)
def test_requests_in_flight_take_room(shaping: Shaping) -> None:
    bucket = alices(manager_of(rule("alice"), shaping=shaping, burst_ms=10_000))

    bucket.in_flight = 9_000

    assert bucket.has_room(1_000, now_ms=0)
    assert not bucket.has_room(1_001, now_ms=0)


def test_has_room_changes_nothing() -> None:
    for shaping in Shaping:
        asked, silent = (alices(manager_of(rule("alice"), shaping=shaping)) for _ in range(2))
        for bucket in (asked, silent):
            bucket.charge(9_000, now_ms=0)

        for now_ms in (500, 2_500, 11_000, 12_000, 30_000):
            asked.has_room(20_000, now_ms=now_ms)
            asked.utilisation(now_ms=now_ms)

        assert asked.charge(12_000, now_ms=30_500) == silent.charge(12_000, now_ms=30_500)
        assert asked.rate.window_ms(now_ms=31_000) == silent.rate.window_ms(now_ms=31_000)


# -- pacing --


@given(
    limit=st.sampled_from([1_000.0, 10_485_760.0]),
    burst_ms=st.sampled_from([100, 1_000, 5_000]),
    start_ms=st.sampled_from(STARTS_MS),
    requests=st.lists(st.tuples(st.integers(1, 2_000_000), st.sampled_from([0, 0, 7, 3_000])), min_size=1, max_size=30),
)
def test_paced_client_keeps_its_quota_in_any_interval(
    limit: float, burst_ms: int, start_ms: int, requests: list[tuple[int, int]]
) -> None:
    bucket = alices(manager_of(rule("alice", limit=limit), shaping=Shaping.PACED, burst_ms=burst_ms), start_ms)
    now_ms = start_ms
    sent: list[tuple[int, int]] = []
    for size_bytes, rest_ms in requests:
        now_ms += rest_ms
        sent.append((now_ms, size_bytes))
        now_ms += bucket.charge(size_bytes, now_ms=now_ms)

    burst = limit * burst_ms / 1_000
    one_millisecond = limit / 1_000
    for first, (begin_ms, _) in enumerate(sent):
        sums = accumulate(size_bytes for _, size_bytes in sent[first:])
        for (end_ms, size_bytes), passed in zip(sent[first:], sums, strict=True):
            assert passed <= burst + limit * (end_ms - begin_ms) / 1_000 + size_bytes + one_millisecond


def test_paced_client_is_even_to_the_second() -> None:
    """A client that sends 256 KiB requests as fast as it may, at 1 MiB a second, for a minute."""
    request_bytes, limit, minute_ms = 262_144, 1_048_576.0, 60_000
    most_in_a_second = {}
    for shaping in Shaping:
        bucket = alices(manager_of(rule("alice", limit=limit), shaping=shaping))
        seconds = [0] * 60
        now_ms = 0
        while now_ms < minute_ms:
            seconds[now_ms // 1_000] += request_bytes
            now_ms += max(1, bucket.charge(request_bytes, now_ms=now_ms))
        most_in_a_second[shaping] = max(seconds) / limit

    # One request over ten seconds' worth; a second's flow, a second's burst and one request.
    assert most_in_a_second[Shaping.SAMPLED] >= 10.25
    assert most_in_a_second[Shaping.PACED] <= 2.25


# -- counting --


def test_throttled_requests_are_counted_as_enforced_or_observed() -> None:
    bucket = alices(manager_of(rule("alice")))

    bucket.throttled(40, now_ms=0)
    bucket.throttled(60, now_ms=1_000)
    bucket.observe(7, took_ms=0, now_ms=2_000)

    assert bucket.throttling.requests == 2
    assert bucket.throttling.time_ms == 100
    assert bucket.throttling.observed_time_ms == 7
    assert bucket.throttling.average_ms.peek(now_ms=2_000) == 50
    assert isnan(bucket.throttling.average_ms.peek(now_ms=61_000))


def test_utilisation_is_the_rate_over_the_limit() -> None:
    limited = alices(manager_of(rule("alice")))
    unlimited = alices(manager_of())
    for bucket in (limited, unlimited):
        bucket.charge(2_500, now_ms=0)

    assert limited.utilisation(now_ms=0) == 0.25
    assert unlimited.utilisation(now_ms=0) is None


# -- which bucket --


def test_a_bucket_knows_its_rule_and_level() -> None:
    winner = QuotaRule(user="alice", client_id=DEFAULT, producer_byte_rate=5.0, enforcement=Enforcement.OBSERVE)
    manager = manager_of(winner, rule("bob"))

    bucket = alices(manager)
    bobs = manager.bucket(user="bob", client_id="etl", now_ms=0)

    assert bucket.rule is winner
    assert bucket.level is LEVELS[1]
    assert bucket.enforcement is Enforcement.OBSERVE
    assert bucket.kind is QuotaKind.PRODUCE
    assert (bobs.level, bobs.enforcement) == (LEVELS[2], None)


def test_without_a_limit_each_user_and_client_id_has_a_bucket() -> None:
    """Unlike Kafka, which names an unlimited bucket after the kinds of rules that exist."""
    manager = manager_of(rule(client_id="other"))

    buckets = [manager.bucket(user=user, client_id="etl", now_ms=0) for user in ("alice", "bob", "alice")]

    assert [bucket.tags for bucket in buckets] == [("alice", "etl"), ("bob", "etl"), ("alice", "etl")]
    assert buckets[0] is buckets[2]
    assert len(manager) == 2


def test_empty_client_id_has_its_own_unlimited_bucket() -> None:
    """Kafka's bucket of both is (alice, "") where only users have rules."""
    manager = manager_of(rule("bob"))

    nameless = manager.bucket(user="alice", client_id="", now_ms=0)
    named = manager.bucket(user="alice", client_id="etl", now_ms=0)

    assert (nameless.tags, named.tags) == (("alice", ""), ("alice", "etl"))


def test_exempt_principal_has_an_unlimited_bucket() -> None:
    manager = manager_of(rule(client_id="etl", limit=1.0))

    exempt = manager.bucket(user="admin", client_id="etl", now_ms=0, is_exempt=True)
    charged = alices(manager)

    assert exempt.tags == ("admin", "etl")
    assert (exempt.is_limited, charged.is_limited) == (False, True)
    assert exempt.charge(10**9, now_ms=0) == 0
    assert charged.rate.total == 0


def test_limit_of_kafkas_unlimited_is_no_limit() -> None:
    bucket = alices(manager_of(rule("alice", limit=float(UNLIMITED))))

    assert not bucket.is_limited
    assert bucket.max_fetch_bytes == INT32_MAX
    assert alices(manager_of(rule("alice", limit=float(UNLIMITED))), 5) is not bucket


def test_iteration_lists_a_snapshot_of_the_buckets() -> None:
    manager = manager_of(rule("alice"), rule("bob"))
    alices(manager)

    listed = iter(manager)
    manager.bucket(user="bob", client_id="etl", now_ms=0)

    assert [bucket.tags.user for bucket in listed] == ["alice"]
    assert len(manager) == 2


def test_windows_follow_kafkas_settings() -> None:
    settings = KafkaSettings(quota_window_num=4, quota_window_size_seconds=30)
    manager = ClientQuotaManager(QuotaKind.PRODUCE, [rule("alice")], kafka=settings)

    assert manager.max_value_in_window(1_000.0) == 90_000
    assert alices(manager).rate.window_ms(now_ms=0) == 90_000
    assert alices(manager).max_fetch_bytes == 90_000


# -- the cap of fetches --


@pytest.mark.parametrize(
    ("limit", "shaping", "burst_ms", "cap"),
    [
        (1_000.0, Shaping.SAMPLED, 1_000, 10_000),
        (1_000.0, Shaping.PACED, 1_000, 1_000),
        (1_000.0, Shaping.PACED, 2_500, 2_500),
        (0.01, Shaping.SAMPLED, 1_000, 1),
        (0.01, Shaping.PACED, 1_000, 1),
        (214_748_364.7, Shaping.SAMPLED, 1_000, INT32_MAX),
        (1e12, Shaping.SAMPLED, 1_000, INT32_MAX),
        (1e12, Shaping.PACED, 1_000, INT32_MAX),
    ],
)
def test_a_fetch_is_capped_at_a_window_or_a_burst(limit: float, shaping: Shaping, burst_ms: int, cap: int) -> None:
    bucket = alices(manager_of(rule("alice", limit=limit), shaping=shaping, burst_ms=burst_ms))

    assert bucket.max_fetch_bytes == cap


# -- changes --


def test_new_limit_applies_at_the_next_look_up() -> None:
    manager = manager_of(rule("alice", limit=1_000.0))
    bucket = alices(manager)
    bucket.charge(9_000, now_ms=0)

    put(manager, rule("alice", limit=500.0))

    assert bucket.limit == 1_000.0
    assert manager.limit_of(bucket) == 500.0
    assert alices(manager) is bucket
    assert bucket.limit == 500.0
    assert manager.limit_of(bucket) == 500.0
    assert bucket.charge(0, now_ms=0) == 8_000


def test_first_limit_counts_usage_under_rules_of_that_kind() -> None:
    """Kafka 4.3, with its own defaults: bob has a rule, alice sends 25,000 B, and gets 1,000 B/s a second later."""
    manager = manager_of(rule("bob"))
    assert manager.record_and_get_throttle_time_ms(20_000, user="alice", client_id="etl", now_ms=0) == 0
    assert manager.record_and_get_throttle_time_ms(5_000, user="alice", client_id="web", now_ms=0) == 0

    put(manager, rule("bob"), rule("alice"))

    assert manager.record_and_get_throttle_time_ms(0, user="alice", client_id="etl", now_ms=1_000) == 15_000


def test_first_limit_does_not_count_uncharged_usage() -> None:
    manager = manager_of(rule("bob"))
    alices(manager).charge(25_000, now_ms=0)
    alices(manager).uncharge(14_000, now_ms=0)

    put(manager, rule("bob"), rule("alice"))

    assert alices(manager, 1_000).charge(0, now_ms=1_000) == 1_000


@pytest.mark.parametrize(
    ("before", "first"),
    [
        pytest.param([], rule("alice", "etl"), id="no rule"),
        pytest.param([rule("bob")], rule("alice", "etl"), id="rules of users"),
        pytest.param([rule(client_id="web")], rule("alice"), id="rules of client-ids"),
    ],
)
def test_first_limit_starts_empty_if_kafka_names_another_bucket(before: list[QuotaRule], first: QuotaRule) -> None:
    manager = manager_of(*before)
    alices(manager).charge(25_000, now_ms=0)

    put(manager, *before, first)

    assert alices(manager, 1_000).charge(0, now_ms=1_000) == 0


def test_first_limit_counts_usage_from_before_other_rules_came() -> None:
    manager = manager_of(rule("bob"))
    alices(manager).charge(25_000, now_ms=0)

    put(manager, rule("bob"), rule(client_id="web"))
    alices(manager).charge(1_000, now_ms=0)
    put(manager, rule("bob"), rule(client_id="web"), rule("alice"))

    assert alices(manager, 1_000).charge(0, now_ms=1_000) == 15_000


def test_first_limit_does_not_count_usage_from_before_any_rule() -> None:
    manager = manager_of()
    manager.bucket(user="alice", client_id="", now_ms=0).charge(25_000, now_ms=0)

    put(manager, rule("bob"))
    alices(manager).charge(11_000, now_ms=0)
    put(manager, rule("bob"), rule("alice"))

    assert alices(manager, 1_000).charge(0, now_ms=1_000) == 1_000


@pytest.mark.parametrize("limited", [rule("alice"), rule("alice", "etl")])
def test_restored_limit_counts_earlier_usage(limited: QuotaRule) -> None:
    manager = manager_of(rule("bob"), limited)
    alices(manager).charge(10_000, now_ms=0)

    put(manager, rule("bob"))
    alices(manager).charge(15_000, now_ms=0)
    put(manager, rule("bob"), limited)

    # With rules of users alone, Kafka charges all of alice to one bucket, and none of it to that of (alice, etl).
    assert alices(manager, 1_000).charge(1_000, now_ms=1_000) == (16_000 if limited.client_id is None else 1_000)


def test_unlimited_samples_expire_with_their_buckets() -> None:
    manager = manager_of(rule("bob"))
    alices(manager).charge(25_000, now_ms=0)
    assert len(manager._kafka_rates) == 1

    manager.expire(now_ms=EXPIRES_AFTER_MS + 1)

    assert len(manager) == len(manager._kafka_rates) == 0


def test_unlimited_bucket_shows_its_own_rate() -> None:
    manager = manager_of(rule("bob"))

    alices(manager).charge(10_000, now_ms=0)
    manager.bucket(user="alice", client_id="web", now_ms=0).charge(5_000, now_ms=0)

    assert alices(manager).rate.peek(now_ms=0) == 1_000


def test_limit_of_an_unlimited_bucket_is_none() -> None:
    manager = manager_of(rule("alice"))
    bucket = alices(manager)

    put(manager)

    assert manager.limit_of(bucket) is None
    assert manager.limit_of(alices(manager)) is None


def test_change_of_shaping_keeps_the_usage() -> None:
    manager = manager_of(rule("alice"))
    bucket = alices(manager)
    bucket.charge(20_000, now_ms=0)
    assert bucket.shaping is Shaping.SAMPLED

    put(manager, rule("alice"), shaping=Shaping.PACED, burst_ms=2_000)
    paced = [alices(manager).shaping, bucket.charge(3_000, now_ms=0)]
    put(manager, rule("alice"), shaping=Shaping.PACED, burst_ms=500)
    burst_ms = 500
    shorter = [alices(manager).has_room(burst_ms, now_ms=9_000), bucket.has_room(burst_ms + 1, now_ms=9_000)]
    put(manager, rule("alice"))
    sampled = [alices(manager, 9_000).shaping, bucket.charge(0, now_ms=9_000)]

    assert paced == [Shaping.PACED, 1_000]
    assert shorter == [True, False]
    assert sampled == [Shaping.SAMPLED, 13_000]


def test_paced_bucket_keeps_its_debt_when_its_limit_changes() -> None:
    manager = manager_of(rule("alice"), shaping=Shaping.PACED)
    alices(manager).charge(3_000, now_ms=0)

    put(manager, rule("alice", limit=4_000.0), shaping=Shaping.PACED)

    assert alices(manager).charge(0, now_ms=0) == 500


def test_rule_shaping_overrides_the_managers() -> None:
    manager = manager_of(rule("alice", shaping=Shaping.PACED), rule("bob"), rule("carol", shaping=Shaping.SAMPLED))

    shapes = [manager.bucket(user=user, client_id="", now_ms=0).shaping for user in ("alice", "bob", "carol")]

    assert shapes == [Shaping.PACED, Shaping.SAMPLED, Shaping.SAMPLED]


def test_unlimited_bucket_is_not_paced() -> None:
    bucket = alices(manager_of(rule("bob"), shaping=Shaping.PACED))

    assert bucket.shaping is Shaping.SAMPLED
    assert bucket.charge(10**12, now_ms=0) == 0


def test_max_throttle_time_can_change() -> None:
    manager = manager_of(rule("alice"), max_throttle_time_ms=1_000)
    first = manager.record_and_get_throttle_time_ms(100_000, user="alice", client_id="etl", now_ms=0)

    put(manager, rule("alice"), max_throttle_time_ms=2_000)
    second = manager.record_and_get_throttle_time_ms(0, user="alice", client_id="etl", now_ms=0)
    put(manager, rule("alice"))
    third = manager.record_and_get_throttle_time_ms(0, user="alice", client_id="etl", now_ms=0)

    assert [first, second, third] == [1_000, 2_000, 90_000]


# -- expiry --


def test_bucket_with_requests_in_flight_does_not_expire() -> None:
    manager = manager_of(rule("alice"))
    bucket = alices(manager)
    bucket.in_flight = 100

    assert manager.expire(now_ms=2 * EXPIRES_AFTER_MS) == 0

    bucket.in_flight = 0
    assert manager.expire(now_ms=2 * EXPIRES_AFTER_MS) == 1


def test_bucket_expires_an_hour_after_its_last_charge() -> None:
    manager = manager_of(rule("alice"))
    alices(manager).charge(1, now_ms=5_000)

    assert manager.expire(now_ms=5_000 + EXPIRES_AFTER_MS) == 0
    assert manager.expire(now_ms=5_001 + EXPIRES_AFTER_MS) == 1
    assert len(manager) == 0


def test_look_ups_between_slices_of_expiry_are_safe() -> None:
    manager = manager_of(rule(DEFAULT))
    users = [f"user-{number}" for number in range(2_500)]
    old = {user: manager.bucket(user=user, client_id="etl", now_ms=0) for user in users}
    now_ms = EXPIRES_AFTER_MS + 1
    slices = manager.expire_slices(now_ms=now_ms)

    forgotten = [next(slices)]
    again = manager.bucket(user=users[0], client_id="etl", now_ms=now_ms)
    waiting = manager.bucket(user=users[-1], client_id="etl", now_ms=now_ms)
    waiting.charge(1, now_ms=now_ms)
    newcomer = manager.bucket(user="newcomer", client_id="etl", now_ms=now_ms)
    forgotten.extend(slices)

    assert forgotten == [1_000, 1_000, 499]
    assert again is not old[users[0]]
    assert waiting is old[users[-1]]
    assert sorted(bucket.tags.user for bucket in manager) == sorted([users[0], users[-1], "newcomer"])
    assert manager.bucket(user="newcomer", client_id="etl", now_ms=now_ms) is newcomer


def test_overlapping_expiries_remove_each_bucket_once() -> None:
    manager = manager_of(rule(DEFAULT))
    for number in range(1_500):
        manager.bucket(user=f"user-{number}", client_id="etl", now_ms=0)
    slices = manager.expire_slices(now_ms=EXPIRES_AFTER_MS + 1)
    first = next(slices)

    rest = manager.expire(now_ms=EXPIRES_AFTER_MS + 1)

    assert [first, rest, sum(slices)] == [1_000, 500, 0]


def test_expired_bucket_is_not_returned_again() -> None:
    manager = manager_of(rule("alice"))
    old = alices(manager)
    other = manager.bucket(user="alice", client_id="web", now_ms=0)
    assert other is old

    manager.expire(now_ms=EXPIRES_AFTER_MS + 1)

    assert alices(manager, EXPIRES_AFTER_MS + 1) is not old
    assert manager.bucket(user="alice", client_id="web", now_ms=EXPIRES_AFTER_MS + 1) is alices(manager)


def test_cache_of_look_ups_is_bounded() -> None:
    """All of these charge one bucket: their number must not show in memory."""
    manager = manager_of(rule("alice"))

    for number in range(100_001):
        manager.bucket(user="alice", client_id=str(number), now_ms=0)

    assert len(manager) == 1
    assert len(manager._resolved) == 1
    assert manager.bucket(user="alice", client_id="0", now_ms=0) is alices(manager)


# -- all of it, beside Kafka's --

ENTITIES: tuple[kafka_entities.Entity, ...] = (
    ("alice", "etl"),
    ("alice", DEFAULT),
    ("alice", None),
    (DEFAULT, "etl"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "etl"),
    (None, DEFAULT),
)


@dataclass
class KafkasManager:
    """Limits by entity, a rate by tags. While there is no rule at all, nothing is recorded (``quotasEnabled``)."""

    limits: dict[kafka_entities.Entity, float] = field(default_factory=dict)
    rates: dict[tuple[str, str], kafka_rate.Rate] = field(default_factory=dict)

    def charge(self, amount: int, user: str, client_id: str, now_ms: int) -> int:
        if not self.limits:
            return 0
        return kafka_rate.record_and_get_throttle_time_ms(*self._rate(user, client_id), amount, now_ms)

    def uncharge(self, amount: int, user: str, client_id: str, now_ms: int) -> None:
        if not self.limits:
            return
        rate, config = self._rate(user, client_id)
        rate.record(config, -amount, now_ms)

    def _rate(self, user: str, client_id: str) -> tuple[kafka_rate.Rate, MetricConfig]:
        tags = kafka_entities.metric_tags(self.limits, user, client_id)
        found = kafka_entities.limit_and_entity(self.limits, tags)
        rate = self.rates.setdefault(tags, kafka_rate.Rate())
        return rate, MetricConfig(samples=11, window_ms=1_000, bound=found[0] if found else float(UNLIMITED))


ManagerStep = Callable[[ClientQuotaManager, KafkasManager, int], None]


def charging(names: tuple[str, str], amount: int) -> ManagerStep:
    user, client_id = names

    def step(manager: ClientQuotaManager, kafkas: KafkasManager, now_ms: int) -> None:
        wait_ms = manager.record_and_get_throttle_time_ms(amount, user=user, client_id=client_id, now_ms=now_ms)
        # A wait below half a millisecond is none, here and there.
        assert wait_ms == kafkas.charge(amount, user, client_id, now_ms)

    return step


def taking_back(names: tuple[str, str], amount: int) -> ManagerStep:
    user, client_id = names

    def step(manager: ClientQuotaManager, kafkas: KafkasManager, now_ms: int) -> None:
        manager.bucket(user=user, client_id=client_id, now_ms=now_ms).uncharge(amount, now_ms=now_ms)
        kafkas.uncharge(amount, user, client_id, now_ms)

    return step


def changing(entity: kafka_entities.Entity, limit: float | None) -> ManagerStep:
    def step(manager: ClientQuotaManager, kafkas: KafkasManager, now_ms: int) -> None:
        kafkas.limits.pop(entity, None)
        if limit is not None:
            kafkas.limits[entity] = limit
        put(manager, *(rule(*entity, limit) for entity, limit in kafkas.limits.items()))

    return step


NAMES = st.tuples(st.sampled_from(["alice", "bob"]), st.sampled_from(["etl", "web", ""]))
STEPS = st.one_of(
    st.builds(charging, NAMES, st.integers(0, 30_000)),
    st.builds(taking_back, NAMES, st.integers(0, 30_000)),
    st.builds(
        changing, st.sampled_from(ENTITIES), st.one_of(st.none(), st.sampled_from([0.1, 333.3, 1_000.0, 2_000.0]))
    ),
)


@given(
    now_ms=st.sampled_from(STARTS_MS),
    steps=st.lists(st.tuples(st.one_of(st.just(0), st.integers(0, 3_000), st.integers(0, 15_000)), STEPS), max_size=40),
)
def test_any_charges_and_changes_wait_as_in_kafka(now_ms: int, steps: list[tuple[int, ManagerStep]]) -> None:
    manager, kafkas = manager_of(), KafkasManager()

    for pause_ms, step in steps:
        now_ms += pause_ms
        step(manager, kafkas, now_ms)


def test_record_and_get_throttle_time_looks_up_and_charges() -> None:
    manager, other = (manager_of(rule("alice")) for _ in range(2))
    decide = partial(manager.record_and_get_throttle_time_ms, user="alice", client_id="etl")

    waits_ms = [decide(9_000, now_ms=0), decide(9_000, now_ms=400)]

    assert waits_ms == [0, 7_600]
    assert [alices(other).charge(9_000, now_ms=0), alices(other).charge(9_000, now_ms=400)] == waits_ms
