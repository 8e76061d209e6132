"""Share groups (KIP-932) of Kafka's own client are charged as by their broker, and throttled."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.broker_quotas import BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, MIB, batch_of
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.request_rates import SUM_WINDOWS
from tests.end_to_end.support.tools import jmx

_LOG = logging.getLogger(__name__)
_READS: Final = Path(__file__).parent / "java" / "ShareReads.java"
_QUOTA: Final = 2 * MIB
_OURS, _KAFKAS = "ours", "theirs"
# By default, the topic with the state of share groups has three replicas.
_ONE_NODE: Final[dict[str, str | int]] = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}


class Reads(NamedTuple):
    bytes: list[int]  # of values read until the end of each second
    each: list[int]  # bytes of each member at the end
    records: int
    different: int
    failed: int  # failed acknowledgements

    def rate(self, *, first_s: int) -> float:
        """Return the bytes per second from this second on."""
        return (self.bytes[-1] - self.bytes[first_s - 1]) / (len(self.bytes) - first_s)


@contextmanager
def _kafka_of_records(size_bytes: int, *, windows: int) -> Iterator[tuple[Kafka, str]]:
    """Start a broker with this number of windows, and a topic with this many bytes."""
    with Kafka(KAFKA_4, jmx=True, config={**_ONE_NODE, "quota.window.num": windows}) as kafka:
        topic = create_topic(kafka)
        batch = batch_of(256 * KIB)
        with raw_client(kafka.listener(DIRECT).port) as client:
            for _ in range(size_bytes // len(batch) + 1):
                assert client.produce(topic, batch).error_code == 0
        yield kafka, topic


def _read(kafka: Kafka, topic: str, seconds: int, *members: tuple[str, str]) -> dict[str, Reads]:
    """Run a member for each pair of client-id and address. Members with the same client-id are a group."""
    words = [word for member in members for word in member]
    out = kafka.run_java(
        str(_READS), topic, str(seconds), kafka.bootstrap_servers, *words, timeout_s=seconds + 60
    ).splitlines()[-1]
    return {client_id: Reads(**reads) for client_id, reads in json.loads(out).items()}


def _logged(directory: Path) -> list[dict[str, Any]]:
    lines = [line for path in directory.glob("usage-*.jsonl") for line in path.read_bytes().splitlines()]
    return [record for record in map(json.loads, lines) if record["kind"] == "fetch"]


def test_share_group_is_throttled_and_charged_as_by_its_broker(tmp_path: Path) -> None:
    """The broker has a quota that is too high to throttle, so it only counts."""
    windows = 4
    settings = {
        "quotas": [{"client-id": _OURS, "consumer_byte_rate": _QUOTA}],
        "kafka": {"quota.window.num": windows},
        "usage_log": {"directory": str(tmp_path), "interval": "200ms", "proxy": "p1"},
    }
    with (
        _kafka_of_records(48 * MIB, windows=SUM_WINDOWS) as (kafka, topic),
        BrokerQuotas(kafka) as quotas,
        Proxy(settings, kafka) as proxy,
    ):
        quotas.replace({Entity(None, _OURS): {"consumer_byte_rate": 1e9}})
        reads = _read(kafka, topic, 8, (_OURS, proxy.address()))[_OURS]
        rates = jmx(kafka, f"kafka.server:type=Fetch,client-id={_OURS}", "byte-rate")
        metrics = proxy.metrics()
        assert proxy.stop() == 0

    (their_rate,) = rates.values()
    charged = metrics.total("kafka_quota_proxy_bytes_total", kind="fetch", client_id=_OURS)
    assert charged == pytest.approx(their_rate * (SUM_WINDOWS - 0.5), rel=0.02)
    assert sum(record["amount"] for record in _logged(tmp_path)) == charged > reads.bytes[-1]
    assert metrics.total("kafka_quota_proxy_throttled_requests_total", kind="fetch", client_id=_OURS) > 0
    # The initial burst passes at once, and one response more than the quota.
    assert reads.bytes[-1] <= _QUOTA * (len(reads.bytes) + 2 * windows)
    assert reads.bytes[-1] > 0.9 * charged
    assert (reads.records, reads.failed) == (reads.different, 0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_share_group_gets_its_quota_while_its_broker_enforces_one() -> None:
    """Kafka discards the records of a throttled fetch. They stay acquired until their lock ends."""
    windows, seconds = 11, 72
    settings = {"quotas": [{"client-id": _OURS, "consumer_byte_rate": _QUOTA}]}
    with (
        _kafka_of_records(_QUOTA * (seconds + 2 * windows), windows=windows) as (kafka, topic),
        BrokerQuotas(kafka) as quotas,
        Proxy(settings, kafka) as proxy,
    ):
        quotas.replace({Entity(None, _KAFKAS): {"consumer_byte_rate": _QUOTA}})
        found = _read(kafka, topic, seconds, (_KAFKAS, kafka.bootstrap_servers), (_OURS, proxy.address()))

    ours, kafkas = (found[name].rate(first_s=windows) / _QUOTA for name in (_OURS, _KAFKAS))
    _LOG.info("of the quota: through the proxy %.3f, under the broker's own quota %.3f", ours, kafkas)
    assert 0.9 <= ours <= 1.1
    assert kafkas <= ours
    assert found[_OURS].failed == 0
