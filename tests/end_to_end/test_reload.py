"""A changed quota holds from the next request on. A broken file changes nothing and is reported."""

from __future__ import annotations

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

pytestmark = pytest.mark.proof

_CLIENT = "reloaded"
_RELOADED_AT = "kafka_quota_proxy_config_last_reload_timestamp_seconds"


def _quota(byte_rate: int) -> dict[str, object]:
    return {"quotas": [{"client-id": _CLIENT, "producer_byte_rate": byte_rate}]}


def test_lowered_quota_holds_from_the_next_request_of_an_open_connection(kafka_4: Kafka) -> None:
    topic, batch = create_topic(kafka_4), batch_of(64 * KIB)
    with Proxy(_quota(10**9), kafka_4) as proxy, raw_client(proxy.port(), client_id=_CLIENT) as client:
        before = client.produce(topic, batch)

        assert proxy.reload(_quota(10_000))
        after = client.produce(topic, batch)

    # Both requests have 131 kB, which take 13.1 s at the new quota. The windows cover 10 to 11 s, so the wait is 2.1 to
    # 3.1 s.
    assert before.throttle_time_ms == 0
    assert 2_100 <= after.throttle_time_ms <= 3_200


def test_raised_quota_releases_the_next_request(kafka_4: Kafka) -> None:
    topic, batch = create_topic(kafka_4), batch_of(64 * KIB)
    with Proxy(_quota(6_000), kafka_4) as proxy, raw_client(proxy.port(), client_id=_CLIENT) as client:
        before = client.produce(topic, batch)

        assert proxy.reload(_quota(10**9))
        after = client.produce(topic, batch)

    assert before.throttle_time_ms > 0
    assert after.throttle_time_ms == 0


def test_changed_file_is_loaded_without_a_signal(kafka_4: Kafka) -> None:
    topic, batch = create_topic(kafka_4), batch_of(64 * KIB)
    with Proxy(_quota(10**9), kafka_4) as proxy, raw_client(proxy.port(), client_id=_CLIENT) as client:
        loaded_at = proxy.metrics().total(_RELOADED_AT)

        proxy.edit(_quota(1_000))
        wait_until(
            lambda: proxy.metrics().total(_RELOADED_AT) != loaded_at, timeout_s=10, what="the changed file is taken"
        )
        produced = client.produce(topic, batch)

    assert produced.throttle_time_ms > 0


def test_broken_file_changes_nothing_and_its_error_names_the_line(kafka_4: Kafka) -> None:
    topic, batch = create_topic(kafka_4), batch_of(64 * KIB)
    with Proxy(_quota(6_000), kafka_4) as proxy, raw_client(proxy.port(), client_id=_CLIENT) as client:
        assert not proxy.reload("quotas:\n  - {client-id: reloaded, producer_byte_rat: 1}\n")
        log = proxy.log
        produced = client.produce(topic, batch)

    assert produced.throttle_time_ms > 0
    assert f"{proxy.file}:2: " in log
    assert "producer_byte_rat" in log
