"""Tests which topics may be created, grown and deleted, and what that costs. tests/oracles compares it with Kafka's."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from kafka_quota_proxy.config.model import DEFAULT, KafkaSettings, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.topic_mutations import (
    BROKER_DEFAULT,
    FIRST_REFUSABLE_VERSION,
    MutationRequest,
    Topic,
    TopicMutation,
    TopicResult,
)
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.mutation import (
    MutationDecision,
    decide,
    settle,
    uncounted_topics,
)
from kafka_quota_proxy.proxy.quota.throttle import wait_for_tokens_ms

T = 1_767_225_600_000
CREATE, DELETE, GROW = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS
STRICT = {CREATE: 6, DELETE: 5, GROW: 3}
# The error codes UNKNOWN_SERVER_ERROR, NONE, UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, NETWORK_EXCEPTION,
# TOPIC_ALREADY_EXISTS.
ERRORS = (-1, 0, 3, 7, 13, 36)


def bucket_of(limit: float | None = 10.0, *, samples: int = 10, max_throttle_time_ms: int | None = None) -> Bucket:
    """Return a bucket with Kafka's burst of ``samples`` windows of a second each."""
    rules = () if limit is None else (QuotaRule(user=DEFAULT, controller_mutation_rate=limit),)
    manager = ClientQuotaManager(
        QuotaKind.MUTATION,
        rules,
        kafka=KafkaSettings(controller_quota_window_num=samples),
        shaping=Shaping.PACED,
        burst_ms=samples * 1_000,
        max_throttle_time_ms=max_throttle_time_ms,
    )
    return manager.bucket(user="alice", client_id="admin", now_ms=T)


def request_of(
    topics: Sequence[tuple[Topic, int]], *, api_key: ApiKey = CREATE, version: int | None = None
) -> MutationRequest:
    mutations = tuple(TopicMutation(topic, partitions, 0, 0) for topic, partitions in topics)
    return MutationRequest(api_key, STRICT[api_key] if version is None else version, 7, mutations, False, 0, 0)


def decided(
    bucket: Bucket,
    request: MutationRequest,
    *,
    known: Mapping[Topic, int] | None = None,
    default_partitions: int = 1,
    may_refuse: bool = True,
    now_ms: int = T,
) -> MutationDecision:
    return decide(
        request,
        bucket,
        known=known or {},
        default_partitions=default_partitions,
        may_refuse=may_refuse,
        now_ms=now_ms,
    )


def make(
    bucket: Bucket,
    decision: MutationDecision,
    results: Sequence[TopicResult] = (),
    *,
    now_ms: int = T,
    took_ms: int = 0,
) -> int:
    """Forward a request, which the broker answers after ``took_ms``. Return the throttle time in ms."""
    bucket.reserved.add(decision.reserved, now_ms=now_ms)
    return settle(decision, results, bucket, now_ms=now_ms + took_ms)


def rec(bucket: Bucket, partitions: int, now_ms: int, *, version: int = 6) -> int:
    """Ask for one topic with so many partitions. Return the throttle time in ms."""
    decision = decided(bucket, request_of([(b"t", partitions)], version=version), now_ms=now_ms)
    return make(bucket, decision, now_ms=now_ms)


def test_v38_wait_is_the_debt_over_the_quota() -> None:
    """Source: Kafka's ControllerMutationQuotaManagerTest.testThrottleTime (V38)."""
    for tokens, wait_ms in [(0, 0), (-5, 500), (-10, 1_000)]:
        assert wait_for_tokens_ms(tokens=tokens, byte_rate_limit=10.0) == wait_ms, (tokens, wait_ms)


