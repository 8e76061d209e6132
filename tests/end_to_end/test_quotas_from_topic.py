"""Rules from a topic of a real cluster hold within a second after their publication, also on open connections."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kafka_quota_proxy.config.quota_record import Setting, encode
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import is_throttled
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_TOPIC = "kafka_quota_proxy_quotas_topic"
_HIGH = 10**9
_LOW = 10_000


class Store:
    """A quota topic and its writer."""

    def __init__(self, kafka: Kafka, *, partitions: int = 1) -> None:
        self.topic = create_topic(kafka, partitions=partitions, config={"cleanup.policy": "compact"})
        self.servers = kafka.bootstrap_servers
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})

    def write(self, *records: Setting) -> None:
        for record in records:
            key, value = encode(record)
            self.write_bytes(key, value)
        assert self._producer.flush(30) == 0

    def write_bytes(self, key: bytes, value: bytes | None) -> None:
        self._producer.produce(self.topic, key=key, value=value)
        self._producer.poll(0)


def _rule(client_id: str, byte_rate: float | None) -> Setting:
    return Setting(client_id=client_id, key="producer_byte_rate", value=byte_rate)


@contextmanager
def _proxy(kafka: Kafka, store: Store, directory: Path, **more: Any) -> Iterator[Proxy]:  # noqa: ANN401
    listener = {"bind": kafka.listener().advertised_address, "upstream": kafka.listener().address}
    settings = {
        "listeners": [{"name": "PROXIED", "node_id": kafka.broker.node_id, **listener}],
        "usage_log": {"proxy": "p1", "directory": str(directory)},
        "quotas_from": {"kafka": {"bootstrap_servers": store.servers, "topic": store.topic}},
    }
    with Proxy({**settings, **more}) as proxy:
        yield proxy


def _limits(proxy: Proxy, client_id: str) -> list[float]:
    return proxy.metrics().values("kafka_quota_proxy_quota_limit", client_id=client_id)


def _until(what: str, is_so: Callable[[], bool], timeout_s: float = 10) -> float:
    """Wait for a condition, and return the seconds until it was true."""
    before_s = time.monotonic()
    wait_until(is_so, timeout_s=timeout_s, what=what)
    return time.monotonic() - before_s


def test_published_rules_hold_at_once_on_open_connections(mortal_kafka: Kafka, tmp_path: Path) -> None:
    topic, store = create_topic(mortal_kafka), Store(mortal_kafka)
    store.write(_rule("lowered", _HIGH), _rule("ruled", _HIGH), _rule("filed", 5))
    with (
        _proxy(mortal_kafka, store, tmp_path, quotas=[{"client-id": "filed", "producer_byte_rate": _HIGH}]) as proxy,
        raw_client(proxy.port(), client_id="lowered") as lowered,
        raw_client(proxy.port(), client_id="ruled") as ruled,
        raw_client(proxy.port(), client_id="filed") as filed,
    ):
        # The rule was read before the first client was served.
        assert _limits(proxy, "lowered") == _limits(proxy, "ruled") == _limits(proxy, "filed") == [_HIGH]
        assert "client-id filed has quotas in kafka://" in proxy.log
        assert not any(is_throttled(client, topic) for client in (lowered, ruled, filed))

        store.write(_rule("lowered", _LOW))
        took_s = [_until("the lower rule holds", lambda: _limits(proxy, "lowered") == [_LOW])]
        assert is_throttled(lowered, topic)
        assert not is_throttled(filed, topic)
        detail = json.loads(proxy.admin("/readyz"))["quotas_from"]
        assert detail == {
            "topic": f"kafka://{store.servers}/{store.topic}",
            "connected": True,
            "read": True,
            "rules": 3,
        }

        store.write_bytes(b'{"client-id":"ruled"}', b"garbage")
        store.write_bytes(b"\xff", None)
        store.write(_rule("seen", 7))
        took_s.append(_until("what comes after garbage is read", lambda: _limits(proxy, "seen") == [7]))
        assert proxy.metrics().total(f"{_TOPIC}_not_understood_records_total") == 2
        assert not is_throttled(ruled, topic)
        store.write(_rule("ruled", _LOW))
        took_s.append(_until("the rule holds", lambda: _limits(proxy, "ruled") == [_LOW]))
        assert is_throttled(ruled, topic)
        store.write(_rule("ruled", None))
        took_s.append(_until("the rule has gone", lambda: _limits(proxy, "ruled") == []))
        assert min(took_s) < 1  # other load of the machine may delay some of them

        # The file's rule takes precedence while it exists. Then the topic's rule holds again.
        assert proxy.reload({
            "usage_log": {"proxy": "p1", "directory": str(tmp_path)},
            "quotas_from": {"kafka": {"bootstrap_servers": store.servers, "topic": store.topic}},
            "quotas": [{"client-id": "lowered", "producer_byte_rate": 8}],
        })  # fmt: skip
        assert (_limits(proxy, "lowered"), _limits(proxy, "filed")) == ([8], [5])


def test_unreachable_topic_keeps_rules_and_is_read_again_later(mortal_kafka: Kafka, tmp_path: Path) -> None:
    store = Store(mortal_kafka)
    store.write(_rule("kept", _HIGH))
    with _proxy(mortal_kafka, store, tmp_path) as proxy:
        assert _limits(proxy, "kept") == [_HIGH]

        mortal_kafka.broker.kill()
        _until("the broker is missed", lambda: proxy.metrics().total(f"{_TOPIC}_connected") == 0)
        assert _limits(proxy, "kept") == [_HIGH]
        assert proxy.log.count("cannot be read: ") == 1

        mortal_kafka.broker.restart()
        store.write(_rule("kept", 9))
        _until("the topic is read again", lambda: _limits(proxy, "kept") == [9], timeout_s=20)
        assert proxy.metrics().total(f"{_TOPIC}_connected") == 1

        admin = AdminClient({"bootstrap.servers": mortal_kafka.bootstrap_servers, **QUIET})
        failures = proxy.metrics().total(f"{_TOPIC}_failures_total")
        admin.delete_topics([store.topic])[store.topic].result(30)
        _until("says that it has gone", lambda: "there is no such topic" in proxy.log)
        assert _limits(proxy, "kept") == [9]
        _until("has tried it again", lambda: proxy.metrics().total(f"{_TOPIC}_failures_total") > failures + 2)
        # This broker creates a missing topic for any client that asks about it. The proxy must not cause that.
        assert store.topic not in admin.list_topics(timeout=10).topics
        process = proxy.process
        assert proxy.stop() == 0
        assert "Traceback" not in process.output()
        assert "never retrieved" not in process.output()
