"""Tests the cases of Kafka's own tests, or cases computed by Kafka's rules. V and a number name a case.

A rate has ``N`` samples of ``W`` milliseconds, by default 11 of 1,000.
"""

# Cases in other modules:
#
# * Replication: V22 in ``test_replication``, V21, V42, V44 and V47 in ``replication/test_throttle``, V24, V39 and V40
#   in ``session/replica/test_follower_fetch``, V25, V26, V45, V46 and V59 in ``session/handlers/test_follower_fetch``,
#   V41 and V43 in ``config/test_throttled_replicas``.
# * Connections: V54 and V55 in ``test_connections``.
# * Topics: V36 in ``protocol/test_topic_mutations``, V38 in ``test_mutation`` and
#   ``session/handlers/test_topic_mutations``.
# * Requests: V35 in ``session/test_request_charge``. Names in metrics: V60 and V61 in ``test_sanitize``.
# * Changes of quotas: V48 to V53, V62 and V66 in ``rules`` and ``end_to_end``.
#
# Cases without a counterpart:
#
# * V11 needs a request that can be refused, which Produce and Fetch cannot. The arithmetic is that of V08.
# * V56 is about a lower bound, which client quotas do not have.
# * V58 is about the delay queue. A session stores until when it is muted instead.

from collections.abc import Callable
from functools import partial

import pytest

from kafka_quota_proxy.config.model import DEFAULT, EntityName, KafkaSettings, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.protocol import fetch
from kafka_quota_proxy.proxy.quota.client_quota_manager import EXPIRES_AFTER_MS, ClientQuotaManager
from kafka_quota_proxy.proxy.quota.rate import Rate, SimpleRate
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable
from kafka_quota_proxy.proxy.quota.throttle import throttle_time_ms, wait_for_tokens_ms
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket
from tests.support.rules_in_force import replace_all

T = 1_767_225_600_000
Entity = tuple[EntityName, EntityName]
Limits = dict[Entity, float]


def rules_of(limits: Limits, kind: QuotaKind = QuotaKind.PRODUCE) -> tuple[QuotaRule, ...]:
    if kind is QuotaKind.PRODUCE:
        return tuple(QuotaRule(user=u, client_id=c, producer_byte_rate=limit) for (u, c), limit in limits.items())
    return tuple(QuotaRule(user=u, client_id=c, consumer_byte_rate=limit) for (u, c), limit in limits.items())


def manager_of(
    limits: Limits, *, kind: QuotaKind = QuotaKind.PRODUCE, samples: int = 11, max_throttle_time_ms: int | None = None
) -> ClientQuotaManager:
    return ClientQuotaManager(
        kind,
        rules_of(limits, kind),
        kafka=KafkaSettings(quota_window_num=samples),
        max_throttle_time_ms=max_throttle_time_ms,
    )


def put(manager: ClientQuotaManager, limits: Limits) -> None:
    replace_all(manager, rules_of(limits, manager.kind))
    manager.configure(shaping=Shaping.SAMPLED, burst_ms=1_000, max_throttle_time_ms=None)


def limit_of(manager: ClientQuotaManager, user: str, client_id: str) -> float:
    return manager.bucket(user=user, client_id=client_id, now_ms=T).limit


# -- A: metrics core --


def test_v01_a_first_record_is_spread_over_the_windows_before_it() -> None:
    """Source: Kafka's RateTest.testRateWithNoPriorAvailableSamples. ``config`` refuses N = 1."""
    for samples, window_s, byte_rate in (
        (1, 1, 50.050050050),
        (1, 11, 4.545867806),
        (11, 1, 4.545867806),
        (11, 11, 0.413226555),
    ):
        rate = Rate(samples=samples, window_ms=window_s * 1_000)
        rate.record(50, now_ms=T)

        measured = rate.measure(now_ms=T + window_s * 1_000 - 1)

        assert measured == pytest.approx(byte_rate, abs=1e-9), (samples, window_s)