def test_v38_strict_quota_accepts_any_number_while_tokens_last() -> None:
    """Source: Kafka's ControllerMutationQuotaManagerTest.testControllerMutationQuotaViolation (V38)."""
    bucket = bucket_of(10.0)
    now_ms = T
    for _ in range(10):
        assert rec(bucket, 10, now_ms) == 0
        now_ms += 1_000

    assert rec(bucket, 110, now_ms) == 0  # 100 - 110 = -10
    assert rec(bucket, 110, now_ms) == 1_000
    now_ms += 1_000
    assert rec(bucket, 110, now_ms) == 0  # exactly 0 tokens do not violate the quota
    assert rec(bucket, 110, now_ms) == 11_000


@pytest.mark.parametrize(("api_key", "first"), FIRST_REFUSABLE_VERSION.items())
def test_v38_only_versions_with_the_error_are_strict(api_key: int, first: int) -> None:
    """Source: Kafka's testNewStrictQuotaForStrictController (V38), with the versions of KIP-599."""
    assert first == STRICT[ApiKey(api_key)]
    topics: list[tuple[Topic, int]] = [(b"a", 150), (b"b", 1)]
    known: dict[Topic, int] = {b"a": 150, b"b": 1} if api_key == DELETE else {b"a": 10, b"b": 1}
    if api_key == GROW:
        topics = [(b"a", 160), (b"b", 2)]

    def outcome(version: int) -> tuple[set[Topic], int]:
        bucket = bucket_of(10.0)
        request = request_of(topics, api_key=ApiKey(api_key), version=version)
        decision = decided(bucket, request, known=known)
        return set(decision.refused), make(bucket, decision)

    # A strict version has 100 - 150 = -50 tokens left, and an older version has 100 - 151 = -51.
    assert outcome(first) == ({b"b"}, 5_000)
    assert outcome(first - 1) == (set(), 5_100)


def test_v38_without_a_quota_everything_passes() -> None:
    """Source: Kafka's testNewStrictQuotaForUnboundedQuota (V38)."""
    for version in [5, 6]:
        bucket = bucket_of(None)

        assert all(rec(bucket, 10**6, T, version=version) == 0 for _ in range(10)), version
        assert bucket.usage.amount == 10**7, version


def test_permits_are_partitions_created_added_or_deleted() -> None:
    bucket = bucket_of(1_000.0)
    known: dict[Topic, int] = {b"ten": 10, UUID(int=7): 7, b"gone": 0}

    made = decided(
        bucket, request_of([(b"a", 3), (b"none", 0), (b"wrong", -5), (b"any", BROKER_DEFAULT)]), default_partitions=4
    )
    grown = decided(bucket, request_of([(b"ten", 12), (b"gone", 3)], api_key=GROW), known=known)
    shrunk = decided(bucket, request_of([(b"ten", 9)], api_key=GROW), known=known)
    deleted = decided(bucket, request_of([(b"ten", 0), (UUID(int=7), 0), (b"gone", 0)], api_key=DELETE), known=known)

    assert made.permits == {b"a": 3, b"none": 0, b"wrong": 0, b"any": 4}
    assert grown.permits == {b"ten": 2, b"gone": 0}
    assert shrunk.permits == {b"ten": 0}
    assert deleted.permits == {b"ten": 10, UUID(int=7): 7, b"gone": 0}


def test_repeated_topic_is_charged_and_decided_once() -> None:
    """If only one of two entries for a topic were refused, the broker would carry out the other for free."""
    bucket = bucket_of(10.0)
    request = request_of([(b"a", 150), (b"b", 2), (b"a", 10), (b"b", 5), (b"none", 0)])

    decision = decided(bucket, request)

    assert decision.permits == {b"a": 150, b"none": 0}
    assert decision.refused == {b"b"}
    dearest = decided(bucket_of(1_000.0), request)
    assert dearest.permits == {b"a": 150, b"b": 5, b"none": 0}


