"""A client that reaches one broker through several listeners, by several names and ports, has its quota only once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import DIRECT, PROXIED, Kafka
from tests.end_to_end.support.load import KIB, Answer, produce_flood
from tests.end_to_end.support.processes import free_port, free_ports, wait_until
from tests.end_to_end.support.proxy import Proxy

_QUOTA: Final = 64 * KIB
_REQUEST_BYTES: Final = 8 * KIB
_SECONDS: Final = 8.0
_BURST_S: Final = 1.0


def _listeners(kafka: Kafka) -> list[dict[str, Any]]:
    """Return listeners for two spellings of a broker's address, for another of its ports, and for its cluster."""
    broker = kafka.brokers[0]
    advertised = broker.listeners[PROXIED].advertised_port
    own, other = broker.listeners[PROXIED].port, broker.listeners[DIRECT].port
    first = free_ports(11)
    return [
        {"name": "one", "bind": f"127.0.0.1:{advertised}", "upstream": f"127.0.0.1:{own}"},
        {"name": "other", "bind": f"127.0.0.1:{free_port()}", "upstream": f"localhost:{own}"},
        {"name": "port", "bind": f"127.0.0.1:{free_port()}", "upstream": f"localhost:{other}"},
        {
            "name": "cluster",
            "bind": f"127.0.0.1:{first}",
            "bootstrap_servers": f"127.0.0.1:{other}",
            "broker_ports": f"{first + 1}-{first + 10}",
        },
    ]


def test_client_on_every_listener_of_a_broker_has_one_quota(kafka_4: Kafka) -> None:
    topic = create_topic(kafka_4)
    settings = {
        "listeners": _listeners(kafka_4),
        "shaping": "paced",
        "quotas": [{"client-id": "etl", "producer_byte_rate": _QUOTA}],
    }
    with Proxy(settings) as proxy, ThreadPoolExecutor() as threads:
        ports = [proxy.port("one"), proxy.port("other"), proxy.port("port"), proxy.port("cluster") + 2]  # for node 1

        wait_until(lambda: "-> broker 1" in proxy.log, timeout_s=30, what="the broker of the cluster has its port")

        def flood(port: int) -> list[Answer]:
            return produce_flood(
                port, topic, client_id="etl", request_bytes=_REQUEST_BYTES, seconds=_SECONDS, obeys=False
            )

        answers = list(threads.map(flood, ports))

        passed = sum(answer.size_bytes for of_port in answers for answer in of_port)
        most = _QUOTA * (_SECONDS + _BURST_S) + len(ports) * 2 * _REQUEST_BYTES
        assert all(answers)
        assert 0.8 * _QUOTA * _SECONDS < passed <= most
        counted = proxy.metrics().total("kafka_quota_proxy_bytes_total", client_id="etl", kind="produce")
        assert passed <= counted <= passed + len(ports) * 2 * _REQUEST_BYTES
        assert "are one broker, node 1 of cluster" in proxy.log
        assert "keep separate quotas" not in proxy.log