def test_v02_a_rate_is_consistent_after_the_first_window() -> None:
    """Source: Kafka's RateTest.testRateIsConsistentAfterTheFirstWindow."""
    rate = Rate(samples=2, window_ms=1_000)
    for after_ms in (0, *range(99, 1_000, 100)):
        rate.record(1, now_ms=T + after_ms)
    instants_ms = (1_100, 1_199, 1_299, 1_399, 1_499, 1_599, 1_699, 1_799, 1_899, 1_999, 2_099)
    readings = []

    for after_ms in instants_ms:
        rate.record(1, now_ms=T + after_ms)
        readings.append((rate.measure(now_ms=T + after_ms), rate.measure(now_ms=T + after_ms)))

    assert all(once == again for once, again in readings)
    assert [once for once, _ in readings] == pytest.approx(
        [
            10.909091,
            10.842369,
            10.777521,
            10.721944,
            10.673783,
            10.631645,
            10.594467,
            10.561423,
            10.531859,
            10.505253,
            10.481182,
        ],
        abs=1e-6,
    )


def test_v03_a_rate_follows_its_windows() -> None:
    """Source: Kafka's MetricsTest.testRateWindowing."""
    rate = Rate(samples=3, window_ms=30_000)
    rate.record(100, now_ms=T)
    rate.record(100, now_ms=T + 30_000)

    assert rate.measure(now_ms=T + 75_000) == 200 / 75
    assert rate.window_ms(now_ms=T + 75_000) == 75_000
    assert rate.measure(now_ms=T + 165_000) == 0


def test_v05_a_window_that_overlaps_is_kept() -> None:
    """Source: Kafka's SampledStatTest. With N = 2 there are three slots."""
    for events_ms, read_ms, left in [
        ((0, 999), 3_500, 0),
        ((0, 999), 2_500, 2),
        ((0, 999, 1_100, 2_099, 2_200), 2_200, 5),
    ]:
        rate = Rate(samples=2, window_ms=1_000)
        for event_ms in events_ms:
            rate.record(1, now_ms=T + event_ms)

        rate.measure(now_ms=T + read_ms)

        assert rate.total == left, (events_ms, read_ms, left)


def test_v06_a_window_leaves_after_exactly_n_windows() -> None:
    """Source: Kafka's MetricsTest.testTimeWindowing and testOldDataHasNoEffect."""
    rate = Rate(samples=2, window_ms=1)
    totals = []
    for event in range(3):
        rate.record(1, now_ms=T + event)
        rate.measure(now_ms=T + event)
        totals.append(rate.total)
    old = Rate(samples=2, window_ms=100)
    old.record(50, now_ms=T)

    assert totals == [1, 2, 2]
    assert old.peek(now_ms=T + 199) > 0
    assert old.peek(now_ms=T + 200) == 0


def test_v07_a_simple_rate_counts_at_least_one_window() -> None:
    """Source: Kafka's MetricsTest.testSimpleRate."""
    rate = SimpleRate(samples=10, window_ms=1_000)
    measured: list[float] = []
    for after_ms, records in [
        (0, True),
        (100, False),
        (200, False),
        (400, False),
        (1_000, False),
        (1_200, False),
        (1_400, False),
        (1_400, True),
        (2_500, False),
        (2_500, True),
        (9_000, False),
        (9_000, True),
        (10_500, False),
        (10_500, True),
    ]:
        if records:
            rate.record(1_000, now_ms=T + after_ms)
        measured.append(rate.measure(now_ms=T + after_ms))

    assert measured[:10] == pytest.approx([1_000] * 5 + [833.333333, 714.285714, 1_428.571429, 800, 1_200], abs=1e-6)
    assert measured[10:] == pytest.approx([333.33, 444.44, 329.67, 439.56], abs=1)


def test_v08_a_token_bucket_pays_out_and_fills_up() -> None:
    """Source: Kafka's TokenBucketTest.testRecord, with 5 tokens a second and a burst of 100."""
    bucket = TokenBucket(burst_ms=20_000, byte_rate_limit=5.0, now_ms=T)
    record = partial(bucket.record, byte_rate_limit=5.0)

    assert bucket.peek(byte_rate_limit=5.0, now_ms=T) == 100
    assert record(60, now_ms=T) == 40
    assert record(5, now_ms=T + 2_000) == 45
    assert record(60, now_ms=T + 4_000) == -5


