"""What only a real broker shows about an upstream: a login behind TLS, TLS that is not expected, and a bypass."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import confluent_kafka
import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.logins import add_scram_users, secret_of
from tests.end_to_end.support.processes import free_port, free_ports, wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.tls_kafka import TlsKafka
from tests.support.certificates import Authority

LOGIN: Final = "LOGIN"
_LOGIN: Final = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
}
_REACHED: Final = "kafka_quota_proxy_upstream_reachable"
_BYPASSED: Final = "kafka_quota_proxy_upstream_bypassed"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def kafka(ca: Path) -> Iterator[TlsKafka]:
    authority = Authority("everybody's")
    authority.save(ca, "ca")
    with TlsKafka(KAFKA_4, ca, authority, tls={LOGIN: _LOGIN}, unproxied=[LOGIN], sasl=[LOGIN]) as started:
        add_scram_users(started, ["alice"], "SCRAM-SHA-512")
        yield started


def _produce(address: str, topic: str, **settings: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, **settings, **QUIET})
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0


def _readiness(proxy: Proxy) -> dict[str, Any]:
    try:
        text = proxy.admin("/readyz")
    except HTTPError as refusal:
        with refusal:
            text = refusal.read().decode()
    found: dict[str, Any] = json.loads(text)
    return found


def _check_live(proxy: Proxy) -> str:
    command = [sys.executable, "-m", "proxy", "check", "--live", str(proxy.file)]
    checked = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    return f"{checked.returncode}: {checked.stdout}{checked.stderr}"


def test_a_cluster_with_a_login_is_ready(kafka: TlsKafka, ca: Path) -> None:
    first = free_ports(3)
    listener = {
        "name": "secure",
        "bind": f"127.0.0.1:{first}",
        "bootstrap_servers": kafka.tls_endpoint(LOGIN).address,
        "broker_ports": f"{first + 1}-{first + 2}",
        "upstream_tls": {"ca": str(ca / "ca.pem")},
    }
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": secret_of("alice"),
    }
    with Proxy({"listeners": [listener]}) as proxy:
        wait_until(proxy.is_ready, timeout_s=30, what="it is ready before a client has come")
        _produce(proxy.address("secure"), create_topic(kafka), **login)
        wait_until(proxy.is_ready, timeout_s=30, what="it is ready after a client has named the brokers")
        for _ in range(10):  # meanwhile the proxy asks the brokers in vain
            time.sleep(0.5)
            assert proxy.is_ready(), _readiness(proxy)
        assert proxy.metrics().total(_REACHED, reason="") == 1


def test_an_upstream_that_expects_tls_is_named(kafka: TlsKafka) -> None:
    upstream = kafka.tls_endpoint(LOGIN).address
    listener = {"name": "plain", "bind": f"127.0.0.1:{free_port()}", "upstream": upstream}
    with Proxy({"listeners": [listener]}) as proxy:
        text = f"cannot reach upstream {upstream}: it expects TLS there; give upstream_tls"
        wait_until(lambda: text in proxy.log, timeout_s=30, what="the log says why")
        found = _readiness(proxy)

        assert (found["state"], found["upstreams"]) == ("degraded", {upstream: False})
        assert found["reasons"][upstream]["reason"] == "tls_expected"
        assert proxy.metrics().label_values(_REACHED, "reason") == {"tls_expected"}
        assert _check_live(proxy).startswith("2: ")


def test_a_broker_that_advertises_itself_is_named_once(kafka: TlsKafka) -> None:
    upstream = kafka.bootstrap_servers
    listener = {"name": "past", "bind": f"127.0.0.1:{free_port()}", "upstream": upstream}
    topic = create_topic(kafka)
    with Proxy({"listeners": [listener]}) as proxy:
        for _ in range(2):
            _produce(proxy.address("past"), topic)
        wait_until(lambda: proxy.metrics().total(_BYPASSED) == 1, timeout_s=30, what="the metric says so")

        assert proxy.log.count(f"the broker at {upstream} advertises itself, {upstream}") == 1
        assert json.loads(proxy.admin("/clients"))["bypassed"] == [{"broker": upstream, "advertises": upstream}]
        assert "the broker advertises itself" in _check_live(proxy)
