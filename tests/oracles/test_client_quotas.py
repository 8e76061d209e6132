"""Compares the limits of users and client-ids with Kafka's ``ClientQuotaManager`` and ``ClientRequestQuotaManager``.

A charge returns what Kafka announces to the client. The proxy also holds back requests while their bucket owes
something (``silent_until_ms``); Kafka has nothing like that. A client that waits as it was told notices no difference.
"""

from random import Random
from typing import Final

import pytest

from kafka_quota_proxy.config.model import DEFAULT, EntityName, KafkaSettings, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import Entity
from kafka_quota_proxy.proxy.quota.throttle import MAX_THROTTLE_TIME_MS
from tests.oracles.kafka import Kafka, QuotaName
from tests.oracles.seeds import STEPS, each_seed

T = 1_767_225_600_000
USERS, CLIENT_IDS = ("alice", "bob"), ("etl", "web", "")
ENTITIES: Final[tuple[Entity, ...]] = (
    ("alice", "etl"),
    ("alice", DEFAULT),
    ("alice", None),
    (DEFAULT, "etl"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "etl"),
    (None, DEFAULT),
)
KINDS: Final[dict[QuotaName, QuotaKind]] = {
    "produce": QuotaKind.PRODUCE,
    "fetch": QuotaKind.FETCH,
    "request": QuotaKind.REQUEST,
}
NANOS_TO_PERCENT: Final = 100.0 / 1_000_000_000  # ClientRequestQuotaManager.NANOS_TO_PERCENTAGE_PER_SECOND


class Both:
    """The quotas of the proxy and of Kafka, with the same limits. Each charge goes to both."""

    def __init__(self, kafka: Kafka, kind: QuotaName, samples: int = 11) -> None:
        self.kafka = kafka
        self.kind = KINDS[kind]
        self.now_ms = T
        kafka.begin_client_quotas(kind, samples=samples)
        self.ours = ClientQuotaManager(
            self.kind,
            kafka=KafkaSettings(quota_window_num=samples),
            max_throttle_time_ms=1_000 if kind == "request" else None,
        )

    def limit(self, user: EntityName, client_id: EntityName, limit: float | None) -> None:
        self.kafka.limit(user, client_id, limit, now_ms=self.now_ms)
        limits = None if limit is None else {self.kind.key: limit}
        rule = QuotaRule(user=user, client_id=client_id, limits=limits)
        tags = self.ours.table.put((user, client_id), rule)
        self.ours.rules_changed({} if tags is None else {tags: limit is not None})

    def charge(self, user: str, client_id: str, amount: int) -> int:
        """Return the throttle time in ms, by both. The amount of ``request`` is in ns."""
        wait_ms = self.ours.record_and_get_throttle_time_ms(amount, user=user, client_id=client_id, now_ms=self.now_ms)
        percent_or_bytes = amount * NANOS_TO_PERCENT if self.kind is QuotaKind.REQUEST else amount
        kafkas_ms = self.kafka.charge(user, client_id, percent_or_bytes, now_ms=self.now_ms)
        # A wait that is too long for the protocol stays at the maximum here. In Kafka it overflows, and is no wait.
        assert wait_ms in (kafkas_ms, MAX_THROTTLE_TIME_MS)
        return wait_ms

    def compare_tags(self, user: str, client_id: str) -> None:
        """Compare under which tags a client is charged, and its limit."""
        tags, _, _, limit = self.ours.table.resolve(user=user, client_id=client_id)
        kafkas = self.kafka.tags(user, client_id, now_ms=self.now_ms)
        assert tags == (kafkas.user, kafkas.client_id)
        assert kafkas.limit == (float(2**63 - 1) if limit is None else limit)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_used", [True, False])
@pytest.mark.parametrize("lost", [("alice", None), (DEFAULT, None), ("alice", DEFAULT)])
def test_limit_that_is_restored_holds_nobody_back_for_what_was_owed_before(
    kafka: Kafka, kind: QuotaName, is_used: bool, lost: Entity
) -> None:
    """Kafka passes the next request at once, and announces what its windows still contain."""
    both = Both(kafka, kind)
    amount = 3_000_000_000 if kind == "request" else 300
    both.limit("bob", "etl", 5)
    both.limit(*lost, 10)
    bucket = both.ours.bucket(user="alice", client_id="etl", now_ms=both.now_ms)
    bucket.silence(both.charge("alice", "etl", amount), now_ms=both.now_ms)
    assert not bucket.is_free(1, now_ms=both.now_ms + 999)

    both.limit(*lost, None)
    both.now_ms += 500
    if is_used:
        both.charge("alice", "etl", 1)
    both.limit(*lost, 10)

    bucket = both.ours.bucket(user="alice", client_id="etl", now_ms=both.now_ms)
    assert bucket.is_free(1, now_ms=both.now_ms)
    assert both.charge("alice", "etl", 1) > 900


@pytest.mark.parametrize("kind", KINDS)
@each_seed
def test_any_charges_and_changes_of_limits_wait_as_in_kafka(kafka: Kafka, kind: QuotaName, seeds: range) -> None:
    for seed in seeds:
        walk(kafka, kind, Random(seed))


def walk(kafka: Kafka, kind: QuotaName, chance: Random) -> None:
    both = Both(kafka, kind, samples=chance.choice([2, 3, 11]))
    largest = 300_000_000 if kind == "request" else 30_000
    limits = [0.5, 33.3, 10.0, 100.0] if kind == "request" else [0.1, 333.3, 1_000.0, 2_000.0]
    longest_gap_ms = chance.choice([300, 3_000, 30_000])
    for _ in range(STEPS):
        both.now_ms += chance.choice([0, chance.randint(0, 50), chance.randint(0, longest_gap_ms)])
        user, client_id = chance.choice(USERS), chance.choice(CLIENT_IDS)
        if chance.random() < 0.1:
            both.limit(*chance.choice(ENTITIES), chance.choice([None, None, *limits]))
        elif chance.random() < 0.1:
            both.compare_tags(user, client_id)
        else:
            both.charge(user, client_id, chance.randint(0, largest))