def test_created_topics_need_no_count() -> None:
    topics: list[tuple[Topic, int]] = [(b"b", 3), (b"a", BROKER_DEFAULT), (UUID(int=7), 0), (b"b", 4)]

    assert uncounted_topics(request_of(topics), {}) == ()
    assert uncounted_topics(request_of(topics, api_key=DELETE), {}) == (b"b", b"a", UUID(int=7))
    assert uncounted_topics(request_of(topics, api_key=GROW), {b"b": 3}) == (b"a", UUID(int=7))


def test_response_says_what_is_left_of_the_wait() -> None:
    """Source: Kafka's ControllerMutationQuotaTest, AbstractControllerMutationQuota.throttleTime."""
    for version, topics in [(5, [(b"a", 10)]), (6, [(b"a", 10), (b"b", 1)])]:
        for after_ms, left_ms in [(0, 500), (200, 300), (500, 0), (9_000, 0)]:
            bucket = bucket_of(10.0)
            rec(bucket, 95, T)

            decision = decided(bucket, request_of(topics, version=version))

            assert make(bucket, decision, took_ms=after_ms) == left_ms, (version, after_ms, left_ms)


def test_refused_client_waits_for_reserved_partitions_until_their_reservation_is_over() -> None:
    bucket = bucket_of(10.0)
    bucket.reserved.add(150, now_ms=T)

    for after_ms, refused in [(0, {b"a"}), (14_999, {b"a"}), (15_000, set[Topic]())]:
        decision = decided(bucket, request_of([(b"a", 1)]), now_ms=T + after_ms)

        assert decision.refused == refused, after_ms
    assert settle(decided(bucket, request_of([(b"a", 1)])), (), bucket, now_ms=T) == 5_000


def result(name: bytes | None, error_code: int, partitions: int = -1, topic_id: UUID | None = None) -> TopicResult:
    return TopicResult(name, topic_id, error_code, partitions, 0, 0)


def tokens(bucket: Bucket) -> int:
    return next(count for count in range(1_000, -1_000, -1) if bucket.has_room(count, now_ms=T))


def test_failed_change_is_not_charged() -> None:
    """After a timeout or an unknown error, the change may have taken effect and is charged."""
    for error_code in ERRORS:
        bucket = bucket_of(10.0)
        decision = decided(bucket, request_of([(b"a", 20), (b"b", 30)]))

        make(bucket, decision, [result(b"b", 0), result(b"a", error_code)])

        is_done = error_code in (-1, 0, 7, 13)
        assert tokens(bucket) == (50 if is_done else 70), error_code
        assert bucket.usage.amount == (50 if is_done else 30), error_code
        assert bucket.usage.requests == 1, error_code


def test_response_corrects_the_default_partitions() -> None:
    bucket = bucket_of(10.0)
    decision = decided(bucket, request_of([(b"a", BROKER_DEFAULT), (b"b", 5), (b"c", BROKER_DEFAULT)]))

    # The response gives no partitions for "c", because the client may not describe its configs.
    make(bucket, decision, [result(b"a", 0, 12), result(b"b", 0, 5), result(b"c", 0, -1)])

    assert tokens(bucket) == 100 - 12 - 5 - 1


def test_result_matches_a_topic_by_id() -> None:
    bucket = bucket_of(10.0)
    known: dict[Topic, int] = {UUID(int=7): 7, b"a": 5}
    decision = decided(bucket, request_of([(UUID(int=7), 0), (b"a", 0)], api_key=DELETE), known=known)

    make(bucket, decision, [result(None, 100, topic_id=UUID(int=7)), result(b"a", 3, topic_id=UUID(int=9))])

    assert tokens(bucket) == 100


def test_failed_change_gives_no_tokens_to_a_bucket_that_was_full_meanwhile() -> None:
    bucket = bucket_of(10.0)
    decision = decided(bucket, request_of([(b"a", 20)]))
    bucket.reserved.add(decision.reserved, now_ms=T)
    rec(bucket, 100, T + 60_000)

    settle(decision, [result(b"a", 36)], bucket, now_ms=T + 60_000)

    assert bucket.tokens(now_ms=T + 60_000) == 0
