"""Clients create, extend and delete topics under Kafka's ``controller_mutation_rate`` and under the proxy's.

The numbers are those of ``ControllerMutationQuotaManagerTest``: 10 tokens a second, at most eleven seconds' worth.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.end_to_end.support.artifacts import CLIENTS_2_6, clients_classpath
from tests.end_to_end.support.broker_quotas import BrokerQuotas, Entity
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.proxy import Proxy

_PROGRAM = Path(__file__).parent / "java" / "Mutations.java"
_LIMIT = {"controller_mutation_rate": 10}
# Measured waits may differ by this much, because tokens also arrive while a request is in flight.
_EARLY_MS, _LATE_MS, _MUCH_LATER_MS = 150, 700, 10_000
_REFUSED, _EXISTS = "ThrottlingQuotaExceededException", "TopicExistsException"


class _Step(NamedTuple):
    """The error, the throttle time and the duration of a step."""

    error: str
    throttled_ms: int
    took_ms: int


class _Expected(NamedTuple):
    """A step of ``Mutations.java`` and its result. ``waited_ms`` is the wait that earlier steps cause."""

    step: str
    error: str = ""
    throttled_ms: int = 0
    waited_ms: int = 0


# Every request is refused below 0 tokens, and no request otherwise, however large it is.
# In a step with "try" the client does not retry.
_NEW_CLIENT = (
    _Expected("validate:w:1"),
    _Expected("validate:v:120"),
    _Expected("try:validate:v:120", _REFUSED, 1_000),
    _Expected("create:a:10", waited_ms=1_000),
    _Expected("try:create:b:1", _REFUSED, 1_000),
    _Expected("create:a:10", _EXISTS, waited_ms=1_000),
    _Expected("grow:a:30"),  # twenty more
    _Expected("try:grow:a:40", _REFUSED, 2_000),
    _Expected("delete:a", waited_ms=2_000),  # all thirty
    _Expected("try:create:b:1", _REFUSED, 3_000),
    _Expected("create:b:1", waited_ms=3_000),
    _Expected("delete:b"),
)
# A client that does not know the error is not refused, but muted afterwards.
_OLD_CLIENT = (
    _Expected("validate:w:1"),
    _Expected("validate:v:120"),
    _Expected("create:a:10", waited_ms=1_000),
    _Expected("grow:a:30", waited_ms=1_000),
    _Expected("delete:a", waited_ms=2_000),
    _Expected("create:b:1", waited_ms=3_000),
    _Expected("create:b:1", _EXISTS),
    _Expected("delete:b"),
)


def _run(kafka: Kafka, address: str, client_id: str, expected: Sequence[_Expected], classpath: str) -> list[_Step]:
    """Run all steps. The names of topics are made unique."""
    mine = uuid.uuid4().hex[:12]
    steps = []
    for one in expected:
        verb, topic, *partitions = one.step.removeprefix("try:").split(":")
        prefix = "try:" if one.step.startswith("try:") else ""
        steps.append(prefix + ":".join([verb, f"{topic}-{mine}", *partitions]))
    out = kafka.run_java(str(_PROGRAM), address, client_id, *steps, classpath=classpath)
    return [_Step(**json.loads(line)) for line in out.splitlines()]


def _check(expected: Sequence[_Expected], taken: Sequence[_Step]) -> None:
    assert [(step.error, step.throttled_ms > 0) for step in taken] == [
        (one.error, one.throttled_ms > 0) for one in expected
    ]
    for one, step in zip(expected, taken, strict=True):
        if one.throttled_ms:
            assert one.throttled_ms / 2 <= step.throttled_ms <= one.throttled_ms + _EARLY_MS, (one, step)
        assert one.waited_ms - _LATE_MS <= step.took_ms <= one.waited_ms + _MUCH_LATER_MS, (one, step)


@pytest.mark.timeout(200)
def test_topic_mutations_are_throttled_as_by_kafka(kafka_4: Kafka) -> None:
    clients = {
        "new": (_NEW_CLIENT, kafka_4.classpath),
        "old": (_OLD_CLIENT, clients_classpath(CLIENTS_2_6)),
    }
    quotas = [{"client-id": f"{name}-ours", **_LIMIT} for name in clients]
    with BrokerQuotas(kafka_4) as broker_quotas, Proxy({"quotas": quotas}, kafka_4) as proxy:
        broker_quotas.replace({Entity(None, f"{name}-theirs"): _LIMIT for name in clients})
        addresses = {"ours": proxy.address(), "theirs": kafka_4.listener(DIRECT).address}
        with ThreadPoolExecutor(4) as pool:
            runs = {
                (name, where): pool.submit(_run, kafka_4, address, f"{name}-{where}", expected, classpath)
                for where, address in addresses.items()
                for name, (expected, classpath) in clients.items()
            }
        metrics = proxy.metrics()

    for (name, _), run in runs.items():
        _check(clients[name][0], run.result())
    assert metrics.total("kafka_quota_proxy_throttled_requests_total", client_id="new-ours", kind="mutation") > 0
