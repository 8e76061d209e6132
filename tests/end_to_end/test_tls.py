"""TLS to clients and, separately, to a real Kafka, with real clients. Certificates change under load."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import QUIET, Librdkafka, create_topic, end_offset
from tests.end_to_end.support.kafka import PROXIED
from tests.end_to_end.support.processes import free_port, free_ports, scratch
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.tls_kafka import TlsKafka
from tests.end_to_end.support.tools import consumer_performance, producer_performance
from tests.support.certificates import Authority

BOTH, TO_BROKERS, CLUSTER = "BOTH", "TO_BROKERS", "CLUSTER"
ALICE_BYTES_PER_SECOND = 500_000
BATCH_BYTES = 50_000
RULES = ["RULE:^CN=(.*?)(?:,.*)?$/$1/L", "DEFAULT"]


@dataclass
class Stage:
    """A broker, a proxy in front of it, and the certificates."""

    kafka: TlsKafka
    proxy: Proxy
    directory: Path
    authority: Authority  # it signed all certificates of the beginning
    clients: dict[str, tuple[str, str]] = field(default_factory=dict)  # certificate and key, by name

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    def librdkafka(self, client: str) -> dict[str, str | int | bool]:
        certificate, key = self.clients[client]
        return {
            "security.protocol": "ssl",
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": certificate,
            "ssl.key.location": key,
            "log_level": 0,
        }

    def context(self, client: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if client is not None:
            context.load_cert_chain(*self.clients[client])
        return context

    def java(self, client: str) -> dict[str, str | int]:
        certificate, key = (Path(file) for file in self.clients[client])
        keystore = certificate.with_suffix(".keystore.pem")
        keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
        return {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }

    def enlist(self, client: str, authority: Authority | None = None) -> None:
        issued = (authority or self.authority).issue(client)
        self.clients[client] = issued.save(self.directory, client)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    authority = Authority("everybody's")
    tls = {name: {"ssl.client.auth": "required"} for name in (BOTH, TO_BROKERS, CLUSTER)}
    with scratch("tls") as directory, TlsKafka(KAFKA_4, directory, authority, tls=tls, unproxied=[CLUSTER]) as kafka:
        authority.save(directory, "ca")
        authority.save(directory, "client-ca")
        authority.issue("proxy", hosts=["127.0.0.1"]).save(directory, "proxy")
        files = {name: str(directory / file) for name, file in (("certificate", "proxy.pem"), ("key", "proxy.key"))}
        client_tls = {
            **files,
            "client_auth": "required",
            "client_ca": str(directory / "client-ca.pem"),
            "principal_mapping_rules": RULES,
        }
        upstream_tls = {"ca": str(directory / "ca.pem"), **files}
        endpoints = {name: kafka.tls_endpoint(name) for name in tls} | {PROXIED: kafka.listener(PROXIED)}
        first_port = free_ports(2)
        listeners: list[dict[str, Any]] = [
            {"name": name, "bind": endpoint.advertised_address, "upstream": endpoint.address}
            for name, endpoint in endpoints.items()
            if name != CLUSTER
        ]
        cluster = endpoints[CLUSTER]
        listeners.append(
            {
                "name": CLUSTER,
                "bind": f"127.0.0.1:{free_port()}",
                "bootstrap_servers": cluster.address,
                "broker_ports": f"{first_port}-{first_port + 1}",
            }
        )
        for listener in listeners:
            listener |= {} if listener["name"] == TO_BROKERS else {"client_tls": client_tls}
            listener |= {} if listener["name"] == PROXIED else {"upstream_tls": upstream_tls}
        quotas = [{"user": "alice", "producer_byte_rate": ALICE_BYTES_PER_SECOND}]
        with Proxy({"listeners": listeners, "quotas": quotas, "shaping": "paced"}) as proxy:
            stage = Stage(kafka, proxy, directory, authority)
            stage.enlist("alice")
            stage.enlist("bob")
            yield stage


@pytest.mark.parametrize("listener", [BOTH, *(pytest.param(one, marks=pytest.mark.long) for one in (PROXIED, CLUSTER))])
def test_librdkafka_works_over_tls(stage: Stage, listener: str) -> None:
    topic = create_topic(stage.kafka)
    client = Librdkafka(settings=stage.librdkafka("bob"))

    client.produce(stage.proxy.address(listener), topic, client_id="tls", count=2_000)
    client.consume(stage.proxy.address(listener), topic, client_id="tls", count=2_000)

    assert end_offset(stage.kafka, topic) == 2_000


@pytest.mark.proof
def test_plaintext_clients_reach_brokers_over_tls(stage: Stage) -> None:
    topic = create_topic(stage.kafka)
    client = Librdkafka(settings=QUIET)

    client.produce(stage.proxy.address(TO_BROKERS), topic, client_id="tls", count=2_000)
    client.consume(stage.proxy.address(TO_BROKERS), topic, client_id="tls", count=2_000)


@pytest.mark.proof
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_aiokafka_works_over_tls(stage: Stage, version: ssl.TLSVersion) -> None:
    topic = create_topic(stage.kafka)
    context = stage.context("bob")
    context.minimum_version = context.maximum_version = version
    settings = {"bootstrap_servers": stage.proxy.address(BOTH), "security_protocol": "SSL", "ssl_context": context}

    async def there_and_back() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await asyncio.gather(*[await producer.send(topic, b"%d" % number, partition=0) for number in range(500)])
        consumer = aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(60):
            return [(await consumer.getone()).value for _ in range(500)]

    assert asyncio.run(there_and_back()) == [b"%d" % number for number in range(500)]


def test_java_works_over_tls(stage: Stage) -> None:
    topic = create_topic(stage.kafka)
    where = {"bootstrap_servers": stage.proxy.address(BOTH), "topic": topic, "properties": stage.java("bob")}

    producer_performance(stage.kafka, records=20_000, record_size_bytes=1_000, **where)  # type: ignore[arg-type]
    consumed = consumer_performance(stage.kafka, records=20_000, **where)  # type: ignore[arg-type]

    assert consumed.size_bytes == pytest.approx(20_000_000, rel=0.01)


def test_quota_of_the_certificates_user_holds(stage: Stage) -> None:
    topic = create_topic(stage.kafka)
    before = stage.proxy.metrics()
    producer = confluent_kafka.Producer(
        {**stage.librdkafka("alice"), "bootstrap.servers": stage.proxy.address(BOTH), "batch.size": BATCH_BYTES}
    )
    value = bytes(10_000)
    started_s = time.monotonic()
    while time.monotonic() - started_s < 5:
        producer.produce(topic, value, partition=0)
        producer.poll(0 if len(producer) < 200 else 0.05)
    producer.purge()
    producer.flush(10)
    name = "kafka_quota_proxy_bytes_total"
    labels = {"kind": "produce", "user": "alice"}
    charged_bytes = stage.proxy.metrics().total(name, **labels) - before.total(name, **labels)

    # The burst, a second's worth, passes at once, and a request may be on its way.
    seconds = time.monotonic() - started_s
    assert 2 * ALICE_BYTES_PER_SECOND < charged_bytes <= ALICE_BYTES_PER_SECOND * (seconds + 1) + 2 * BATCH_BYTES
    throttled = "kafka_quota_proxy_throttled_requests_total"
    assert stage.proxy.metrics().total(throttled, user="alice") > 0
    assert stage.proxy.metrics().total(throttled, user="bob") == 0
