"""Tests which bucket and rule a client's requests are charged to, and how long the client is muted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.config.principals import ANONYMOUS, Principals
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.line import Line
from kafka_quota_proxy.proxy.session.client_account import ClientAccount, ConnectionContext
from tests.support.wire import Wire

A_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=1_000.0)


def test_a_bucket_that_expired_is_looked_up_again() -> None:
    wire = Wire(A_RULE)
    account = wire.session.account
    bucket = account.bucket(QuotaKind.PRODUCE, b"etl", wire.now_ms)

    wire.listening.quotas.expire(now_ms=wire.now_ms + 3_600_001)

    assert account.bucket(QuotaKind.PRODUCE, b"etl", wire.now_ms + 3_600_001) is not bucket


def test_login_changes_the_bucket_and_a_second_login_keeps_it() -> None:
    account = Wire(QuotaRule(user=DEFAULT, producer_byte_rate=500.0)).session.account
    before = account.bucket(QuotaKind.PRODUCE, b"etl", 0)

    account.log_in("alice")
    bucket = account.bucket(QuotaKind.PRODUCE, b"etl", 0)
    account.log_in("alice")

    assert (before.tags.user, bucket.tags.user) == ("ANONYMOUS", "alice")
    assert account.bucket(QuotaKind.PRODUCE, b"etl", 0) is bucket


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
def test_enforcement_of_rule_and_listener(
    enforcement: Enforcement, has_answer: bool, muted_ms: int, told_ms: int
) -> None:
    wire = Wire(A_RULE, enforcement=enforcement)
    account = wire.session.account
    bucket = account.bucket(QuotaKind.PRODUCE, b"etl", wire.now_ms)

    assert account.throttle(bucket, 2_000, now_ms=wire.now_ms, has_answer=has_answer) == told_ms
    assert wire.muted_for_ms == muted_ms
    assert list(wire.listening.counters.newly_throttled) == [bucket]
    assert wire.listening.quotas.rules.throttle_times[bucket.kind].by_entity == (
        {(None, DEFAULT): told_ms} if told_ms else {}
    )


def test_a_line_that_everybody_has_left_adds_nothing_to_the_throttle_time() -> None:
    wire = Wire(A_RULE, enforcement=Enforcement.RESPOND)
    account = wire.session.account
    bucket = account.bucket(QuotaKind.PRODUCE, b"etl", wire.now_ms)
    bucket.line = Line(wire.listening.quotas.lines)
    place = bucket.line.take(None)
    bucket.line.wait(place)
    bucket.silent_until_ms = wire.now_ms + 5_000

    waits_ms = account.throttle(bucket, 2_000, now_ms=wire.now_ms)
    bucket.line.leave(place)

    assert waits_ms == 5_000
    assert account.throttle(bucket, 2_000, now_ms=wire.now_ms) == 2_000


@pytest.mark.parametrize("enforcement", Enforcement)
def test_log_gets_each_throttle_with_the_address(enforcement: Enforcement) -> None:
    wire = Wire(A_RULE, enforcement=enforcement)
    account = wire.session.account
    account.peer_host = "10.0.0.5"
    bucket = account.bucket(QuotaKind.FETCH, b"etl", wire.now_ms)
    waited_ms = 0 if enforcement is Enforcement.OBSERVE else 2_000

    account.throttle(bucket, 2_000, now_ms=wire.now_ms)
    account.throttle(bucket, 1_000, now_ms=wire.now_ms)
    (recent,) = wire.listening.counters.newly_throttled.values()

    assert (recent.began_ms, recent.until_ms - wire.now_ms, list(recent.hosts)) == (
        wire.now_ms, waited_ms, ["10.0.0.5"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("is_inter_broker", "brokers", "believed"),
    [(False, set(), False), (True, set(), True), (False, {"ANONYMOUS"}, True), (False, {"broker1"}, False)],
)
def test_replica_id_is_trusted_for_brokers_only(is_inter_broker: bool, brokers: set[str], believed: bool) -> None:
    wire = Wire(is_inter_broker=is_inter_broker, principals=Principals(brokers=frozenset(brokers)))

    assert wire.session.account.believes_replicas() is believed


def close(wire: Wire) -> None:
    wire.session.account.close(now_ms=wire.now_ms)


def test_bucket_is_held_until_client_id_changes_or_connection_ends() -> None:
    wire = Wire(A_RULE)
    account = wire.session.account

    one, other = account.bucket(QuotaKind.PRODUCE, b"one", 0), account.bucket(QuotaKind.FETCH, b"one", 0)
    assert (one.holders, other.holders) == (1, 1)
    two = account.bucket(QuotaKind.PRODUCE, b"two", 0)
    account.release_stale((), now_ms=0)
    assert (one.holders, other.holders, two.holders) == (0, 0, 1)
    close(wire)
    close(wire)
    assert two.holders == 0


def test_bucket_in_flight_is_held_once() -> None:
    wire = Wire(A_RULE)
    account = wire.session.account
    one = account.bucket(QuotaKind.PRODUCE, b"one", 0)
    for _ in range(5):
        account.bucket(QuotaKind.PRODUCE, b"two", 0)
        account.bucket(QuotaKind.PRODUCE, b"one", 0)

    account.release_stale({one}, now_ms=0)

    assert one.holders == 2
    assert account.stale_buckets == [one]
    close(wire)
    assert one.holders == 0


NAMES = st.sampled_from([b"one", b"two", b"three", b"four", b"five"])


@given(
    most=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.integers(0, 3), NAMES, st.sampled_from(["charge", "charge", "owe", "leave", "reload", "expire"])),
        max_size=60,
    ),
    pauses_ms=st.lists(st.sampled_from([0, 0, 0, 400, 12_000, 3_600_001]), min_size=60, max_size=60),
)
def test_one_client_id_has_one_charged_bucket(
    most: int, steps: list[tuple[int, bytes, str]], pauses_ms: list[int]
) -> None:
    """Connections open, change their names and close in any order, with floods, reloads and expiry."""
    wire = Wire(A_RULE, max_buckets=most)
    quotas = wire.listening.quotas
    accounts: dict[int, ClientAccount] = {}
    names: dict[int, bytes] = {}
    now_ms = wire.now_ms
    for (which, name, what), pause_ms in zip(steps, pauses_ms, strict=False):
        now_ms += pause_ms
        if what == "reload":
            quotas.update(wire.config)
        elif what == "expire":
            quotas.expire(now_ms=now_ms)
        elif what == "leave":
            if which in accounts:
                accounts.pop(which).close(now_ms=now_ms)
        else:
            account = accounts.setdefault(which, ClientAccount(wire.listening))
            names[which] = name
            account.bucket(QuotaKind.PRODUCE, name, now_ms).charge(20_000 if what == "owe" else 1, now_ms=now_ms)
            account.release_stale((), now_ms=now_ms)
        charged: dict[bytes, set[int]] = {}
        for number, account in accounts.items():
            if account._generation == quotas.generation and QuotaKind.PRODUCE in account._buckets:
                charged.setdefault(names[number], set()).add(id(account._buckets[QuotaKind.PRODUCE]))
        assert all(len(buckets) == 1 for buckets in charged.values())
    for account in accounts.values():
        account.close(now_ms=now_ms)
    assert all(bucket.holders == 0 for bucket in quotas.produce)


TWO = QuotaRule(user=DEFAULT, connections=2, source="quotas.yaml:7")


def counted(listening: ConnectionContext, *, user: str = ANONYMOUS, client_id: bytes = b"etl") -> ClientAccount:
    """Return the account of an open connection with this user and client-id."""
    account = ClientAccount(listening)
    account.log_in(user)
    account.count_connection(client_id)
    return account


def test_connection_over_its_limit_names_the_rule_and_is_not_counted() -> None:
    listening = Wire(TWO).listening
    accounts = [counted(listening, user="alice") for _ in range(3)]

    assert [account.refusal for account in accounts] == [
        "",
        "",
        "user='alice' client-id='' has 2 connections open, and quotas.yaml:7 allows 2",
    ]
    accounts[2].close(now_ms=0)
    assert listening.quotas.connections.open_now() == {("alice", ""): 2}
    accounts[0].close(now_ms=0)
    accounts[0].close(now_ms=0)
    assert not counted(listening, user="alice").refusal


def test_observed_connection_limit_refuses_nothing() -> None:
    for wire in (Wire(TWO, enforcement=Enforcement.OBSERVE), Wire(replace(TWO, enforcement=Enforcement.OBSERVE))):
        accounts = [counted(wire.listening) for _ in range(5)]

        assert [account.refusal for account in accounts] == [""] * 5
        assert wire.listening.counters.observed_connections == 3
        assert wire.listening.quotas.connections.open_now() == {(ANONYMOUS, ""): 5}


@pytest.mark.parametrize(
    "wire",
    [
        Wire(TWO, is_inter_broker=True),
        Wire(TWO, principals=Principals(brokers=frozenset({ANONYMOUS}))),
        Wire(TWO, principals=Principals(exempt=frozenset({ANONYMOUS}))),
    ],
)
def test_brokers_and_exempt_users_have_no_connection_limit(wire: Wire) -> None:
    assert [counted(wire.listening).refusal for _ in range(5)] == [""] * 5


def test_long_client_ids_are_kept_by_their_digests() -> None:
    listening = Wire(QuotaRule(client_id=DEFAULT, connections=1)).listening

    assert [bool(counted(listening, client_id=name * 32_000).refusal) for name in (b"a", b"b", b"a")] == [
        False,
        False,
        True,
    ]
    assert all(len(tags.client_id) < 200 for tags in listening.quotas.connections.open_now())
