"""A live cluster of three brokers that is moved behind sidecars by the steps of docs/how-to/into-production.md."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import confluent_kafka
import yaml
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from kafka_quota_proxy.proxy.__main__ import main
from tests.end_to_end.support.clients import QUIET
from tests.end_to_end.support.kafka import Broker, Kafka
from tests.end_to_end.support.processes import free_port, wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.support.pages import block

PAGE: Final = "how-to/into-production.md"
CLIENTS: Final = "CLIENTS"
REPLICATION: Final = "REPLICATION"
PROXY_HOST: Final = "127.0.0.9"  # from which the sidecars connect to brokers
_PATIENCE_S: Final = 120
_NAMED: Final = re.compile(r"(\w+)://[^:,]*:(\d+)")


_T = TypeVar("_T")
Place: TypeAlias = tuple[str, int]  # topic and partition


class Sidecar:
    """A broker and its proxy. The ports of the page are replaced by free ones."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.proxy: Proxy | None = None
        replication = broker.listeners.get(REPLICATION)
        self._ports = {
            "9092": broker.listeners[CLIENTS].port,
            "9094": replication.port if replication else free_port(),
            "19092": free_port(),
            "9308": free_port(),
        }

    def settings(self, holding: str, replaced: Mapping[str, str] = {}) -> dict[str, Any]:
        """Return the only configuration of the page that contains ``holding``, with some texts replaced."""
        text = block(PAGE, "yaml", holding=holding).text
        for old, new in replaced.items():
            text = text.replace(old, new)
        for port, free in self._ports.items():
            text = re.sub(rf"(127\.0\.0\.1|0\.0\.0\.0):{port}\b", f"127.0.0.1:{free}", text)
        settings: dict[str, Any] = yaml.safe_load(text)
        return {**settings, "upstream_bind": PROXY_HOST}

    def configure(self, title: str) -> None:
        """Put a block of the page into the broker's properties. Listeners that the page does not name stay."""
        now = dict(line.split("=", 1) for line in self.broker.properties.read_text().splitlines())
        for line in block(PAGE, "properties", holding=title).text.splitlines():
            key, _, value = line.partition("=")
            if key.endswith("listeners"):
                listed = dict(one.split("://") for one in now[key].split(","))
                listed |= {name: f"127.0.0.1:{self._ports[port]}" for name, port in _NAMED.findall(value)}
                now[key] = ",".join(f"{name}://{address}" for name, address in listed.items())
            elif key == "listener.security.protocol.map":
                now[key] = ",".join(sorted({*now[key].split(","), *value.split(",")}))
            elif not line.startswith("#"):
                now[key] = value
        self.broker.properties.write_text("".join(f"{key}={value}\n" for key, value in now.items()))

    def restart(self, title: str) -> None:
        """Restart the broker with a block of the page."""
        self.broker.stop()
        self.configure(title)
        self.broker.restart()

    def move_in(self, tmp_path: Path) -> None:
        """Put the broker behind its sidecar."""
        proxy = Proxy(self.settings("# no limits yet"))
        planned = tmp_path / f"{self.broker.node_id}.yaml"
        planned.write_text(yaml.safe_dump(self.settings("# no limits yet")))
        assert main(["check", str(planned)]) == 0
        self.broker.stop()
        self.configure("# behind the sidecar")
        self.proxy = proxy.__enter__()
        self.broker.start()
        self.broker.wait()
        wait_until(proxy.is_ready, timeout_s=_PATIENCE_S, what="the sidecar reaches its broker")
        assert main(["healthcheck", "--ready", str(proxy.file)]) == 0

    def move_out(self) -> None:
        """Take the sidecar away."""
        proxy = self.running_proxy
        self.broker.stop()
        assert proxy.stop() == 0
        self.end()
        self.configure("# without the sidecar")
        self.broker.restart()

    @property
    def running_proxy(self) -> Proxy:
        assert self.proxy is not None
        return self.proxy

    def end(self) -> None:
        """End the proxy, if there is one."""
        if self.proxy is not None:
            self.proxy.__exit__(None, None, None)
            self.proxy = None


class Administrator:
    """What an administrator sees of the cluster. It asks the brokers at their listener ``DIRECT``."""

    def __init__(self, kafka: Kafka) -> None:
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers, **QUIET}
        self._admin = AdminClient(self._settings)

    def is_in_sync(self) -> bool:
        """Return whether no partition is under-replicated."""
        topics = _patiently(lambda: self._admin.list_topics(timeout=10)).topics.values()
        return all(len(one.isrs) == len(one.replicas) for topic in topics for one in topic.partitions.values())

    def settle(self) -> None:
        """Wait until all replicas are in sync, and give each partition its preferred leader."""
        wait_until(self.is_in_sync, timeout_s=_PATIENCE_S, what="all replicas are in sync")
        _patiently(lambda: self._admin.elect_leaders(ElectionType.PREFERRED).result(timeout=_PATIENCE_S))

    def ends(self, topics: Iterable[str]) -> dict[Place, int]:
        """Return the end offset of each partition."""
        described = _patiently(lambda: self._admin.list_topics(timeout=10)).topics
        places = [(topic, number) for topic in topics for number in described[topic].partitions]
        with self._consumer("unused") as consumer:

            def end(place: Place) -> int:
                _, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*place), timeout=10)
                return int(high)

            return {place: _patiently(lambda place=place: end(place)) for place in places}  # type: ignore[misc]

    def committed(self, group: str, places: Iterable[Place]) -> dict[Place, int]:
        """Return the committed offset of each partition, negative if there is none."""
        asked = [confluent_kafka.TopicPartition(*place) for place in places]
        with self._consumer(group) as consumer:
            found = _patiently(lambda: consumer.committed(asked, timeout=10))
        return {(one.topic, one.partition): one.offset for one in found}

    def keys(self, topic: str) -> list[int]:
        """Return the key of each record of a topic."""
        ends = self.ends([topic])
        found: list[int] = []
        with self._consumer("unused") as consumer:
            consumer.assign([confluent_kafka.TopicPartition(*one, confluent_kafka.OFFSET_BEGINNING) for one in ends])
            while len(found) < sum(ends.values()):
                messages = consumer.consume(1_000, timeout=10)
                assert messages, f"only {len(found)} of {sum(ends.values())} records of {topic} can be read"
                for message in messages:
                    assert message.error() is None, message.error()
                    found.append(int(message.key() or b""))
        return found

    @contextmanager
    def _consumer(self, group: str) -> Iterator[confluent_kafka.Consumer]:
        consumer = confluent_kafka.Consumer({**self._settings, "group.id": group, "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()


def _patiently(ask: Callable[[], _T]) -> _T:
    """Return the answer. Ask again while leaders and coordinators move."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except confluent_kafka.KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