def test_v09_tokens_put_back_stop_at_the_burst() -> None:
    """Source: Kafka's TokenBucketTest.testUnrecord."""
    bucket = TokenBucket(burst_ms=20_000, byte_rate_limit=5.0, now_ms=T)
    record = partial(bucket.record, byte_rate_limit=5.0)

    assert record(-60, now_ms=T) == 100
    assert record(60, now_ms=T + 2_000) == 40
    assert record(-60, now_ms=T + 4_000) == 100


def test_v10_a_rate_over_its_bound_has_no_room_while_it_lasts() -> None:
    """Source: Kafka's SensorTest.testStrictQuotaEnforcementWithRate, with 30 against 2 a second."""
    bucket = manager_of({("alice", None): 2.0}).bucket(user="alice", client_id="etl", now_ms=T)

    assert bucket.has_room(20, now_ms=T)
    bucket.charge(30, now_ms=T)

    assert bucket.rate.peek(now_ms=T) == 3
    assert bucket.rate.peek(now_ms=T + 5_000) == 3
    assert not bucket.has_room(1, now_ms=T + 5_000)


def test_v12_new_bound_applies_at_once_and_resets_nothing() -> None:
    """Source: Kafka's SensorTest.testUpdatingMetricConfigIsReflectedInTheSensor."""
    manager = manager_of({("alice", None): 5.0})
    charge = partial(manager.record_and_get_throttle_time_ms, user="alice", client_id="etl")

    assert charge(60, now_ms=T + 1) == 2_000
    put(manager, {("alice", None): 10.0})

    assert charge(40, now_ms=T + 3) == 0
    assert charge(1, now_ms=T + 4) == 97


def test_v14_the_formula_of_the_throttle_time() -> None:
    """Source: Kafka's QuotaUtilsTest. A bucket is charged too, if a whole number of bytes has this rate."""
    rows: tuple[tuple[float, float, int, int | None, int], ...] = (
        (16.5, 16.5, 10, None, 0),
        (16.5, 16.5, 11, None, 0),
        (16.5, 20.4, 10, None, -1_721),
        (16.5, 20.4, 11, None, -1_912),
        (100, 50, 3, None, 2_000),
        (18.2, 18.2, 10, 500, 0),
        (18.2, 18.2, 11, 500, 0),
        (16.5, 22.4, 10, 500, -2_371),
        (16.5, 22.4, 11, 500, -2_634),
        (55, 50, 2, 500, 100),
        (100, 50, 10, 500, 500),
    )
    for byte_rate, bound, samples, max_ms, expected_ms in rows:
        window_ms = (samples - 1) * 1_000

        wait_ms = throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=bound, window_ms=window_ms)

        assert min(wait_ms, max_ms or wait_ms) == expected_ms, (byte_rate, bound, samples)
        amount = round(byte_rate * window_ms / 1_000)
        if amount * 1_000 == byte_rate * window_ms:
            manager = manager_of({("alice", None): bound}, samples=samples, max_throttle_time_ms=max_ms)
            charged_ms = manager.record_and_get_throttle_time_ms(amount, user="alice", client_id="etl", now_ms=T)
            assert charged_ms == max(expected_ms, 0), (byte_rate, bound, samples)


def test_v57_bucket_expires_strictly_after_its_time() -> None:
    """Source: Kafka's MetricsTest.testRemoveInactiveMetrics. Client quotas expire after an hour."""
    manager = manager_of({(None, DEFAULT): 500.0})
    silent = manager.bucket(user="alice", client_id="silent", now_ms=T)
    manager.record_and_get_throttle_time_ms(1, user="alice", client_id="busy", now_ms=T + 1)

    assert manager.expire(now_ms=T) == 0
    assert manager.expire(now_ms=T + EXPIRES_AFTER_MS) == 0
    assert manager.expire(now_ms=T + EXPIRES_AFTER_MS + 1) == 1
    assert [bucket.tags.client_id for bucket in manager] == ["busy"]
    assert manager.bucket(user="alice", client_id="silent", now_ms=T + EXPIRES_AFTER_MS + 1) is not silent


