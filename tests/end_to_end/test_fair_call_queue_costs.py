"""The fair call queue in front of a real Kafka: the cost of requests, and the user that is charged for them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.closed_loop import dear_batch
from tests.end_to_end.support.frames import METADATA, RawClient, raw_client, string
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.logins import log_in_plain, secret_of
from tests.end_to_end.support.proxy import Proxy

_SASL: Final = "SASL"
_WRITER, _READER = "writer", "reader"
_APPS: Final = ("app-etl-0001", "app-etl-0002", "app-web-0001")
_USERS: Final = (_WRITER, _READER, *_APPS)
_METADATA_VERSION: Final = 5
_WRITES, _READS = 60, 300
# A megabyte of zeros, which the broker decompresses.
_DEAR_BYTES: Final = 1_000_000
# Costs do not decay during a test, and levels count even if the broker is idle.
_QUEUE: Final = {"decay-scheduler.period-ms": 3_600_000, "decay-scheduler.utilisation-floor": 0}
_FAR_ABOVE: Final = 1_000_000

Work = Callable[[RawClient, str], None]


def _write(client: RawClient, topic: str) -> None:
    batch = dear_batch(_DEAR_BYTES)
    for _ in range(_WRITES):
        assert client.produce(topic, batch).error_code == 0


def _read(client: RawClient, topic: str) -> None:
    question = struct.pack(">i", 1) + string(topic) + b"\0"
    for _ in range(_READS):
        client.ask(METADATA, _METADATA_VERSION, question)


def _ask_once(client: RawClient, topic: str) -> None:
    client.ask(METADATA, _METADATA_VERSION, struct.pack(">i", 1) + string(topic) + b"\0")


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    users = " ".join(f'user_{user}="{secret_of(user)}"' for user in _USERS)
    config: dict[str, str | int] = {
        "listener.security.protocol.map": f"{_SASL}:SASL_PLAINTEXT,PROXIED:PLAINTEXT,DIRECT:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{_SASL.lower()}.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
    }
    with Kafka(KAFKA_4, proxied=(_SASL, "PROXIED"), config=config) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    return create_topic(kafka)


def _as_user(proxy: Proxy, user: str, topic: str, work: Work, *, client_id: str = "any") -> None:
    with raw_client(proxy.port(_SASL), client_id=client_id) as client:
        assert log_in_plain(client, user) == 0
        work(client, topic)


def _standings(proxy: Proxy, listener: str = _SASL) -> dict[str, Any]:
    """Return the entry of each user in ``/callqueue``."""
    queues = {one["listener"]: one for one in json.loads(proxy.admin("/callqueue"))}
    return {user["identity"]: user for user in queues[listener]["users"]}


def _meet(kafka: Kafka, topic: str, queue: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Run both loads, and return their costs and the seconds that the request quota measured for each."""
    rule = {"user": "<default>", "request_percentage": _FAR_ABOVE}
    with Proxy({"fair_call_queue": {**_QUEUE, **queue}, "quotas": [rule]}, kafka) as proxy:
        with ThreadPoolExecutor(2) as pool:
            works = {_WRITER: _write, _READER: _read}
            for one in [pool.submit(_as_user, proxy, user, topic, work) for user, work in works.items()]:
                one.result()
        metrics = proxy.metrics()
        seconds = {user: metrics.total("kafka_quota_proxy_request_seconds_total", user=user) for user in works}
        return _standings(proxy), seconds


def test_many_quick_requests_cost_the_most_when_each_costs_one(kafka: Kafka, topic: str) -> None:
    standings, _ = _meet(kafka, topic, {})

    assert standings[_READER]["share"] > 0.7


def test_few_long_writes_cost_the_most_when_time_is_weighted(kafka: Kafka, topic: str) -> None:
    standings, seconds = _meet(kafka, topic, {"cost-provider.impl": "weighted"})

    assert standings[_WRITER]["share"] > 0.8
    # The cost is the time, times the weight of writes or reads. Logins are free.
    assert standings[_WRITER]["cost_raw"] == pytest.approx(100 * seconds[_WRITER] * 1e6, rel=0.2)
    assert standings[_READER]["cost_raw"] == pytest.approx(10 * seconds[_READER] * 1e6, rel=0.2)


def test_weights_come_from_the_file(kafka: Kafka, topic: str) -> None:
    weights = {"weighted-cost.lockexclusive": 0, "weighted-cost.lockshared": 1}
    standings, seconds = _meet(kafka, topic, {"cost-provider.impl": "weighted", **weights})

    assert standings.get(_WRITER, {"cost_raw": 0})["cost_raw"] == 0
    assert standings[_READER]["cost_raw"] == pytest.approx(seconds[_READER] * 1e6, rel=0.2)


_FOLD: Final = {"fold": [{"match": "app-([a-z]+)-[0-9]+", "to": r"app-\1"}]}


def test_folded_principals_are_one_identity(kafka: Kafka, topic: str) -> None:
    with Proxy({"fair_call_queue": _QUEUE, "principals": _FOLD}, kafka) as proxy:
        for user in (*_APPS, _WRITER):
            _as_user(proxy, user, topic, _ask_once)
        standings = _standings(proxy)
        queues = json.loads(proxy.admin(f"/callqueue?user={_APPS[0]}"))

    assert {name: one["cost_raw"] for name, one in standings.items()} == {"app-etl": 2, "app-web": 1, _WRITER: 1}
    assert {queue["users"][0]["identity"] for queue in queues} == {"app-etl"}


_PROVIDER: Final = """
def team_of(principal, client_id, host):
    if principal == "ANONYMOUS":
        return None
    team, _, _ = client_id.partition(".")
    return f"{team} of {principal} at {host}"
"""


def test_operators_identity_provider_names_the_payer(
    kafka: Kafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_identities.py").write_text(_PROVIDER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    queue = {**_QUEUE, "identity-provider.impl": "own_identities:team_of"}
    with Proxy({"fair_call_queue": queue, "principals": _FOLD}, kafka) as proxy:
        for client_id in ("search.1", "search.2", "mail.1"):
            _as_user(proxy, _APPS[0], topic, _ask_once, client_id=client_id)
        with raw_client(proxy.port(), client_id="search.1") as client:
            _ask_once(client, topic)
        costs = {
            (listener, name): one["cost_raw"]
            for listener in (_SASL, "PROXIED")
            for name, one in _standings(proxy, listener).items()
        }

    assert costs == {
        (_SASL, "search of app-etl at 127.0.0.1"): 2,
        (_SASL, "mail of app-etl at 127.0.0.1"): 1,
        ("PROXIED", "IdentityProvider.Unknown"): 1,
    }
