"""``controller_mutation_rate``: how many partitions a client may have made, added and deleted in a second (KIP-599).

A topic's *permits* are the partitions that it is made with, that are added to it, or that it has when it is deleted. A
client whose tokens are below 0 violates its quota.

* Strict, for versions whose clients know THROTTLING_QUOTA_EXCEEDED: topic by topic, first it is looked whether the
  quota is violated, then the topic is recorded. So any number is accepted while there are tokens, and nothing once they
  are below 0; the client learns how long that will be.
* Permissive, for older versions: everything is recorded, and the client waits for what it owes.

What a request costs is learned in three places: from itself; before it is passed on, from the cluster (``to_learn``);
and from its answer (``settle``), which tells what was not done after all. Kafka's controller records what it has found
to be valid and no sooner; we record first and take back.

Like Kafka 4's controller, and unlike older ones, requests of ``validate_only`` are recorded. Unlike Kafka, which
refuses a topic that comes twice, we count it once and leave that to the broker.

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

# What is not known costs this: Kafka's own num.partitions, and no topic has fewer.
ASSUMED_PERMITS: Final = 1
# The controller may have done, or may yet do, what it answers so: UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT,
# NETWORK_EXCEPTION.
_PERHAPS_DONE: Final = frozenset({-1, 7, 13})


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationDecision:
    """What becomes of a request.

    Attributes:
        is_strict: Whether topics may be refused.
        permits: Of each topic that is passed on, in the order of the request.
        refused: Topics that are not passed on.
        unseen: Those that are not there, as a broker says that may not have heard of them yet, and what they cost if
            it is done all the same: they have one partition at least.
    """

    is_strict: bool
    permits: Mapping[Topic, int]
    refused: frozenset[Topic]
    unseen: Mapping[Topic, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationThrottle:
    """How long a client had to wait when its request was recorded, which it is told when the answer has come."""

    throttle_time_ms: int
    recorded_ms: int


def to_learn(request: MutationRequest, known: Container[Topic]) -> tuple[Topic, ...]:
    """Return the topics whose partitions have to be counted before ``decide``, each once.

    Args:
        request: About topics that are there already, or not: CreateTopics needs none.
        known: Those of which the cluster was asked.
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
    """Decide topic by topic what may pass. Changes nothing.

    Args:
        request: As the client sent it.
        bucket: Of ``QuotaKind.MUTATION``.
        known: How many partitions topics have; 0 for one that is not there. What is missing is assumed.
        default_partitions: The broker's ``num.partitions``.
        may_refuse: Whether a version that is strict in Kafka is so here; else it is permissive.
        now_ms: The time.
    """
    is_strict = may_refuse and request.api_version >= FIRST_REFUSABLE_VERSION[request.api_key]
    passed: dict[Topic, int] = {}
    refused: set[Topic] = set()
    recorded = 0
    for topic, costs in _costs(request, known, default_partitions).items():
        permits = ASSUMED_PERMITS if costs is None else costs
        # What costs nothing is never refused: it will have an error of its own.
        if permits and is_strict and bucket.is_limited and not bucket.has_room(recorded, now_ms=now_ms):
            refused.add(topic)
            continue
        passed[topic] = permits
        recorded += permits
    unseen = {one.topic: max(one.partitions - 1, 1) for one in request.topics if known.get(one.topic) == 0}
    return MutationDecision(
        is_strict=is_strict,
        permits=passed,
        refused=frozenset(refused),
        unseen=unseen,
    )


def record(decision: MutationDecision, bucket: Bucket, *, now_ms: int) -> MutationThrottle:
    """Charge what is passed on, at the time of ``decide``.

    Returns:
        How long the client has to wait. With a strict quota it has to only if some of the request was refused.
    """
    wait_ms = min(bucket.charge(sum(decision.permits.values()), now_ms=now_ms), bucket.max_throttle_time_ms)
    if decision.is_strict and not decision.refused:
        wait_ms = 0
    return MutationThrottle(throttle_time_ms=wait_ms, recorded_ms=now_ms)


def throttle_time_ms(throttle: MutationThrottle, *, now_ms: int) -> int:
    """Return what is left of a wait; 0 if nothing is. The broker may have taken long to answer.

    Source: ``AbstractControllerMutationQuota.throttleTime``.
    """
    return max(0, throttle.throttle_time_ms - (now_ms - throttle.recorded_ms))


def settle(decision: MutationDecision, results: Collection[TopicResult], bucket: Bucket, *, now_ms: int) -> int:
    """Correct what was recorded by what the broker answered.

    Args:
        decision: On the request.
        results: Of the broker's response.
        bucket: That was charged.
        now_ms: The time.

    Returns:
        How many permits more, or below 0 fewer, than were recorded first. A topic without a result costs what it did.
    """
    told: dict[Topic | None, TopicResult] = {}
    for result in results:
        told[result.name] = told[result.topic_id] = result
    difference = 0
    for topic, permits in decision.permits.items():
        answered = told.get(topic)
        if answered is None or answered.error_code in _PERHAPS_DONE:
            continue
        if answered.error_code != NO_ERROR:
            difference -= permits
        elif answered.partitions > 0:
            difference += answered.partitions - permits
        else:
            difference += decision.unseen.get(topic, 0)
    if difference:
        bucket.uncharge(-difference, now_ms=now_ms)
    return difference


def _costs(request: MutationRequest, known: Mapping[Topic, int], default_partitions: int) -> dict[Topic, int | None]:
    """Return the permits of each topic, None where they are not known. One that comes twice costs its dearest."""
    costs: dict[Topic, int | None] = {}
    for mutation in request.topics:
        topic, permits = mutation.topic, _cost(request.api_key, mutation, known, default_partitions)
        before = costs.get(topic)
        costs[topic] = permits if before is None else max(before, permits or before)
    return costs


def _cost(api_key: int, mutation: TopicMutation, known: Mapping[Topic, int], default_partitions: int) -> int | None:
    if api_key == ApiKey.CREATE_TOPICS:
        asked = mutation.partitions
        return default_partitions if asked == BROKER_DEFAULT else max(asked, 0)
    count = known.get(mutation.topic)
    if count is None or api_key == ApiKey.DELETE_TOPICS:
        return count
    # A topic that is not there is not made by growing it.
    return max(mutation.partitions - count, 0) if count else 0