# -- B: client quotas --


@pytest.mark.parametrize(
    ("first", "second", "default"),
    [
        ((None, "p1"), (None, "p2"), (None, DEFAULT)),
        (("User1", None), ("User2", None), (DEFAULT, None)),
        (("User1", "p1"), ("User2", "p2"), (DEFAULT, DEFAULT)),
    ],
    ids=["client-id", "user", "user and client-id"],
)
def test_v13_each_kind_of_entity_is_limited_and_falls_back_to_its_default(
    first: Entity, second: Entity, default: Entity
) -> None:
    """Source: the five parsing tests of Kafka's ClientQuotaManagerTest."""
    manager = manager_of({first: 2_000, second: 4_000})
    charge = partial(manager.record_and_get_throttle_time_ms, user="User1", client_id="p1", now_ms=T)

    assert limit_of(manager, "User1", "p1") == 2_000
    assert limit_of(manager, "User2", "p2") == 4_000
    assert limit_of(manager, "RandomUser", "random-client-id") == 9223372036854775807.0
    assert charge(27_500) == 3_750

    put(manager, {first: 3_000, second: 4_000})
    assert limit_of(manager, "User1", "p1") == 3_000
    assert charge(0) == 0

    put(manager, {first: 500, second: 4_000})
    assert limit_of(manager, "User1", "p1") == 500
    assert charge(0) == 45_000

    put(manager, {second: 4_000, default: 4_000})
    assert limit_of(manager, "User1", "p1") == 4_000
    assert charge(11_000) == 0
    assert manager.bucket(user="User1", client_id="p1", now_ms=T).rate.total == 38_500


Change = Callable[[Limits], None]


def setting(entity: Entity, limit: float) -> Change:
    return lambda limits: limits.__setitem__(entity, limit)


def removing(entity: Entity) -> Change:
    return lambda limits: limits.__delitem__(entity)


SETUP: Limits = {
    (DEFAULT, None): 1_000,
    (None, DEFAULT): 2_000,
    (DEFAULT, DEFAULT): 3_000,
    ("userA", None): 4_000,
    ("userA", "client1"): 5_000,
    ("userB", None): 6_000,
    ("userB", "client1"): 7_000,
    ("userB", DEFAULT): 8_000,
    ("userC", None): 10_000,
    (None, "client1"): 9_000,
}
# Row, changes before the row, user, client-id, limit, tags, bytes charged, sum of the bucket, throttle time.
PRECEDENCE: tuple[tuple[int, tuple[Change, ...], str, str, int, tuple[str, str], int, int, int], ...] = (
    (1, (), "userA", "client1", 5_000, ("userA", "client1"), 49_500, 49_500, 0),
    (2, (), "userA", "client2", 4_000, ("userA", ""), 49_500, 49_500, 2_375),
    (3, (), "userA", "client3", 4_000, ("userA", ""), 0, 49_500, 2_375),
    (4, (), "userA", "client1", 5_000, ("userA", "client1"), 0, 49_500, 0),
    (5, (), "userB", "client1", 7_000, ("userB", "client1"), 88_000, 88_000, 2_571),
    (6, (), "userB", "client2", 8_000, ("userB", "client2"), 77_000, 77_000, 0),
    (7, (), "userB", "client3", 8_000, ("userB", "client3"), 77_000, 77_000, 0),
    (8, (), "userD", "client1", 3_000, ("userD", "client1"), 38_500, 38_500, 2_833),
    (9, (), "userD", "client2", 3_000, ("userD", "client2"), 27_500, 27_500, 0),
    (10, (), "userE", "client1", 3_000, ("userE", "client1"), 27_500, 27_500, 0),
    (11, (removing((DEFAULT, DEFAULT)),), "userD", "client1", 1_000, ("userD", ""), 0, 0, 0),
    (12, (), "userE", "client4", 1_000, ("userE", ""), 16_500, 16_500, 6_500),
    (13, (), "userF", "client4", 1_000, ("userF", ""), 8_800, 8_800, 0),
    (14, (), "userF", "client5", 1_000, ("userF", ""), 8_800, 17_600, 7_600),
    (15, (removing((DEFAULT, None)),), "userF", "client4", 2_000, ("", "client4"), 0, 0, 0),
    (16, (), "userF", "client5", 2_000, ("", "client5"), 0, 0, 0),
    (17, (), "userF", "client5", 2_000, ("", "client5"), 27_500, 27_500, 3_750),
    (18, (), "userG", "client5", 2_000, ("", "client5"), 0, 27_500, 3_750),
    (
        19,
        (setting(("userA", None), 8_000), setting(("userA", "client1"), 10_000)),
        "userA",
        "client2",
        8_000,
        ("userA", ""),
        0,
        49_500,
        0,
    ),
    (20, (), "userA", "client2", 8_000, ("userA", ""), 49_500, 99_000, 2_375),
    (21, (), "userA", "client1", 10_000, ("userA", "client1"), 0, 49_500, 0),
    (22, (), "userA", "client1", 10_000, ("userA", "client1"), 66_000, 115_500, 1_550),
    (23, (removing(("userA", "client1")),), "userA", "client6", 8_000, ("userA", ""), 0, 99_000, 2_375),
    (
        24,
        (setting(("userA", "client6"), 11_000),),
        "userA",
        "client6",
        11_000,
        ("userA", "client6"),
        93_500,
        93_500,
        0,
    ),
    (
        25,
        (setting(("userA", DEFAULT), 12_000), removing(("userA", "client6"))),
        "userA",
        "client6",
        12_000,
        ("userA", "client6"),
        44_000,
        137_500,
        1_458,
    ),
)


