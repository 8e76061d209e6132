"""``controller_mutation_rate``: how many partitions a client may create, add and delete in a second (KIP-599).

The *permits* of a topic are the partitions that it is created with, that are added to it, or that it has when it is
deleted. A client whose tokens are negative violates its quota.

* Strict, for versions whose clients know THROTTLING_QUOTA_EXCEEDED: each topic is checked, then recorded. So everything
  is accepted while the tokens are not negative, and nothing after that. The client learns how long to wait.
* Permissive, for older versions: everything is recorded, and the client waits until its tokens are back at 0.

The permits of a request become known in three steps: from the request; before it is passed on, from the cluster
(``uncounted_topics``); from its response (``settle``), which says what was not done. Kafka's controller records a topic
after validation; this proxy records first and takes back.

As in Kafka 4, requests with ``validate_only`` are recorded. Kafka refuses a topic that comes twice; this proxy counts
it once and leaves the refusal to the broker.

Source: ``StrictControllerMutationQuota``, ``PermissiveControllerMutationQuota`` and ``ControllerMutationQuotaManager``,
``ReplicationControlManager.createTopic``, ``createPartitions`` and ``deleteTopic`` in Apache Kafka.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.topic_mutations import (
    BROKER_DEFAULT,
    FIRST_REFUSABLE_VERSION,
    NO_ERROR,
    MutationRequest,
    Topic,
    TopicMutation,
    TopicResult,
)
from kafka_quota_proxy.proxy.quota.bucket import Bucket

# Permits of an unknown topic: the default of num.partitions, and the least that a topic has.
ASSUMED_PERMITS: Final = 1
# Errors after which the controller may have done the change, or may do it later: UNKNOWN_SERVER_ERROR,
# REQUEST_TIMED_OUT, NETWORK_EXCEPTION.
_PERHAPS_DONE: Final = frozenset({-1, 7, 13})


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationDecision:
    """Which topics of a request pass.

    Attributes:
        is_strict: Whether topics may be refused.
        permits: The permits of each topic that passes, in the order of the request.
        refused: Topics that are not passed on.
        missing: Permits of topics that do not exist according to a broker, if the change succeeds all the same. The
            broker may not know a new topic yet, which has one partition at least.
    """

    is_strict: bool
    permits: Mapping[Topic, int]
    refused: frozenset[Topic]
    missing: Mapping[Topic, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationThrottle:
    """The wait of a client when its request was recorded. The response says what is left of it."""

    throttle_time_ms: int
    recorded_ms: int


def uncounted_topics(request: MutationRequest, known: Container[Topic]) -> tuple[Topic, ...]:
    """Return the topics whose partitions must be counted before ``decide``, each once; none for CreateTopics.

    The cluster was asked for the ``known`` ones.
    """
    if request.api_key == ApiKey.CREATE_TOPICS:
        return ()
    return tuple(dict.fromkeys(mutation.topic for mutation in request.topics if mutation.topic not in known))


def decide(
    request: MutationRequest,
    bucket: Bucket,
    *,
    known: Mapping[Topic, int],
    default_partitions: int,
    may_refuse: bool,
    now_ms: int,
) -> MutationDecision:
    """Decide for each topic whether it passes. Changes nothing.

    Args:
        request: The client's request.
        bucket: A bucket of ``QuotaKind.MUTATION``.
        known: The partitions of topics; 0 for a topic that does not exist. Others have ``ASSUMED_PERMITS``.
        default_partitions: The broker's ``num.partitions``.
        may_refuse: False makes versions permissive that are strict in Kafka.
        now_ms: The time.
    """
    is_strict = may_refuse and request.api_version >= FIRST_REFUSABLE_VERSION[request.api_key]
    passed: dict[Topic, int] = {}
    refused: set[Topic] = set()
    recorded = 0
    for topic, costs in _costs(request, known, default_partitions).items():
        permits = ASSUMED_PERMITS if costs is None else costs
        # A topic without permits is never refused: the broker answers it with an error.
        if permits and is_strict and bucket.is_limited and not bucket.has_room(recorded, now_ms=now_ms):
            refused.add(topic)
            continue
        passed[topic] = permits
        recorded += permits
    missing = {one.topic: max(one.partitions - 1, 1) for one in request.topics if known.get(one.topic) == 0}
    return MutationDecision(
        is_strict=is_strict,
        permits=passed,
        refused=frozenset(refused),
        missing=missing,
    )


def record(decision: MutationDecision, bucket: Bucket, *, now_ms: int) -> MutationThrottle:
    """Charge the topics that pass, at the time of ``decide``.

    Returns:
        The client's wait. With a strict quota it is above 0 only if a topic was refused.
    """
    wait_ms = min(bucket.charge(sum(decision.permits.values()), now_ms=now_ms), bucket.max_throttle_time_ms)
    if decision.is_strict and not decision.refused:
        wait_ms = 0
    return MutationThrottle(throttle_time_ms=wait_ms, recorded_ms=now_ms)


def throttle_time_ms(throttle: MutationThrottle, *, now_ms: int) -> int:
    """Return what is left of a wait when the response has come, or 0.

    Source: ``AbstractControllerMutationQuota.throttleTime``.
    """
    return max(0, throttle.throttle_time_ms - (now_ms - throttle.recorded_ms))


def settle(decision: MutationDecision, results: Collection[TopicResult], bucket: Bucket, *, now_ms: int) -> int:
    """Correct the charge by the broker's response; return by how many permits.

    A topic without a result stays charged.
    """
    by_topic: dict[Topic | None, TopicResult] = {}
    for result in results:
        by_topic[result.name] = by_topic[result.topic_id] = result
    difference = 0
    for topic, permits in decision.permits.items():
        result_of_topic = by_topic.get(topic)
        if result_of_topic is None or result_of_topic.error_code in _PERHAPS_DONE:
            continue
        if result_of_topic.error_code != NO_ERROR:
            difference -= permits
        elif result_of_topic.partitions > 0:
            difference += result_of_topic.partitions - permits
        else:
            difference += decision.missing.get(topic, 0)
    if difference:
        bucket.uncharge(-difference, now_ms=now_ms)
    return difference


def _costs(request: MutationRequest, known: Mapping[Topic, int], default_partitions: int) -> dict[Topic, int | None]:
    """Return the permits of each topic; None if unknown. A topic that comes twice has the larger number."""
    costs: dict[Topic, int | None] = {}
    for mutation in request.topics:
        topic, permits = mutation.topic, _cost(request.api_key, mutation, known, default_partitions)
        before = costs.get(topic)
        costs[topic] = permits if before is None else max(before, permits or before)
    return costs


def _cost(api_key: int, mutation: TopicMutation, known: Mapping[Topic, int], default_partitions: int) -> int | None:
    if api_key == ApiKey.CREATE_TOPICS:
        partitions = mutation.partitions
        return default_partitions if partitions == BROKER_DEFAULT else max(partitions, 0)
    count = known.get(mutation.topic)
    if count is None or api_key == ApiKey.DELETE_TOPICS:
        return count
    # Adding partitions does not create a topic.
    return max(mutation.partitions - count, 0) if count else 0
