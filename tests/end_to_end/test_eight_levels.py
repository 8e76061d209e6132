"""Kafka and the proxy choose the same of the eight levels, whatever rules there are at the levels below it.

Each level has its own limit, so the throttle time of a user's first request identifies the level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import pytest

from tests.end_to_end.support import frames
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.broker_quotas import DEFAULT, BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import FETCH, FETCH_VERSION, raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.logins import add_scram_users, log_in_scram
from tests.end_to_end.support.processes import free_port
from tests.end_to_end.support.proxy import Proxy

SASL: Final = "SASL"
# Bytes per second of levels 1 to 8. They are unordered, so that neither the lowest nor the highest always wins. They
# are primes, so that throttle times are rounded. The throttle times differ by some hundred milliseconds.
PRODUCE_LIMITS: Final = (2801, 3109, 2503, 3203, 2707, 3001, 2609, 2903)
FETCH_LIMITS: Final = (3803, 3511, 3907, 3301, 3607, 3407, 4001, 3701)
_BATCH: Final = batch_of(64 * KIB)


class Client(NamedTuple):
    """A user, and its client-id or None."""

    user: str
    client_id: str | None


class Waits(NamedTuple):
    """The throttle times in ms of the first Produce and the first Fetch."""

    produce: int
    fetch: int


@dataclass(frozen=True, slots=True)
class Case:
    """A set of levels with a rule for Produce. The other levels have a rule for Fetch."""

    number: int  # bit i stands for level i + 1

    @property
    def named(self) -> Client:
        """Return a client with a client-id. Rules of every level apply to it."""
        return Client(f"user-{self.number:03}", f"client-{self.number:03}")

    @property
    def nameless(self) -> Client:
        """Return a client without a client-id. Only rules for whole users apply to it, as in Kafka."""
        return Client(f"nameless-{self.number:03}", None)

    @property
    def clients(self) -> tuple[Client, ...]:
        """Return both clients, which no other case has."""
        return self.named, self.nameless

    @property
    def quotas(self) -> dict[Entity, dict[str, float]]:
        """Return the rules in force: one at each level, for Produce or for Fetch."""
        found = {}
        for client in self.clients:
            for index, entity in enumerate(_entities(client)):
                if self.is_for_produce(index):
                    found[entity] = {"producer_byte_rate": float(PRODUCE_LIMITS[index])}
                else:
                    found[entity] = {"consumer_byte_rate": float(FETCH_LIMITS[index])}
        return {entity: limit for entity, limit in found.items() if entity is not None}

    def is_for_produce(self, index: int) -> bool:
        """Return whether level ``index`` + 1 has a rule for Produce."""
        return bool(self.number >> index & 1)


# For each level, a case with a rule for Produce at this level and at all below it.
EACH_LEVEL: Final = tuple(Case(0xFF << index & 0xFF) for index in range(8))


def _entities(client: Client) -> tuple[Entity | None, ...]:
    """Return the entities of the rules at levels 1 to 8, or None for a rule that needs a missing client-id."""
    user, client_id = client
    return (
        Entity(user, client_id) if client_id else None,
        Entity(user, DEFAULT),
        Entity(user, None),
        Entity(DEFAULT, client_id) if client_id else None,
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT, None),
        Entity(None, client_id) if client_id else None,
        Entity(None, DEFAULT),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A broker that knows every user, with a topic to write and a topic to read."""

    kafka: Kafka
    written: str
    read: str  # a topic of one batch, which a fetch returns whole

    def ask(self, port: int, client: Client) -> Waits:
        """Produce a batch and fetch one, on separate connections, because each is muted afterwards."""
        with (
            raw_client(port, client_id=client.client_id) as producer,
            raw_client(port, client_id=client.client_id) as consumer,
        ):
            log_in_scram(producer, client.user)
            log_in_scram(consumer, client.user)
            produced = producer.produce(self.written, _BATCH)
            assert produced.error_code == 0
            fetched = self._fetch(consumer)
        return Waits(produced.throttle_time_ms, int.from_bytes(fetched.body[:4], "big"))

    def _fetch(self, client: frames.RawClient) -> frames.Frame:
        return client.ask(FETCH, FETCH_VERSION, frames.fetch_body(self.read, offset=0, max_bytes=2 * len(_BATCH)))


@pytest.fixture(
    scope="module",
    params=[KAFKA_4, *(pytest.param(version, marks=pytest.mark.long) for version in (KAFKA_4_3, KAFKA_3_9))],
)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    config: dict[str, str | int] = {
        "listener.security.protocol.map": f"{SASL}:SASL_PLAINTEXT,DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "controller.quorum.append.linger.ms": 0,  # otherwise each change of a quota takes 25 ms
    }
    with Kafka(request.param, proxied=(SASL,), config=config) as kafka:
        add_scram_users(kafka, [client.user for case in EACH_LEVEL for client in case.clients], "SCRAM-SHA-256")
        stage = Stage(kafka=kafka, written=create_topic(kafka), read=create_topic(kafka))
        with raw_client(kafka.listener(DIRECT).port) as client:
            assert client.produce(stage.read, _BATCH).error_code == 0
        yield stage


def _proxy(stage: Stage) -> Proxy:
    listener = {"name": SASL, "bind": f"127.0.0.1:{free_port()}", "upstream": stage.kafka.listener(SASL).address}
    return Proxy({"listeners": [listener]})


def _rules(case: Case) -> list[dict[str, str | float]]:
    """Return the rules of a case for the configuration file, not in the order of levels."""
    by_limit = sorted(case.quotas.items(), key=lambda quota: max(quota[1].values()))
    return [
        {key: name for key, name in (("user", entity.user), ("client-id", entity.client_id)) if name} | limit
        for entity, limit in by_limit
    ]


@pytest.mark.proof
def test_each_level_precedes_the_next_as_in_kafka(stage: Stage) -> None:
    kafkas: dict[Client, Waits] = {}
    ours: dict[Client, Waits] = {}
    with BrokerQuotas(stage.kafka) as quotas:
        for case in EACH_LEVEL:
            quotas.replace(case.quotas)
            kafkas |= {client: stage.ask(stage.kafka.listener(SASL).port, client) for client in case.clients}
    with _proxy(stage) as proxy:
        for case in EACH_LEVEL:
            assert proxy.reload({"quotas": _rules(case)})
            ours |= {client: stage.ask(proxy.port(SASL), client) for client in case.clients}

    assert ours == kafkas
    # Otherwise equal times would prove nothing.
    shortest_first = sorted(kafkas[case.named].produce for case in EACH_LEVEL)
    assert shortest_first[0] > 100
    assert all(longer - shorter > 100 for shorter, longer in pairwise(shortest_first))