def test_v15_the_precedence_of_quotas() -> None:
    """Source: Kafka's ClientQuotaManagerTest.testQuotaConfigPrecedence, all rows in order."""
    limits = dict(SETUP)
    manager = manager_of(limits)

    for number, changes, user, client_id, limit, tags, recorded, total, wait_ms in PRECEDENCE:
        for change in changes:
            change(limits)
            put(manager, limits)

        bucket = manager.bucket(user=user, client_id=client_id, now_ms=T)

        assert (number, bucket.limit, bucket.tags) == (number, limit, tags)
        assert (number, manager.max_value_in_window(bucket.limit)) == (number, 10 * limit)
        assert (number, bucket.charge(recorded, now_ms=T)) == (number, wait_ms)
        assert (number, bucket.rate.total) == (number, total)


def test_v16_a_spike_over_quota_waits_as_long_as_in_kafka() -> None:
    """Source: Kafka's ClientQuotaManagerTest.testQuotaViolation."""
    manager = manager_of({(None, DEFAULT): 500.0})
    charge = partial(manager.record_and_get_throttle_time_ms, user="ANONYMOUS", client_id="unknown")

    before = [charge(400, now_ms=T + second * 1_000) for second in range(10)]
    spike = charge(2_300, now_ms=T + 10_500)
    after = [charge(400, now_ms=T + 12_600 + second * 1_000) for second in range(10)]
    at_last = charge(0, now_ms=T + 22_600)

    assert before == [0] * 10
    # (400 B * 10 + 2,300 B) / 10.5 s = 600 B/s, so the wait is (600 - 500) / 500 * 10.5 s = 2.1 s.
    assert spike == 2_100
    assert after == [1_200, 1_200, 1_200, 1_200, 1_200, 1_200, 1_200, 1_200, 1_700, 0]
    assert at_last == 0


def test_v18_the_shortest_window_holds_n_minus_one_samples() -> None:
    """Source: Kafka's ClientQuotaManagerTest.testGetMaxValueInQuotaWindowWithNonDefaultQuotaWindow."""
    manager = manager_of({}, kind=QuotaKind.FETCH, samples=4)
    assert manager.bucket(user="alice", client_id="etl", now_ms=T).max_fetch_bytes == 2**31 - 1

    put(manager, {(DEFAULT, None): 10.0})

    bucket = manager.bucket(user="alice", client_id="etl", now_ms=T)
    assert manager.max_value_in_window(bucket.limit) == 30
    assert bucket.max_fetch_bytes == 30


