"""Whose limit holds, by the broker's own word: each set of rules at the eight levels, in Kafka and in the proxy.

A user and a client-id that nobody knows yet send one batch, and read one. How long they are told to wait names the
limit, for each level has one of its own; and it depends on nothing else: a first request is measured over ten seconds,
in Kafka as here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

import pytest

from config.load import load
from proxy.commands.explain import explain
from tests.end_to_end.support import frames
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4
from tests.end_to_end.support.broker_quotas import DEFAULT, BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.logins import add_scram_users, log_in_scram
from tests.end_to_end.support.processes import free_port, wait_until
from tests.end_to_end.support.proxy import Proxy

LEVELS: Final = 8
SASL: Final = "SASL"
# Bytes per second of levels 1 to 8. In no order, so that neither the least nor the greatest wins; primes, so that
# milliseconds have to be rounded; and far apart: each makes a batch wait for some hundred milliseconds more or less.
PRODUCE_LIMITS: Final = (2801, 3109, 2503, 3203, 2707, 3001, 2609, 2903)
FETCH_LIMITS: Final = (3803, 3511, 3907, 3301, 3607, 3407, 4001, 3701)
_ASSUMED_WINDOW_MS: Final = 10_000  # ten of the eleven samples, before the first is over
_BATCH: Final = batch_of(64 * KIB)
_PROXIES: Final = 8  # a reload takes 0.2 s, in which the other proxies work
# throttled: produce of user='user-017' client-id='': 6,560 B/s against 2,503 B/s, by FILE:9 (level 3, user); ...
_THROTTLED: Final = re.compile(
    r"throttled: (?P<kind>\w+) of user='(?:user-(?P<user>\d+))?' client-id='(?:client-(?P<client_id>\d+))?': "
    r".*? by \S+ \(level (?P<level>\d)"
)


class Levels(NamedTuple):
    """Which level holds for each kind of request, 1 to 8; None: nothing is limited."""

    produce: int | None
    fetch: int | None


class Waits(NamedTuple):
    """``throttle_time_ms`` of the first Produce and of the first Fetch."""

    produce: int
    fetch: int


@dataclass(frozen=True, slots=True)
class Case:
    """A set of levels that have a rule for what is produced; all others have one for what is fetched.

    So the two kinds go through all the 256 sets, side by side and each by its own rules only.
    """

    number: int  # bit i stands for level i + 1

    @property
    def user(self) -> str:
        return f"user-{self.number:03}"

    @property
    def client_id(self) -> str:
        return f"client-{self.number:03}"

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Whom a rule at each level is for, the most specific level first."""
        return (
            Entity(self.user, self.client_id),
            Entity(self.user, DEFAULT),
            Entity(self.user, None),
            Entity(DEFAULT, self.client_id),
            Entity(DEFAULT, DEFAULT),
            Entity(DEFAULT, None),
            Entity(None, self.client_id),
            Entity(None, DEFAULT),
        )

    @property
    def quotas(self) -> dict[Entity, dict[str, float]]:
        return {
            entity: {"producer_byte_rate": PRODUCE_LIMITS[index]}
            if self.number >> index & 1
            else {"consumer_byte_rate": FETCH_LIMITS[index]}
            for index, entity in enumerate(self.entities)
        }

    @property
    def expected(self) -> Levels:
        present = [bool(self.number >> index & 1) for index in range(LEVELS)]
        return Levels(_first(present, wanted=True), _first(present, wanted=False))


CASES: Final = tuple(Case(number) for number in range(2**LEVELS))


def _first(present: Sequence[bool], *, wanted: bool) -> int | None:
    return present.index(wanted) + 1 if wanted in present else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A broker that knows every case's user, and what its clients write and read."""

    kafka: Kafka
    written: str
    read: str  # a topic of one batch, which a fetch brings whole

    def ask(self, port: int, case: Case) -> Waits:
        """Produce a batch and fetch one, each on a connection of its own: it is muted afterwards."""
        with (
            raw_client(port, client_id=case.client_id) as producer,
            raw_client(port, client_id=case.client_id) as consumer,
        ):
            log_in_scram(producer, case.user)
            log_in_scram(consumer, case.user)
            produced = producer.produce(self.written, _BATCH)
            assert produced.error_code == 0
            fetched = self._fetch(consumer)
        return Waits(produced.throttle_time_ms, int.from_bytes(fetched.body[:4], "big"))

    def waits(self) -> tuple[list[int], list[int]]:
        """How long each level makes a client wait for its batch, in milliseconds, for either kind."""
        body = frames.produce_body(self.written, _BATCH, acks=1)
        request = frames.request(PRODUCE, PRODUCE_VERSION, 1, CASES[0].client_id, body)
        with raw_client(self.kafka.listener(DIRECT).port, client_id=CASES[0].client_id) as unlimited:
            response = self._fetch(unlimited)
        return (
            [_wait_ms(len(request) - 4, limit) for limit in PRODUCE_LIMITS],
            [_wait_ms(response.size_bytes - 4, limit) for limit in FETCH_LIMITS],
        )

    def _fetch(self, client: frames.RawClient) -> frames.Frame:
        return client.ask(frames.FETCH, frames.FETCH_VERSION, frames.fetch_body(self.read, offset=0, max_bytes=2**20))


def _wait_of(waits: Sequence[int], level: int | None) -> int:
    return 0 if level is None else waits[level - 1]


