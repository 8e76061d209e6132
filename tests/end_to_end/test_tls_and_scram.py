"""TLS to the proxy and SCRAM through it: the quota holds within 1 %, also while certificates are replaced."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509

from tests.end_to_end.support import tools
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import MIB
from tests.end_to_end.support.logins import add_scram_users, secret_of
from tests.end_to_end.support.processes import scratch, wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.support.certificates import Authority

SASL: Final = "SASL"
QUOTA: Final = 3 * MIB
RECORD_BYTES: Final = 1_000
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class Stage:
    kafka: Kafka
    proxy: Proxy
    directory: Path
    authority: Authority

    def serial_number(self) -> int:
        """Return the serial number of the certificate that a new client gets."""
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", self.proxy.port(SASL)), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
        ):
            return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"").serial_number

    def charged_bytes(self) -> float:
        return self.proxy.metrics().total("kafka_quota_proxy_bytes_total", kind="produce", user="alice")

    def throttled_requests(self) -> float:
        return self.proxy.metrics().total("kafka_quota_proxy_throttled_requests_total", kind="produce", user="alice")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    config: dict[str, str | int] = {
        "listener.security.protocol.map": f"{SASL}:SASL_PLAINTEXT,DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"listener.name.{SASL.lower()}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    authority = Authority("everybody's")
    with scratch("tls-and-scram") as directory, Kafka(KAFKA_4, proxied=(SASL,), config=config) as kafka:
        add_scram_users(kafka, ["alice"], "SCRAM-SHA-512")
        authority.save(directory, "ca")
        authority.issue("proxy", hosts=["127.0.0.1"]).save(directory, "proxy")
        endpoint = kafka.listener(SASL)
        listener = {
            "name": SASL,
            "bind": endpoint.advertised_address,
            "upstream": endpoint.address,
            "client_tls": {"certificate": str(directory / "proxy.pem"), "key": str(directory / "proxy.key")},
        }
        quotas = [{"user": "alice", "producer_byte_rate": QUOTA}]
        with Proxy({"listeners": [listener], "quotas": quotas, "shaping": "paced"}) as proxy:
            yield Stage(kafka, proxy, directory, authority)


def _hold(stage: Stage, *, seconds: int) -> None:
    produced: list[tools.Produced] = []

    def produce() -> None:
        produced.append(
            tools.producer_performance(
                stage.kafka,
                bootstrap_servers=stage.proxy.address(SASL),
                topic=create_topic(stage.kafka),
                records=_records(seconds),
                record_size_bytes=RECORD_BYTES,
                properties={
                    "security.protocol": "SASL_SSL",
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(stage.directory / "ca.pem"),
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.jaas.config": f'{SCRAM_MODULE} required username="alice" password="{secret_of("alice")}";',
                    "acks": 1,
                },
            )
        )

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        # A client takes some seconds to warm up and to use its burst.
        wait_until(lambda: stage.throttled_requests() > 10, timeout_s=60, what="the producer is held to its quota")
        charged, started_s = stage.charged_bytes(), time.monotonic()
        time.sleep(seconds / 2)
        shown = stage.serial_number()
        stage.authority.issue("proxy", hosts=["127.0.0.1"]).save(stage.directory, "proxy")
        time.sleep(seconds / 2)
        rate = (stage.charged_bytes() - charged) / (time.monotonic() - started_s)
        assert stage.serial_number() != shown
    finally:
        producer.join()

    assert rate == pytest.approx(QUOTA, rel=0.01)
    # ProducerPerformance does not count failed records.
    assert [done.records for done in produced] == [_records(seconds)]
    assert produced[0].throttle_time_max_ms > 0


def _records(seconds: int) -> int:
    """Return the number of records for the measured time, the initial burst, and some seconds more."""
    return (seconds + 6) * QUOTA // RECORD_BYTES


def test_user_of_tls_and_scram_gets_its_quota_within_one_percent(stage: Stage) -> None:
    _hold(stage, seconds=12)


@pytest.mark.long
def test_user_of_tls_and_scram_gets_its_quota_for_a_minute(stage: Stage) -> None:
    _hold(stage, seconds=60)