def test_v19_a_quota_is_set_and_removed() -> None:
    """Source: testSetAndRemoveDefaultUserQuota and two similar tests of Kafka's ClientQuotaManagerTest."""
    entities: tuple[Entity, ...] = ((DEFAULT, None), ("alice", None), ("alice", "etl"))
    for entity in entities:
        manager = manager_of({})
        charge = partial(manager.record_and_get_throttle_time_ms, 11_000, user="alice", client_id="etl", now_ms=T)

        assert limit_of(manager, "alice", "etl") == float(UNLIMITED), entity
        fresh = manager_of({entity: 10.0})
        assert fresh.record_and_get_throttle_time_ms(11_000, user="alice", client_id="etl", now_ms=T) == 1_090_000, (
            entity
        )
        assert charge() == 0, entity

        put(manager, {entity: 10.0})
        assert limit_of(manager, "alice", "etl") == 10, entity
        assert manager.max_value_in_window(limit_of(manager, "alice", "etl")) == 100, entity
        assert charge() > 0, entity

        put(manager, {})
        assert limit_of(manager, "alice", "etl") == float(UNLIMITED), entity
        assert charge() == 0, entity


def test_v27_an_expired_bucket_is_made_again_and_throttles() -> None:
    """Source: Kafka's ClientQuotaManagerTest.testExpireThrottleTimeSensor and testExpireQuotaSensors."""
    manager = manager_of({(None, DEFAULT): 500.0})
    charge = partial(manager.record_and_get_throttle_time_ms, user="ANONYMOUS", client_id="client1")
    charge(100, now_ms=T)
    expired_ms = T + EXPIRES_AFTER_MS + 1

    manager.expire(now_ms=expired_ms)

    assert len(manager) == 0
    assert charge(10_000, now_ms=expired_ms) > 0
    assert [bucket.tags for bucket in manager] == [("", "client1")]


def test_v28_a_client_id_names_its_bucket_as_it_is() -> None:
    """Source: Kafka's ClientQuotaManagerTest.testClientIdNotSanitized."""
    manager = manager_of({(None, DEFAULT): 500.0})

    bucket = manager.bucket(user="ANONYMOUS", client_id="client@#$%", now_ms=T)

    assert bucket.tags == ("", "client@#$%")


def test_v29_a_first_record_over_quota() -> None:
    """A rate equal to the quota passes, and a byte more does not."""
    for bound, value, wait_ms in (
        (1_000, 10_000, 0),
        (1_000, 10_001, 1),
        (1_000, 10_006, 6),
        (1_000, 15_000, 5_000),
        (1_000, 20_000, 10_000),
        (1_024, 102_400, 90_000),
        # Kafka's int32 wraps around to -727,389,968 and does not throttle.
        (1, 10**9, 2**31 - 1),
    ):
        manager = manager_of({("alice", None): bound})

        got_ms = manager.record_and_get_throttle_time_ms(value, user="alice", client_id="etl", now_ms=T)

        assert got_ms == wait_ms, (bound, value)


def test_v29_half_a_millisecond_is_rounded_up() -> None:
    """Waits for rates and for tokens are rounded as by Java's Math.round."""
    for exact_ms, wait_ms in ((0.5, 1), (1.5, 2), (2.5, 3), (-0.5, 0), (-1.5, -1), (-2.5, -2)):
        assert throttle_time_ms(byte_rate=1_000 + exact_ms, byte_rate_limit=1_000, window_ms=1_000) == wait_ms, exact_ms
        assert wait_for_tokens_ms(tokens=-exact_ms, byte_rate_limit=1_000) == max(wait_ms, 0), exact_ms


