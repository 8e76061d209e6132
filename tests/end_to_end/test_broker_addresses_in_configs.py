"""Which responses show a broker's address to a client of a ``bootstrap_servers`` listener.

The proxy rewrites addresses that lead to a broker, but not descriptions of the cluster (docs/explanation/security.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.logins import secret_of
from tests.end_to_end.support.processes import free_ports
from tests.end_to_end.support.proxy import Proxy

_LOGIN: Final = "LOGIN"
_USERS: Final = ("admin", "alice")
_JAAS: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{user}="{secret_of(user)}"' for user in _USERS
)
_PORTS: Final = 10


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """A broker at which ``admin`` may do everything, and ``alice`` may only log in."""
    config: dict[str, str | int] = {
        "listener.security.protocol.map": f"{_LOGIN}:SASL_PLAINTEXT,{DIRECT}:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{_LOGIN.lower()}.plain.sasl.jaas.config": f"{_JAAS};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    with Kafka(KAFKA_4, proxied=(), unproxied=(_LOGIN,), config=config) as started:
        create_topic(started)
        yield started


@pytest.fixture(scope="module")
def proxy(kafka: Kafka) -> Iterator[Proxy]:
    first = free_ports(_PORTS + 1)
    listener = {
        "name": "clients",
        "bind": f"127.0.0.1:{first}",
        "bootstrap_servers": kafka.addresses(_LOGIN),
        "broker_ports": f"{first + 1}-{first + _PORTS}",
    }
    with Proxy({"listeners": [listener]}) as started:
        yield started


def _answers(proxy: Proxy, user: str) -> dict[str, str]:
    """Send all requests that describe a cluster, as a user, and return responses or errors as text."""
    admin: Any = import_module("kafka.admin")
    client = admin.KafkaAdminClient(
        bootstrap_servers=proxy.address("clients"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=secret_of(user),
    )
    of_broker = admin.ConfigResource(admin.ConfigResourceType.BROKER, "1")
    questions: dict[str, Callable[[], object]] = {
        "the configuration of a broker": lambda: client.describe_configs([of_broker], config_filter="all"),
        "the quorum": client.describe_metadata_quorum,
        "the cluster": client.describe_cluster,
        "topics": client.describe_topics,
        "groups": client.list_groups,
        "log directories": client.describe_log_dirs,
        "features": client.describe_features,
        "names of topics": client.list_topics,
    }
    try:
        return {name: _answer(question) for name, question in questions.items()}
    finally:
        client.close()


def _answer(question: Callable[[], object]) -> str:
    try:
        return json.dumps(question(), default=str)
    except Exception as error:  # noqa: BLE001 - a refusal is an answer, and may say where a broker is
        return f"{type(error).__name__}: {error}"


def _with_addresses(kafka: Kafka, answers: dict[str, str]) -> set[str]:
    """Return the names of the requests that were answered with a port of the broker or the controller."""
    (broker,) = kafka.brokers
    text = broker.properties.read_text()
    controllers = next(line for line in text.splitlines() if line.startswith("controller.quorum"))
    ports = {str(endpoint.port) for endpoint in broker.listeners.values()} | {controllers.rpartition(":")[2]}
    return {name for name, answer in answers.items() if any(port in answer for port in ports)}


def test_client_allowed_to_describe_configs_reads_broker_addresses(kafka: Kafka, proxy: Proxy) -> None:
    answers = _answers(proxy, "admin")

    assert _with_addresses(kafka, answers) == {"the configuration of a broker", "the quorum"}
    assert "advertised.listeners" in answers["the configuration of a broker"]
    assert str(proxy.port("clients") + 2) in answers["the cluster"]  # for node 1, so the request was answered


def test_client_not_allowed_to_describe_configs_reads_no_address(kafka: Kafka, proxy: Proxy) -> None:
    answers = _answers(proxy, "alice")

    assert _with_addresses(kafka, answers) == set()
    assert str(proxy.port("clients") + 2) in answers["the cluster"]
