"""Every client logs in to a real Kafka through the proxy with each mechanism, and its user is charged."""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import QUIET, create_topic, end_offset, run_java_program
from tests.end_to_end.support.frames import raw_client, record_batch
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.logins import add_scram_users, shake_hands
from tests.end_to_end.support.processes import free_port, wait_until
from tests.end_to_end.support.proxy import Metrics, Proxy

SASL, SHORT = "SASL", "SHORT"  # listeners; on the second, a login lasts two seconds
SHORT_MS = 2_000
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
USERS = ("alice", "bob")
RECORDS = 200
KIB = 1024
ALICES_RATE = 512 * KIB
_LOGIN_MODULE = "org.apache.kafka.common.security"
_TOKEN = re.compile(r"^(\S{22})\s+(\S+)\s", re.MULTILINE)

_JAAS = {
    "plain": f"{_LOGIN_MODULE}.plain.PlainLoginModule required "
    + " ".join(f'user_{user}="{user}-secret"' for user in USERS)
    + ";",
    "scram-sha-256": f"{_LOGIN_MODULE}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_LOGIN_MODULE}.scram.ScramLoginModule required;",
    "oauthbearer": f"{_LOGIN_MODULE}.oauthbearer.OAuthBearerLoginModule required;",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    config: dict[str, str | int] = {
        "listener.security.protocol.map": f"{SASL}:SASL_PLAINTEXT,{SHORT}:SASL_PLAINTEXT,"
        "DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "delegation.token.secret.key": "of this test",
    }
    for listener in (SASL, SHORT):
        for mechanism, jaas in _JAAS.items():
            config[f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config"] = jaas
    for mechanism in _JAAS:
        config[f"listener.name.{SHORT.lower()}.{mechanism}.connections.max.reauth.ms"] = SHORT_MS
    with Kafka(KAFKA_4, proxied=(SASL, SHORT), config=config) as started:
        add_scram_users(started, USERS, "SCRAM-SHA-256", "SCRAM-SHA-512")
        yield started


@pytest.fixture(scope="module")
def proxy(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    rules = [
        {"user": "alice", "producer_byte_rate": ALICES_RATE, "consumer_byte_rate": ALICES_RATE, "shaping": "paced"},
        {"user": "<default>", "producer_byte_rate": "1GiB", "consumer_byte_rate": "1GiB"},
    ]
    settings = {
        "quotas": rules,
        "principals": {"admins": ["alice"]},
        "store": {"directory": str(tmp_path_factory.mktemp("store") / "quotas.d")},
        "log": {"level": "debug"},
    }
    with Proxy(settings, kafka) as started:
        yield started


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    return create_topic(kafka)


# -- clients: each logs in as a user by a mechanism, and produces RECORDS records


def web_token(user: str) -> str:
    """Return an unsigned JSON web token, which brokers accept in tests."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s, "exp": now_s + 3_600})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def jaas_of(mechanism: str, user: str) -> str:
    if mechanism == "OAUTHBEARER":
        return f'{_JAAS["oauthbearer"][:-1]} unsecuredLoginStringClaim_sub="{user}";'
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f'{_LOGIN_MODULE}.{module} required username="{user}" password="{user}-secret";'


def java_settings(address: str, mechanism: str, jaas: str) -> list[str]:
    return [
        f"bootstrap.servers={address}",
        "client.id=java",
        "security.protocol=SASL_PLAINTEXT",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config={jaas}",
    ]


def java(kafka: Kafka, address: str, topic: str, mechanism: str, user: str) -> None:
    settings = java_settings(address, mechanism, jaas_of(mechanism, user))
    assert run_java_program(kafka, "produce", topic, str(RECORDS), *settings)["acknowledged"] == RECORDS


def librdkafka(kafka: Kafka, address: str, topic: str, mechanism: str, user: str) -> None:
    settings = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={user}"}
    else:
        settings |= {"sasl.username": user, "sasl.password": f"{user}-secret"}
    producer = confluent_kafka.Producer({**settings, **QUIET})
    for _ in range(RECORDS):
        producer.produce(topic, bytes(100), partition=0)
    assert producer.flush(30) == 0


def aiokafka_settings(address: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    settings = {"bootstrap_servers": address, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":

        async def token(self: object) -> str:
            return web_token(user)

        provider = type("Provider", (aiokafka.abc.AbstractTokenProvider,), {"token": token})
        return {**settings, "sasl_oauth_token_provider": provider()}
    return {**settings, "sasl_plain_username": user, "sasl_plain_password": password}


def aiokafka_(kafka: Kafka, address: str, topic: str, mechanism: str, user: str) -> None:
    async def produce() -> None:
        producer = aiokafka.AIOKafkaProducer(**aiokafka_settings(address, mechanism, user, f"{user}-secret"))
        async with producer, asyncio.timeout(30):
            await asyncio.gather(*[await producer.send(topic, bytes(100), partition=0) for _ in range(RECORDS)])

    asyncio.run(produce())


def kafka_python_(kafka: Kafka, address: str, topic: str, mechanism: str, user: str) -> None:
    settings: dict[str, Any] = {"sasl_plain_username": user, "sasl_plain_password": f"{user}-secret"}
    if mechanism == "OAUTHBEARER":
        oauth: Any = import_module("kafka.net.sasl.oauth")
        provider = type("Provider", (oauth.AbstractTokenProvider,), {"token": lambda self: web_token(user)})
        settings = {"sasl_oauth_token_provider": provider()}
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **settings
    )
    try:
        futures = [producer.send(topic, bytes(100), partition=0) for _ in range(RECORDS)]
        producer.flush(30)
        assert all(future.succeeded() for future in futures)
    finally:
        producer.close()


Produce = Callable[[Kafka, str, str, str, str], None]
CLIENTS: dict[str, Produce] = {
    "Java": java,
    "librdkafka": librdkafka,
    "aiokafka": aiokafka_,
    "kafka-python": kafka_python_,
}
# Each client with one mechanism, and with all others in the long tests.
EACH = [
    pytest.param(name, mechanism, marks=() if which == MECHANISMS.index(mechanism) else pytest.mark.long)
    for which, name in enumerate(CLIENTS)
    for mechanism in MECHANISMS
]


# -- what the metrics say


def charged(metrics: Metrics, user: str) -> float:
    return metrics.total("kafka_quota_proxy_bytes_total", kind="produce", user=user)


def logins(metrics: Metrics, **labels: str) -> float:
    return metrics.total("kafka_quota_proxy_logins_total", **labels)


# -- tests


@pytest.mark.parametrize(("name", "mechanism"), EACH)
def test_every_client_logs_in_with_every_mechanism_and_its_user_is_charged(
    kafka: Kafka, proxy: Proxy, topic: str, name: str, mechanism: str
) -> None:
    before, had = proxy.metrics(), end_offset(kafka, topic)

    CLIENTS[name](kafka, proxy.address(SASL), topic, mechanism, "bob")

    after = proxy.metrics()
    assert end_offset(kafka, topic) == had + RECORDS
    assert charged(after, "bob") > charged(before, "bob")
    assert charged(after, "ANONYMOUS") == charged(after, "UNKNOWN") == 0
    assert logins(after, mechanism=mechanism, result="accepted") > logins(
        before, mechanism=mechanism, result="accepted"
    )
    assert logins(after, result="failed") == logins(before, result="failed")


@pytest.mark.proof
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_user_is_read_from_tokens_after_a_v0_handshake(proxy: Proxy, topic: str, mechanism: str) -> None:
    before = proxy.metrics()
    scram: Any = import_module("kafka.net.sasl.scram")

    with raw_client(proxy.port(SASL)) as client:
        assert shake_hands(client, mechanism, version=0) == 0
        if mechanism == "PLAIN":
            assert client.exchange_token(b"\0bob\0bob-secret") == b""
        elif mechanism == "OAUTHBEARER":
            assert client.exchange_token(f"n,,\x01auth=Bearer {web_token('bob')}\x01\x01".encode()) == b""
        else:
            exchange = scram.ScramClient("bob", "bob-secret", mechanism)
            exchange.process_server_first_message(client.exchange_token(exchange.first_message()))
            exchange.process_server_final_message(client.exchange_token(exchange.final_message()))
        assert client.produce(topic, record_batch([bytes(100)])).error_code == 0

    after = proxy.metrics()
    assert charged(after, "bob") > charged(before, "bob")
    assert logins(after, mechanism=mechanism) == logins(before, mechanism=mechanism) + 1


@pytest.mark.proof
@pytest.mark.parametrize("name", ["librdkafka", "aiokafka"])
def test_users_are_known_with_rewritten_addresses(kafka: Kafka, proxy: Proxy, topic: str, name: str) -> None:
    """The cluster advertises ``proxy``, so a login passes through both proxies."""
    first = free_port()
    whole = {
        "name": "whole",
        "bind": f"127.0.0.1:{first}",
        "bootstrap_servers": kafka.listener(SASL).address,
        "broker_ports": f"{first + 1}-{first + 2}",
    }
    rules = [{"user": "bob", "producer_byte_rate": "1GiB"}]

    with Proxy({"quotas": rules, "listeners": [whole]}) as outer:
        CLIENTS[name](kafka, outer.address("whole"), topic, "SCRAM-SHA-512", "bob")
        metrics = outer.metrics()

    assert charged(metrics, "bob") > 0
    assert charged(metrics, "ANONYMOUS") == 0
    assert logins(metrics, mechanism="SCRAM-SHA-512", result="accepted") >= 2


def test_delegation_token_login_passes_with_unknown_owner(
    kafka: Kafka, proxy: Proxy, topic: str, tmp_path: Path
) -> None:
    settings = tmp_path / "bob.properties"
    settings.write_text("\n".join(java_settings("-", "SCRAM-SHA-256", jaas_of("SCRAM-SHA-256", "bob"))[2:]))
    table = kafka.run_java(
        "org.apache.kafka.tools.DelegationTokenCommand",
        "--bootstrap-server", proxy.address(SASL), "--command-config", settings,
        "--create", "--max-life-time-period", "-1",
    )  # fmt: skip
    found = _TOKEN.search(table)
    assert found, table
    jaas = (
        f'{_LOGIN_MODULE}.scram.ScramLoginModule required username="{found[1]}" password="{found[2]}" tokenauth="true";'
    )
    before = proxy.metrics()

    done = run_java_program(
        kafka, "produce", topic, str(RECORDS), *java_settings(proxy.address(SASL), "SCRAM-SHA-256", jaas)
    )

    after = proxy.metrics()
    assert done["acknowledged"] == RECORDS
    assert charged(after, "UNKNOWN") > charged(before, "UNKNOWN")
    assert logins(after, result="unknown") > logins(before, result="unknown")
    assert charged(after, "bob") == charged(before, "bob")
    wait_until(lambda: "does not show the user's name" in proxy.log, timeout_s=5, what="the log says so")


def test_java_client_continues_through_reauthentications(kafka: Kafka, proxy: Proxy, topic: str) -> None:
    settings = java_settings(proxy.address(SHORT), "PLAIN", jaas_of("PLAIN", "bob"))
    before = proxy.metrics()

    done = run_java_program(kafka, "member", topic, "6", *settings, "group.id=short", "auto.offset.reset=earliest")

    after = proxy.metrics()
    connections = after.total("kafka_quota_proxy_disconnects_total", listener=SHORT)
    assert (done["assignments"], done["revocations"]) == (1, 0)
    assert done["size_bytes"] > 0
    # A login lasts 2 s, and the client worked for 6 s on its first connections.
    assert 1 <= connections <= 4
    assert logins(after, listener=SHORT, result="accepted") >= 2 * connections
    assert after.total("kafka_quota_proxy_protocol_errors_total") == 0
    fetched = "kafka_quota_proxy_bytes_total"
    assert after.total(fetched, kind="fetch", user="bob") > before.total(fetched, kind="fetch", user="bob")


def test_log_and_metrics_contain_no_password_or_token(proxy: Proxy) -> None:
    """The log is that of all tests of this module, at level debug."""
    output = proxy.log + proxy.admin("/metrics")

    for secret in ("alice-secret", "bob-secret", "s3cr3t", "wrong", web_token("bob").split(".")[0]):
        assert secret not in output
