"""Compares the request rates of two clients under one ``request_percentage``, at a broker and at the proxy."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Final, NamedTuple

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.broker_quotas import DEFAULT, BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import (
    FETCH,
    FETCH_VERSION,
    METADATA,
    PRODUCE,
    PRODUCE_VERSION,
    fetch_body,
    produce_body,
    raw_client,
    record_batch,
    string,
)
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.tools import jmx

PERCENT: Final = 5
# A single client exceeds this quota even with requests as cheap as handshakes.
SMALL_PERCENT: Final = 1
LOADS: Final = ("Produce 16 kB", "Fetch 65 kB", "Metadata")
# Short windows, so that a run of seconds has several cycles.
WINDOWS: Final = 3
# A handshake at a listener without SASL. The broker answers ILLEGAL_SASL_STATE.
HANDSHAKE: Final = "SaslHandshake"
_KAFKAS, _OURS, _WARM = "theirs", "ours", "warm"
_SASL_HANDSHAKE: Final = 17
_WARM_UP_S: Final = 4
# Each window is a second, and no run takes that long. So a rate times the windows is a sum.
SUM_WINDOWS: Final = 3_001
# Bursts follow pauses in which the broker's threads sleep, as under a quota.
_BURST_S, _BREAK_S, _BURSTS = 0.4, 1.5, 6


class Question(NamedTuple):
    """A request that is sent again after each response."""

    api_key: int
    api_version: int
    body: bytes


class Pair(NamedTuple):
    """Responses per second under the broker's quota, and under the proxy's."""

    kafkas: float
    ours: float


class Ratio(NamedTuple):
    """The proxy's rate over the broker's, in several rounds, because single rounds vary with the machine."""

    pairs: Sequence[Pair]

    @property
    def each(self) -> list[float]:
        """Return the ratios of the rounds, sorted."""
        return sorted(ours / kafkas for kafkas, ours in self.pairs)

    @property
    def median(self) -> float:
        return median(self.each)

    def __str__(self) -> str:
        kafkas, ours = (median(column) for column in zip(*self.pairs, strict=True))
        return f"{kafkas:,.0f} | {ours:,.0f} | {self.median:.2f} [{self.each[0]:.2f}–{self.each[-1]:.2f}]"


Ask = Callable[[str, int, float, int], Ratio]


def broker_ns(kafka: Kafka) -> dict[str, float]:
    """Return the request time in ns that the broker has charged each client-id. It must have ``SUM_WINDOWS``."""
    beans = jmx(kafka, "kafka.server:type=Request,*", "request-time")
    found = {name[1]: rate for bean, rate in beans.items() if (name := re.search(r"client-id=([^,:]+)", bean))}
    return {client_id: rate / 100 * 1e9 * (SUM_WINDOWS - 0.5) for client_id, rate in found.items() if rate == rate}


def measured_scale() -> float:
    """Return the request time that a broker charges on this machine, over the time that the proxy charges.

    Both charge the same client, which sends in bursts and is not throttled.
    """
    counted = {"request_percentage": 100_000.0}
    settings = {"quotas": [{"client-id": DEFAULT, **counted}]}
    with (
        Kafka(KAFKA_4, jmx=True, config={"quota.window.num": SUM_WINDOWS}) as kafka,
        BrokerQuotas(kafka) as quotas,
        Proxy(settings, kafka) as proxy,
    ):
        quotas.replace({Entity(None, DEFAULT): counted})
        for client_id in (_WARM, _OURS):
            questions = _questions(kafka)
            for question in map(questions.__getitem__, LOADS):
                _answers_per_second(proxy.port(), _WARM, question, _WARM_UP_S)
                for _ in range(_BURSTS):
                    time.sleep(_BREAK_S)
                    _answers_per_second(proxy.port(), client_id, question, _BURST_S)
        ours_s = proxy.metrics().total("kafka_quota_proxy_request_seconds_total", client_id=_OURS)
        return broker_ns(kafka)[_OURS] / 1e9 / ours_s


@contextmanager
def limited_alike(scale: float = 1) -> Iterator[Ask]:
    """Start a broker and a proxy with the same quota. ``scale`` is ``request_time_scale``.

    Yields a function that sends a question by two clients, one at the broker and one at the proxy. Its arguments are
    the question's name, the number of rounds, the seconds of each client in a round, and the quota in percent. The
    clients take turns, because the proxy would charge the time that they wait for each other.
    """
    limits = {percent: {"request_percentage": percent} for percent in (PERCENT, SMALL_PERCENT)}
    settings = {
        "quotas": [{"client-id": f"{_OURS} {percent}", **limit} for percent, limit in limits.items()],
        "request_time_scale": scale,
        "kafka": {"quota.window.num": WINDOWS},
    }
    with (
        Kafka(KAFKA_4, config={"quota.window.num": WINDOWS}) as kafka,
        BrokerQuotas(kafka) as quotas,
        Proxy(settings, kafka) as proxy,
    ):
        quotas.replace({Entity(None, f"{_KAFKAS} {percent}"): limit for percent, limit in limits.items()})
        questions = _questions(kafka)
        ports = {_KAFKAS: kafka.listener(DIRECT).port, _OURS: proxy.port()}
        asked: set[str] = set()

        def ask(name: str, rounds: int, seconds: float, percent: int) -> Ratio:
            for port in ports.values() if name in LOADS else ():
                _answers_per_second(port, _WARM, questions[name], _WARM_UP_S)
            pairs = []
            for _ in range(rounds):
                rates = []
                for side, port in ports.items():
                    client_id = f"{side} {percent}"
                    if client_id in asked:
                        time.sleep(WINDOWS + 1)  # the windows of the last round are still full
                    asked.add(client_id)
                    rates.append(_answers_per_second(port, client_id, questions[name], seconds))
                pairs.append(Pair(*rates))
            return Ratio(pairs)

        yield ask


def _questions(kafka: Kafka) -> dict[str, Question]:
    sink, full = create_topic(kafka), create_topic(kafka)
    with raw_client(kafka.listener(DIRECT).port) as client:
        client.produce(full, record_batch([bytes(65_000)]))
    write = produce_body(sink, record_batch([bytes(16_000)]), acks=1)
    return {
        LOADS[0]: Question(PRODUCE, PRODUCE_VERSION, write),
        LOADS[1]: Question(FETCH, FETCH_VERSION, fetch_body(full, offset=0, max_bytes=1 << 20)),
        LOADS[2]: Question(METADATA, 5, struct.pack(">i", 1) + string(full) + b"\0"),
        HANDSHAKE: Question(_SASL_HANDSHAKE, 1, string("PLAIN")),
    }


def _answers_per_second(port: int, client_id: str, question: Question, seconds: float) -> float:
    """Send the request again after each response, and return the responses per second."""
    count, began = 0, time.monotonic()
    with raw_client(port, client_id=client_id) as client:
        while time.monotonic() < began + seconds:
            client.ask(*question)
            count += 1
    return count / (time.monotonic() - began)
