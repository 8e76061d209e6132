"""Applies ``controller_mutation_rate``, which limits how many partitions a client changes in a second (KIP-599).

The *permits* of a topic are the number of partitions that a request creates, adds or deletes. A client violates its
quota while the tokens of its token bucket are negative.

* A strict quota applies to versions of the API that have the error THROTTLING_QUOTA_EXCEEDED. Each topic is checked and
  then counted. So topics are accepted until the tokens are negative, and then refused.
* A permissive quota applies to older versions. All topics are counted, and the client must wait until its tokens are
  no longer negative.

A request to delete topics or to add partitions does not say how many partitions the topics have. Before such a request
is forwarded, the cluster is asked for these numbers (``uncounted_topics``). The permits of all topics are reserved
before the broker validates the change. The response shows which changes were made, and these are charged (``settle``).
A charge is never taken back: the token bucket may have become full meanwhile, and would give the same tokens twice.

As in Kafka 4, requests with ``validate_only`` are charged.

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
    """The topics of a request that are forwarded to the broker, with their permits, and the topics that are refused.

    Attributes:
        is_strict: Whether topics may be refused.
        permits: The permits of each topic that is forwarded, in the order of the request.
        refused: The topics that are not forwarded to the broker.
        missing: The permits of topics that do not exist, according to the cluster. They are charged only if the change
            succeeds, because a topic may be too new to be known.
    """

    is_strict: bool
    permits: Mapping[Topic, int]
    refused: frozenset[Topic]
    missing: Mapping[Topic, int]

    @property
    def reserved(self) -> int:
        """The permits of all topics that are forwarded. They are reserved until the broker answers."""
        return sum(self.permits.values())


def uncounted_topics(request: MutationRequest, known: Container[Topic]) -> tuple[Topic, ...]:
    """Return the topics whose number of partitions must be requested from the cluster before ``decide`` is called."""
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
    """Decide for each topic of a request whether it is forwarded or refused. Changes nothing.

    The caller reserves the permits of the topics that are forwarded, and calls ``settle`` when the broker has answered.

    Args:
        request: The client's request.
        bucket: A bucket of ``QuotaKind.MUTATION``.
        known: The number of partitions by topic, 0 for a topic that does not exist.
        default_partitions: The broker's ``num.partitions``.
        may_refuse: Whether topics may be refused. If it is False, the quota is always permissive.
        now_ms: The time.
    """
    is_strict = may_refuse and request.api_version >= FIRST_REFUSABLE_VERSION[request.api_key]
    passed: dict[Topic, int] = {}
    refused: set[Topic] = set()
    counted = 0
    free_tokens = bucket.free_tokens(now_ms=now_ms)
    for topic, costs in _costs(request, known, default_partitions).items():
        permits = ASSUMED_PERMITS if costs is None else costs
        # A topic without permits is never refused, because the broker itself answers it with an error.
        if permits and is_strict and counted > free_tokens:
            refused.add(topic)
            continue
        passed[topic] = permits
        counted += permits
    missing = {one.topic: max(one.partitions - 1, 1) for one in request.topics if known.get(one.topic) == 0}
    return MutationDecision(
        is_strict=is_strict,
        permits=passed,
        refused=frozenset(refused),
        missing=missing,
    )


def settle(decision: MutationDecision, results: Collection[TopicResult], bucket: Bucket, *, now_ms: int) -> int:
    """End the reservation of a request, and charge what the broker has changed according to the response.

    Return for how many ms the client must wait. With a strict quota, it waits only if a topic was refused.
    """
    bucket.reserved.settle(decision.reserved)
    wait_ms = bucket.charge(_changed(decision, results), now_ms=now_ms)
    if decision.is_strict:
        wait_ms = bucket.debt_ms(now_ms=now_ms) if decision.refused else 0
    return min(wait_ms, bucket.max_throttle_time_ms)


def _changed(decision: MutationDecision, results: Collection[TopicResult]) -> int:
    """Return how many partitions the broker has changed, or may have changed."""
    by_topic: dict[Topic | None, TopicResult] = {}
    for result in results:
        by_topic[result.name] = by_topic[result.topic_id] = result
    changed = 0
    for topic, permits in decision.permits.items():
        result_of_topic = by_topic.get(topic)
        if result_of_topic is None or result_of_topic.error_code in _PERHAPS_DONE:
            changed += permits
        elif result_of_topic.error_code == NO_ERROR:
            known = result_of_topic.partitions
            changed += known if known > 0 else permits + decision.missing.get(topic, 0)
    return changed


def _costs(request: MutationRequest, known: Mapping[Topic, int], default_partitions: int) -> dict[Topic, int | None]:
    """Return how many partitions a request creates, adds or deletes in each topic, or None where this is unknown."""
    costs: dict[Topic, int | None] = {}
    for mutation in request.topics:
        topic, permits = mutation.topic, _cost(request.api_key, mutation, known, default_partitions)
        before = costs.get(topic)
        # If a topic comes twice, the larger number counts. The broker refuses the request.
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
