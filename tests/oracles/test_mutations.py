"""Compares the limits on changes of topics with Kafka's ``ControllerMutationQuotaManager`` (KIP-599)."""

from random import Random

import pytest

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.topic_mutations import (
    FIRST_REFUSABLE_VERSION,
    MutationRequest,
    TopicMutation,
)
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import Entity
from kafka_quota_proxy.proxy.quota.mutation import decide, settle
from tests.oracles.kafka import Kafka
from tests.oracles.seeds import STEPS, each_seed

T = 1_767_225_600_000
ENTITIES: tuple[Entity, ...] = (("alice", None), ("alice", "etl"), ("alice", DEFAULT), (DEFAULT, None), (None, "etl"))
STRICT = FIRST_REFUSABLE_VERSION[ApiKey.CREATE_TOPICS]


class Both:
    """The quotas of the proxy and of Kafka, with the same limits. Each request goes to both, and is carried out."""

    def __init__(self, kafka: Kafka, samples: int = 11) -> None:
        self.kafka = kafka
        self.now_ms = T
        kafka.begin_client_quotas("mutation", samples=samples)
        self.ours = ClientQuotaManager(QuotaKind.MUTATION, shaping=Shaping.PACED, burst_ms=samples * 1_000)

    def limit(self, user: EntityName, client_id: EntityName, limit: float | None) -> None:
        self.kafka.limit(user, client_id, limit, now_ms=self.now_ms)
        rule = QuotaRule(user=user, client_id=client_id, controller_mutation_rate=limit)
        tags = self.ours.table.put((user, client_id), rule)
        self.ours.rules_changed({} if tags is None else {tags: limit is not None})

    def create(self, *partitions: int, user: str = "alice", client_id: str = "etl", is_strict: bool = True) -> int:
        """Create topics with these numbers of partitions. Return the throttle time in ms, by both."""
        bucket = self.ours.bucket(user=user, client_id=client_id, now_ms=self.now_ms)
        topics = tuple(TopicMutation(b"%d" % number, count, 0, 0) for number, count in enumerate(partitions))
        version = STRICT if is_strict else STRICT - 1
        request = MutationRequest(ApiKey.CREATE_TOPICS, version, 7, topics, False, 0, 0)
        decision = decide(request, bucket, known={}, default_partitions=1, may_refuse=True, now_ms=self.now_ms)
        bucket.reserved.add(decision.reserved, now_ms=self.now_ms)
        wait_ms = settle(decision, (), bucket, now_ms=self.now_ms)
        kafkas = self.kafka.mutate(user, client_id, list(partitions), is_strict=is_strict, now_ms=self.now_ms)
        assert (len(decision.refused), wait_ms) == kafkas
        return wait_ms


@pytest.mark.parametrize(
    ("other", "limited", "is_used", "waits_ms"),
    [
        ("bob", ("alice", None), True, [0, 100]),
        ("bob", ("alice", None), False, [3_000, 3_000]),
        ("bob", ("alice", "etl"), True, [0, 100]),
        (None, ("alice", None), True, [3_000, 3_000]),  # Kafka records nothing while there is no limit at all
        (None, ("alice", "etl"), True, [3_000, 3_000]),
    ],
)
def test_restored_limit_begins_full_if_anything_was_recorded_without_a_limit(
    kafka: Kafka, other: str | None, limited: Entity, is_used: bool, waits_ms: list[int]
) -> None:
    both = Both(kafka)
    if other:
        both.limit(other, limited[1], 5)
    both.limit(*limited, 10)
    both.create(160)
    both.now_ms += 1_000
    both.limit(*limited, None)
    both.now_ms += 500
    if is_used:
        both.create(1)
    both.now_ms += 500
    both.limit(*limited, 10)

    assert [both.create(111), both.create(1)] == waits_ms


@each_seed
def test_any_changes_of_topics_are_decided_as_by_kafka(kafka: Kafka, seeds: range) -> None:
    for seed in seeds:
        walk(kafka, Random(seed))


def walk(kafka: Kafka, chance: Random) -> None:
    both = Both(kafka, samples=chance.choice([2, 11]))
    both.limit("alice", None, 10)
    longest_gap_ms = chance.choice([300, 3_000, 30_000])
    for _ in range(STEPS):
        both.now_ms += chance.choice([0, chance.randint(0, 50), chance.randint(0, longest_gap_ms)])
        if chance.random() < 0.15:
            both.limit(*chance.choice(ENTITIES), chance.choice([None, None, 0.5, 10.0, 1_000.0]))
            both.now_ms += 1  # in Kafka, what was owed is owed without a limit too, until the end of the millisecond
        else:
            both.create(
                *(chance.randint(1, chance.choice([3, 300])) for _ in range(chance.randint(1, 3))),
                user=chance.choice(["alice", "bob"]),
                client_id=chance.choice(["etl", "web"]),
                is_strict=chance.random() < 0.7,
            )
