"""Proxies are put between brokers and removed again, as docs/how-to/throttle-a-rebalance.md describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import QUICK_TO_RETURN, REPLICATION, Broker, Kafka
from tests.end_to_end.support.processes import free_port, wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.rebalance import Growth, Load, Reassignment, load
from tests.end_to_end.support.steady import SteadyClients, is_in_sync

MB: Final = 1_000_000
RATE: Final = 10 * MB
BETWEEN_BROKERS: Final = {**QUICK_TO_RETURN, "inter.broker.listener.name": REPLICATION}


def listens_on(broker: Broker, port: int) -> None:
    """Change the port of a broker's inter-broker listener from its next start on. The advertised port stays."""
    lines = broker.properties.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("listeners="):
            names = dict(each.split("://") for each in line.removeprefix("listeners=").split(","))
            names[REPLICATION] = f"127.0.0.1:{port}"
            lines[number] = "listeners=" + ",".join(f"{name}://{address}" for name, address in names.items())
    broker.properties.write_text("\n".join(lines) + "\n")


def sidecar(broker: Broker, upstream_port: int, replication: Mapping[str, Any]) -> Proxy:
    """Return a proxy on the advertised port of a broker's inter-broker listener."""
    listener = {
        "name": "replication",
        "bind": broker.listeners[REPLICATION].address,
        "upstream": f"127.0.0.1:{upstream_port}",
        "inter_broker": True,
    }
    return Proxy({"listeners": [listener], "replication": dict(replication)})


@pytest.mark.long
def test_proxies_are_put_between_brokers_and_removed_one_by_one() -> None:
    with Kafka(KAFKA_4, nodes=3, proxied=(), unproxied=(REPLICATION,), config=BETWEEN_BROKERS) as kafka:
        calm = create_topic(kafka, partitions=3, replicas=[1, 2, 3], config={"min.insync.replicas": "2"})
        moving = load(kafka, on=[1], size_bytes=100 * MB, record_bytes=16_300)
        written = moving.digests(kafka.broker)
        proxies: list[Proxy] = []
        try:
            with SteadyClients(kafka, calm, records_per_second=50) as clients:
                for broker in kafka.brokers:
                    broker.stop()
                    behind = free_port()
                    proxies.append(sidecar(broker, behind, {"leader.replication.throttled.rate": RATE}).__enter__())
                    listens_on(broker, behind)
                    broker.start()
                    broker.wait()
                    wait_until(lambda: is_in_sync(kafka, calm), timeout_s=60, what="all replicas are in sync")
                assert rate_of_a_move(moving, kafka) == pytest.approx(RATE, rel=0.07)
                for broker in kafka.brokers:
                    broker.stop()
                    proxies.pop(0).__exit__(None, None, None)
                    listens_on(broker, broker.listeners[REPLICATION].port)
                    broker.start()
                    broker.wait()
                    wait_until(lambda: is_in_sync(kafka, calm), timeout_s=60, what="all replicas are in sync")
        finally:
            for proxy in proxies:
                proxy.__exit__(None, None, None)
        assert clients.failures == []
        assert moving.digests(kafka.brokers[2]) == written


def rate_of_a_move(moving: Load, kafka: Kafka) -> float:
    reassignment = Reassignment(load=moving, to=[3])
    with Growth(moving, kafka.brokers[2]) as growth:
        reassignment.execute()
        reassignment.wait(timeout_s=60)
    return growth.rate()