def _wait_ms(size_bytes: int, limit: int) -> int:
    """X with size / (W + X) = limit, where W is the assumed window; half a millisecond counts as one."""
    return math.floor(Fraction(size_bytes * 1_000, limit) - _ASSUMED_WINDOW_MS + Fraction(1, 2))


@pytest.fixture(scope="module", params=[KAFKA_4, pytest.param(KAFKA_3_9, marks=pytest.mark.long)])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    config = {
        "listener.security.protocol.map": f"{SASL}:SASL_PLAINTEXT,DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "controller.quorum.append.linger.ms": 0,  # or each change of a quota waits for 25 ms
    }
    with Kafka(request.param, proxied=(SASL,), config=config) as kafka:
        add_scram_users(kafka, [case.user for case in CASES], "SCRAM-SHA-256")
        stage = Stage(kafka=kafka, written=create_topic(kafka), read=create_topic(kafka))
        with raw_client(kafka.listener(DIRECT).port) as client:
            assert client.produce(stage.read, _BATCH).error_code == 0
        yield stage


@pytest.fixture(scope="module")
def theirs(stage: Stage) -> dict[Case, Waits]:
    """What the broker answers, under quotas of its own that are gone afterwards."""
    port = stage.kafka.listener(SASL).port
    answers: dict[Case, Waits] = {}
    with BrokerQuotas(stage.kafka) as quotas:
        for case in CASES:
            quotas.replace(case.quotas)
            answers[case] = stage.ask(port, case)
    # The proxy passes the longer of two waits on: the broker must have none left for those who were over its quotas.
    assert stage.ask(port, CASES[0]) == stage.ask(port, CASES[-1]) == (0, 0)
    return answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What the proxy answered, and whose limit it says it was."""

    waits: dict[Case, Waits]
    explained: dict[Case, Levels]
    logged: dict[Case, Levels]


@pytest.fixture(scope="module")
def ours(stage: Stage, theirs: dict[Case, Waits]) -> Ours:
    """What the proxy answers. It asks for ``theirs`` so that the broker's quotas are over and done with."""
    found = Ours(waits={}, explained={}, logged={})

    def work_through(proxy: Proxy, cases: Sequence[Case]) -> None:
        for case in cases:
            assert proxy.reload({"quotas": _rules(case)})
            verdicts = explain(load(proxy.file), user=case.user, client_id=case.client_id).verdicts
            found.explained[case] = Levels(*(verdict.level and verdict.level.number for verdict in verdicts))
            found.waits[case] = stage.ask(proxy.port(SASL), case)
        throttled = sum(wait_ms > 0 for case in cases for wait_ms in found.waits[case])
        wait_until(
            lambda: len(_THROTTLED.findall(proxy.log)) == throttled,
            timeout_s=10,
            what=f"the proxy's log tells of {throttled} who were throttled",
        )
        found.logged.update(_logged(proxy.log, cases))

    with ExitStack() as stack, ThreadPoolExecutor(_PROXIES) as pool:
        proxies = [stack.enter_context(_proxy(stage)) for _ in range(_PROXIES)]
        shares = [CASES[first::_PROXIES] for first in range(_PROXIES)]
        for done in [pool.submit(work_through, *work) for work in zip(proxies, shares, strict=True)]:
            done.result()
    return found


def _proxy(stage: Stage) -> Proxy:
    listener = {"name": SASL, "bind": f"127.0.0.1:{free_port()}", "upstream": stage.kafka.listener(SASL).address}
    return Proxy({"listeners": [listener]})


def _rules(case: Case) -> list[dict[str, str | float]]:
    """A case's rules as the file has them, in an order that is not that of the levels."""
    rules = [
        {key: name for key, name in (("user", entity.user), ("client-id", entity.client_id)) if name} | limit
        for entity, limit in case.quotas.items()
    ]
    return sorted(rules, key=lambda rule: max(rule.get(key, 0) for key in ("producer_byte_rate", "consumer_byte_rate")))


def _logged(log: str, cases: Sequence[Case]) -> dict[Case, Levels]:
    """By which level the running proxy says that it throttled."""
    levels = {
        (int(line["user"] or line["client_id"]), line["kind"]): int(line["level"]) for line in _THROTTLED.finditer(log)
    }
    return {case: Levels(levels.get((case.number, "produce")), levels.get((case.number, "fetch"))) for case in cases}


def test_each_level_makes_a_client_wait_for_a_time_of_its_own(stage: Stage) -> None:
    """Or the next test would prove nothing."""
    for waits in stage.waits():
        ascending = sorted(waits)
        assert ascending[0] > 100
        assert all(later - earlier > 100 for earlier, later in pairwise(ascending))


def test_kafka_takes_the_limit_of_the_most_specific_level(stage: Stage, theirs: dict[Case, Waits]) -> None:
    produce, fetch = stage.waits()

    expected = {
        case: Waits(_wait_of(produce, at.produce), _wait_of(fetch, at.fetch))
        for case in CASES
        for at in [case.expected]
    }

    assert theirs == expected


def test_the_proxy_takes_the_same_and_makes_wait_as_long_to_the_millisecond(
    theirs: dict[Case, Waits], ours: Ours
) -> None:
    assert ours.waits == theirs


def test_the_proxy_names_the_level_in_explain_and_in_its_log(ours: Ours) -> None:
    expected = {case: case.expected for case in CASES}

    assert ours.explained == expected
    assert ours.logged == expected
