"""Runs Kafka releases with ZooKeeper. Followers of 2.8.2 fetch like brokers of 0.10.1."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from tests.end_to_end.support.artifacts import KAFKA_2_8, java, kafka_classpath
from tests.end_to_end.support.kafka import DIRECT, REPLICATION, Broker, Endpoint, Kafka
from tests.end_to_end.support.processes import Process, free_port, wait_until
from tests.end_to_end.support.quick_java import class_archive, reading

_PROTOCOL: Final = "0.10.1-IV2"  # the first with Fetch v3 (KIP-74)
_OF_CONTROLLERS: Final = ("process.roles", "node.id", "controller.quorum.voters", "controller.listener.names")
_START_TIMEOUT_S: Final = 60


class OldKafka(Kafka):
    """A cluster like ``Kafka``, but each broker has only one listener.

    Brokers of 0.10.1 identify listeners by security protocol, so only one can be in plaintext. ``DIRECT`` and
    ``REPLICATION`` are two names of this listener. If it is proxied, clients are sent to the proxies too.
    """

    def __init__(
        self,
        version: str = KAFKA_2_8,
        *,
        nodes: int = 1,
        inter_broker_proxied: bool = False,
        config: Mapping[str, str | int] | None = None,
        logs_requests: bool = False,
    ) -> None:
        super().__init__(
            version,
            nodes=nodes,
            proxied=(),
            inter_broker_proxied=inter_broker_proxied,
            config=config,
            logs_requests=logs_requests,
        )
        self._zookeeper: Process | None = None
        self._zookeeper_port = free_port()

    @property
    def zookeeper(self) -> str:
        """Return ``host:port`` of ZooKeeper."""
        return f"127.0.0.1:{self._zookeeper_port}"

    def _start_controllers(self) -> None:
        """Start ZooKeeper."""
        properties = self._directory / "zookeeper.properties"
        properties.write_text(
            f"dataDir={self._directory / 'zookeeper'}\n"
            f"clientPort={self._zookeeper_port}\n"
            "clientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n"
            "maxClientCnxns=0\n"
        )
        # This ZooKeeper is that of Kafka 2.8, because versions before 3.5 do not start on Java 17.
        classpath = kafka_classpath(KAFKA_2_8)
        options = reading(class_archive(classpath))
        command = [java(), *options, "-Xmx128m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        log = self._directory / "zookeeper.log"
        self._zookeeper = Process([*command, "-cp", classpath, main_class, properties], log=log)
        wait_until(self._is_up, timeout_s=_START_TIMEOUT_S, what="ZooKeeper listens")

    def _is_up(self) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self._zookeeper_port)) == 0

    def _format(self, broker: Broker) -> None:
        """Do nothing, because the broker creates its data directory."""

    def _trainee(self) -> Kafka:
        return OldKafka(self.version)

    def _listeners(self) -> dict[str, Endpoint]:
        port = free_port()
        if REPLICATION not in self._proxied:
            return {DIRECT: Endpoint(port=port, advertised_port=port)}
        endpoint = Endpoint(port=port, advertised_port=free_port())
        return {DIRECT: endpoint, REPLICATION: endpoint}

    def _properties(self, broker: Broker) -> dict[str, str | int]:
        endpoint = broker.listeners[DIRECT]
        own = super()._properties(broker)
        return {
            **{key: value for key, value in own.items() if key not in _OF_CONTROLLERS},
            "broker.id": broker.node_id,
            "zookeeper.connect": self.zookeeper,
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"PLAINTEXT://{endpoint.address}",
            "advertised.listeners": f"PLAINTEXT://{endpoint.advertised_address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            "inter.broker.protocol.version": _PROTOCOL,
            "log.message.format.version": _PROTOCOL,
        }

    def _end(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None
        super()._end()
