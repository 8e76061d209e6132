"""Who pays, by which rule, and for how long the client is silent."""

import pytest

from config.model import DEFAULT, Enforcement, Principals, QuotaRule
from tests.support.wire import Wire

A_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=1_000.0)


def test_produce_and_fetch_charge_buckets_of_their_own() -> None:
    account = Wire(A_RULE).session.account

    assert account.produce_bucket(b"etl", 0).limit == 500.0
    assert account.fetch_bucket(b"etl", 0).limit == 1_000.0


def test_a_bucket_is_looked_up_once() -> None:
    wire = Wire(A_RULE)
    account = wire.session.account
    bucket = account.produce_bucket(b"etl", 0)

    wire.listening.quotas.produce._places._by_tags.clear()

    assert account.produce_bucket(b"etl", 0) is bucket
    assert account.produce_bucket(b"other", 0) is not bucket


def test_a_bucket_that_expired_is_looked_up_again() -> None:
    wire = Wire(A_RULE)
    account = wire.session.account
    bucket = account.produce_bucket(b"etl", wire.now_ms)

    wire.listening.quotas.expire(now_ms=wire.now_ms + 3_600_001)

    assert account.produce_bucket(b"etl", wire.now_ms + 3_600_001) is not bucket


def test_who_logs_in_has_another_bucket_and_who_does_so_again_has_his_own() -> None:
    account = Wire(QuotaRule(user=DEFAULT, producer_byte_rate=500.0)).session.account
    before = account.produce_bucket(b"etl", 0)

    account.log_in("alice")
    bucket = account.produce_bucket(b"etl", 0)
    account.log_in("alice")

    assert (before.tags.user, bucket.tags.user) == ("ANONYMOUS", "alice")
    assert account.produce_bucket(b"etl", 0) is bucket


def test_a_client_id_that_is_no_text_has_a_bucket_of_its_own() -> None:
    account = Wire(A_RULE).session.account

    assert account.produce_bucket(b"\xff", 0) is not account.produce_bucket(b"\xfe", 0)
    assert account.produce_bucket(b"\xff", 0).tags.client_id == "\\xff"


@pytest.mark.parametrize(
    ("enforcement", "has_answer", "muted_ms", "told_ms"),
    [
        (Enforcement.RESPOND, True, 2_000, 2_000),
        (Enforcement.RESPOND, False, 2_000, 2_000),
        (Enforcement.DELAY, True, 0, 2_000),
        (Enforcement.DELAY, False, 2_000, 2_000),
        (Enforcement.OBSERVE, True, 0, 0),
        (Enforcement.OBSERVE, False, 0, 0),
    ],
)
def test_how_a_client_is_slowed(enforcement: Enforcement, has_answer: bool, muted_ms: int, told_ms: int) -> None:
    wire = Wire(A_RULE, enforcement=enforcement)
    account = wire.session.account
    bucket = account.produce_bucket(b"etl", wire.now_ms)

    assert account.slow_down(bucket, 2_000, now_ms=wire.now_ms, has_answer=has_answer) == told_ms
    assert wire.muted_for_ms == muted_ms
    assert list(wire.listening.counters.newly_throttled) == [bucket]


def test_a_longer_mute_stays() -> None:
    wire = Wire(A_RULE)

    wire.session.account.mute(3_000, now_ms=wire.now_ms)
    wire.session.account.mute(1_000, now_ms=wire.now_ms)

    assert wire.muted_for_ms == 3_000


def test_a_rule_says_how_before_its_listener_does() -> None:
    rule = QuotaRule(client_id="etl", producer_byte_rate=500.0, enforcement=Enforcement.OBSERVE)
    account = Wire(rule, enforcement=Enforcement.DELAY).session.account

    assert account.observes(account.produce_bucket(b"etl", 0))
    assert account.enforcement(account.produce_bucket(b"other", 0)) is Enforcement.DELAY


@pytest.mark.parametrize(
    ("is_inter_broker", "brokers", "believed"),
    [(False, set(), False), (True, set(), True), (False, {"ANONYMOUS"}, True), (False, {"broker1"}, False)],
)
def test_who_may_say_that_he_is_a_replica(is_inter_broker: bool, brokers: set[str], believed: bool) -> None:
    wire = Wire(is_inter_broker=is_inter_broker, principals=Principals(brokers=frozenset(brokers)))

    assert wire.session.account.believes_replicas() is believed
