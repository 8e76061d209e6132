"""Applies ``controller_mutation_rate``, which limits how many partitions a client changes in a second (KIP-599).

The *permits* of a topic are the number of partitions that it is created with, that are added to it, or that it has
when it is deleted. Each permit takes a token. A client violates its quota while its tokens are negative.

* A strict quota is for versions of the API that have the error THROTTLING_QUOTA_EXCEEDED. Each topic is checked and
  then recorded. So topics are accepted until the tokens are negative, and then refused. The response says how long the
  client must wait.
* A permissive quota is for older versions. All topics are recorded, and the client waits until its tokens are back at
  0.

The permits of a request become known in three steps. The request has some of them. Before it is passed on, the cluster
is asked for the partitions of topics (``uncounted_topics``). The response shows which changes were not made
(``settle``). Kafka's controller records a topic after it has validated the change. This proxy records the topic first,
and takes back the permits of a change that was not made.

As in Kafka 4, requests with ``validate_only`` are recorded. Kafka refuses a topic that comes twice in a request. This
proxy counts the topic once and leaves the refusal to the broker.

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

# The permits of a topic with an unknown number of partitions. No topic has fewer, and 1 is the default of
# num.partitions.
ASSUMED_PERMITS: Final = 1
# After these errors the controller may have made the change, or may make it later: UNKNOWN_SERVER_ERROR,
# REQUEST_TIMED_OUT and NETWORK_EXCEPTION.
_PERHAPS_DONE: Final = frozenset({-1, 7, 13})


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationDecision:
    """Says which topics of a request pass, and what they cost.

    Attributes:
        is_strict: Whether topics may be refused.
        permits: The permits of each topic that passes, in the order of the request.
        refused: The topics that are not passed on to the broker.
        missing: The permits of topics that do not exist, according to a broker. They are charged if the change
            succeeds all the same, because a broker may not know a new topic yet. It has at least one partition.
    """

    is_strict: bool
    permits: Mapping[Topic, int]
    refused: frozenset[Topic]
    missing: Mapping[Topic, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationThrottle:
    """How long a client must wait, counted from the time ``recorded_ms`` when its request was recorded."""

    throttle_time_ms: int
    recorded_ms: int


def uncounted_topics(request: MutationRequest, known: Container[Topic]) -> tuple[Topic, ...]:
    """Return the topics for which the cluster must be asked for the number of partitions before ``decide``.

    Each topic comes once. The numbers of ``known`` topics need not be asked for. CreateTopics requests need no numbers.
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
        known: The number of partitions by topic, 0 for a topic that does not exist. All other topics have
            ``ASSUMED_PERMITS``.
        default_partitions: The broker's ``num.partitions``.
        may_refuse: Whether topics may be refused. With False, all versions of the API are permissive.
        now_ms: The time.
    """
    is_strict = may_refuse and request.api_version >= FIRST_REFUSABLE_VERSION[request.api_key]
    passed: dict[Topic, int] = {}
    refused: set[Topic] = set()
    recorded = 0
    for topic, costs in _costs(request, known, default_partitions).items():
        permits = ASSUMED_PERMITS if costs is None else costs
        # A topic without permits is never refused, because the broker itself answers it with an error.
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
    """Charge the topics that pass. ``now_ms`` must be the time of ``decide``.

    Returns:
        How long the client must wait. With a strict quota, the wait is above 0 only if a topic was refused.
    """
    wait_ms = min(bucket.charge(sum(decision.permits.values()), now_ms=now_ms), bucket.max_throttle_time_ms)
    if decision.is_strict and not decision.refused:
        wait_ms = 0
    return MutationThrottle(throttle_time_ms=wait_ms, recorded_ms=now_ms)


def throttle_time_ms(throttle: MutationThrottle, *, now_ms: int) -> int:
    """Return how many milliseconds of a wait are left when the response has come, or 0.

    Source: ``AbstractControllerMutationQuota.throttleTime``.
    """
    return max(0, throttle.throttle_time_ms - (now_ms - throttle.recorded_ms))


def settle(decision: MutationDecision, results: Collection[TopicResult], bucket: Bucket, *, now_ms: int) -> int:
    """Correct the charge to what the broker did according to ``results``, and return the difference in permits.

    Topics without a result stay charged.
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
    """Return the permits of each topic, or None if they are unknown. If a topic comes twice, the larger one counts."""
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
