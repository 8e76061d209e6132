"""Kafka and the proxy choose the same level, for every set of rules at the eight levels.

Each level has its own limit, so the throttle time of a user's first request identifies the level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

import pytest

from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.proxy.cli.explain import rules_at
from kafka_quota_proxy.proxy.cli.explanation.resolve import explain
from tests.end_to_end.support import frames
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.broker_quotas import DEFAULT, BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import FETCH, FETCH_VERSION, PRODUCE, PRODUCE_VERSION, raw_client
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
_ASSUMED_WINDOW_MS: Final = 10_000  # of a first request: ten of the eleven samples
_BATCH: Final = batch_of(64 * KIB)
_PROXIES: Final = 8  # while one reloads, for 0.2 s, the others work


class Client(NamedTuple):
    """A user, and its client-id or None."""

    user: str
    client_id: str | None


class Levels(NamedTuple):
    """The level (1 to 8) of the limit that applies to each kind, or None if there is no limit."""

    produce: int | None
    fetch: int | None


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

    def levels(self, client: Client) -> Levels:
        """Return the levels that should apply."""
        most_specific_first = range(1, 9) if client.client_id else (3, 6)
        for_produce = [level for level in most_specific_first if self.is_for_produce(level - 1)]
        for_fetch = [level for level in most_specific_first if not self.is_for_produce(level - 1)]
        return Levels(next(iter(for_produce), None), next(iter(for_fetch), None))


CASES: Final = tuple(Case(number) for number in range(256))
# For each level, a case with a rule for Produce at this level and at all below it. Bit 8 stands for no level, so the
# clients are new.
EACH_LEVEL: Final = tuple(Case(256 | 0xFF << index & 0xFF) for index in range(8))
_NEW_CLIENTS: Final = tuple(client for case in EACH_LEVEL for client in case.clients)
EXPECTED: Final = {client: case.levels(client) for case in CASES for client in case.clients}


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

    def waits(self, client: Client) -> tuple[list[int], list[int]]:
        """Return the throttle times in ms under the limits of all levels, for Produce and for Fetch."""
        body = frames.produce_body(self.written, _BATCH, acks=1)
        request = frames.request(PRODUCE, PRODUCE_VERSION, 1, client.client_id, body)
        with raw_client(self.kafka.listener(DIRECT).port) as unlimited:
            response = self._fetch(unlimited)
        return (
            [_wait_ms(len(request) - 4, limit) for limit in PRODUCE_LIMITS],
            [_wait_ms(response.size_bytes - 4, limit) for limit in FETCH_LIMITS],
        )

    def _fetch(self, client: frames.RawClient) -> frames.Frame:
        return client.ask(FETCH, FETCH_VERSION, frames.fetch_body(self.read, offset=0, max_bytes=2 * len(_BATCH)))


def _wait_ms(size_bytes: int, limit: int) -> int:
    """Return the X that solves size / (W + X) = limit, where W is the assumed window. Half a ms is rounded up."""
    return math.floor(Fraction(size_bytes * 1_000, limit) - _ASSUMED_WINDOW_MS + Fraction(1, 2))


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
        add_scram_users(kafka, [client.user for client in (*EXPECTED, *_NEW_CLIENTS)], "SCRAM-SHA-256")
        stage = Stage(kafka=kafka, written=create_topic(kafka), read=create_topic(kafka))
        with raw_client(kafka.listener(DIRECT).port) as client:
            assert client.produce(stage.read, _BATCH).error_code == 0
        yield stage


@pytest.fixture(scope="module")
def kafka_waits(stage: Stage) -> dict[Client, Waits]:
    """The broker's throttle times under its own quotas, which are removed afterwards."""
    port = stage.kafka.listener(SASL).port
    answers: dict[Client, Waits] = {}
    with BrokerQuotas(stage.kafka) as quotas:
        for case in CASES:
            quotas.replace(case.quotas)
            answers |= {client: stage.ask(port, client) for client in case.clients}
    # The proxy returns the longer of both throttle times, so the broker must not throttle these clients any more.
    for case in (CASES[0], CASES[-1]):
        assert stage.ask(port, case.named) == (0, 0)
    return answers


@pytest.fixture(scope="module")
def proxies(stage: Stage) -> Iterator[list[Proxy]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_proxy(stage)) for _ in range(_PROXIES)]


def _proxy(stage: Stage) -> Proxy:
    listener = {"name": SASL, "bind": f"127.0.0.1:{free_port()}", "upstream": stage.kafka.listener(SASL).address}
    return Proxy({"listeners": [listener]})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyAnswers:
    """The proxy's throttle times, and the levels that ``explain`` prints."""

    waits: dict[Client, Waits]
    explained: dict[Client, Levels]


@pytest.fixture(scope="module")
def answers(stage: Stage, kafka_waits: dict[Client, Waits], proxies: list[Proxy]) -> ProxyAnswers:
    """The proxies' results. ``kafka_waits`` is requested so that the broker's quotas are removed before."""
    found = ProxyAnswers(waits={}, explained={})

    def work_through(proxy: Proxy, cases: Sequence[Case]) -> None:
        for case in cases:
            assert proxy.reload({"quotas": _rules(case)})
            for client in case.clients:
                found.explained[client] = _explained(proxy, client)
                found.waits[client] = stage.ask(proxy.port(SASL), client)

    shares = [CASES[first::_PROXIES] for first in range(_PROXIES)]
    with ThreadPoolExecutor(_PROXIES) as pool:
        for done in [pool.submit(work_through, *work) for work in zip(proxies, shares, strict=True)]:
            done.result()
    return found


def _rules(case: Case) -> list[dict[str, str | float]]:
    """Return the rules of a case for the configuration file, not in the order of levels."""
    by_limit = sorted(case.quotas.items(), key=lambda quota: max(quota[1].values()))
    return [
        {key: name for key, name in (("user", entity.user), ("client-id", entity.client_id)) if name} | limit
        for entity, limit in by_limit
    ]


def _explained(proxy: Proxy, client: Client) -> Levels:
    """Return the levels that the command ``explain`` prints for this client."""
    produce, fetch, *_ = explain(
        rules_at(load(proxy.file), now_ms=0), user=client.user, client_id=client.client_id or ""
    ).verdicts
    return Levels(produce.level and produce.level.number, fetch.level and fetch.level.number)


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
    assert all(kafkas[case.named].produce > 0 for case in EACH_LEVEL)


@pytest.mark.proof
def test_each_level_has_its_own_throttle_time(stage: Stage) -> None:
    """Without this, the next test would prove nothing."""
    for client in CASES[0].clients:
        for waits in stage.waits(client):
            shortest_first = sorted(waits)
            assert shortest_first[0] > 100
            assert all(longer - shorter > 100 for shorter, longer in pairwise(shortest_first))


@pytest.mark.long
def test_kafka_uses_the_most_specific_level(stage: Stage, kafka_waits: dict[Client, Waits]) -> None:
    """The throttle times are those of the formula, to the millisecond."""
    waits = {client.client_id is None: stage.waits(client) for client in CASES[0].clients}

    for client, levels in EXPECTED.items():
        produce, fetch = waits[client.client_id is None]
        expected = Waits(
            0 if levels.produce is None else produce[levels.produce - 1],
            0 if levels.fetch is None else fetch[levels.fetch - 1],
        )
        assert kafka_waits[client] == expected, client


@pytest.mark.long
def test_throttle_times_equal_kafkas_to_the_millisecond(
    kafka_waits: dict[Client, Waits], answers: ProxyAnswers
) -> None:
    assert answers.waits == kafka_waits