def test_v30_a_quota_that_changes_keeps_what_was_used() -> None:
    manager = manager_of({("u", None): 1_000})
    charge = partial(manager.record_and_get_throttle_time_ms, user="u", client_id="etl", now_ms=T)

    assert charge(5_000) == 0
    put(manager, {("u", None): 400})
    assert charge(0) == 2_500
    put(manager, {})
    assert charge(0) == 0
    assert limit_of(manager, "u", "etl") == float(UNLIMITED)
    put(manager, {("u", None): 400})
    assert charge(0) == 2_500


def test_v31_uncharged_fetches_get_half_of_the_quota() -> None:
    """At 1,000 B/s, a broker refuses fetches of 6,000 bytes for 12 s. The proxy delivers them."""
    manager = manager_of({("alice", None): 1_000}, kind=QuotaKind.FETCH)
    bucket = manager.bucket(user="alice", client_id="etl", now_ms=T)
    assert bucket.charge(6_000, now_ms=T) == 0

    for second in (0, 2, 4, 6, 8, 10):
        assert bucket.charge(6_000, now_ms=T + second * 1_000) == 2_000
        bucket.rate.record(-6_000, now_ms=T + second * 1_000)

    assert bucket.charge(6_000, now_ms=T + 12_000) == 0


def test_v32_uncharged_batch_above_a_window_starves() -> None:
    """A broker never delivers 5,000 bytes at 100 B/s. The proxy delivers them, and the client waits once."""
    manager = manager_of({("alice", None): 100}, kind=QuotaKind.FETCH)
    bucket = manager.bucket(user="alice", client_id="etl", now_ms=T)

    for attempt in range(5):
        assert bucket.charge(5_000, now_ms=T + attempt * 40_000) == 40_000
        bucket.rate.record(-5_000, now_ms=T + attempt * 40_000)

    assert bucket.charge(5_000, now_ms=T + 200_000) == 40_000
    assert bucket.charge(100, now_ms=T + 240_000) == 0


def test_v33_a_response_filled_to_the_cap_exceeds_it_by_its_overhead() -> None:
    """The cap limits the bytes of records, and the charge is the size of the frame."""
    manager = manager_of({("alice", None): 1_000}, kind=QuotaKind.FETCH)
    bucket = manager.bucket(user="alice", client_id="etl", now_ms=T)

    assert bucket.max_fetch_bytes == 10_000
    assert bucket.has_room(bucket.max_fetch_bytes, now_ms=T)
    assert bucket.charge(bucket.max_fetch_bytes + 60, now_ms=T) == 60


def test_v34_uncharge_without_a_charge_is_a_credit() -> None:
    bucket = manager_of({}, kind=QuotaKind.FETCH).bucket(user="alice", client_id="etl", now_ms=T)

    bucket.rate.record(-500, now_ms=T)

    assert bucket.rate.measure(now_ms=T) == -50
    assert bucket.limit == float(UNLIMITED)


def test_v39_an_empty_fetch_is_charged_too() -> None:
    """The charge is 4 bytes and the body, which is the frame without the tag byte of a flexible header."""
    for versions, frame_bytes, charged in [
        ((0,), 8, 8),
        (range(1, 7), 12, 12),
        (range(7, 12), 18, 18),
        (range(12, 18), 17, 16),
    ]:
        assert {fetch.charged_bytes(frame_bytes, version) for version in versions} == {charged}, (
            versions,
            frame_bytes,
            charged,
        )


def test_v63_consumer_with_batches_above_its_cap_gets_them_and_is_throttled() -> None:
    """Source: Kafka's BaseQuotaTest.testProducerConsumerOverrideLowerQuota."""
    manager = manager_of({("alice", None): 250}, kind=QuotaKind.FETCH)
    bucket = manager.bucket(user="alice", client_id="etl", now_ms=T)

    assert bucket.max_fetch_bytes == 2_500
    assert bucket.charge(4_096, now_ms=T) == 6_384
    assert bucket.rate.total == 4_096


def test_v15_rules_resolve_as_in_the_table() -> None:
    table = RuleTable(QuotaKind.PRODUCE, rules_of(SETUP))

    for _, changes, user, client_id, limit, tags, *_ in PRECEDENCE:
        if changes:
            break
        assert table.resolve(user=user, client_id=client_id)[::3] == (tags, limit)
