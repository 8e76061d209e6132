"""``quotas_from: broker``: the proxy enforces a broker's quotas and follows changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import PROXIED, Kafka
from tests.end_to_end.support.kafka_configs import run_configs
from tests.end_to_end.support.load import is_throttled
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_BROKER: Final = "kafka_quota_proxy_broker_quotas"
_P: Final = "producer_byte_rate"


def _configs(kafka: Kafka, address: str, *commands: str) -> None:
    outputs = run_configs(kafka, kafka.version, address, *commands)
    assert [status for status, *_ in outputs] == ["0"] * len(commands), outputs


def _set(client_id: str, **limits: float) -> str:
    values = ",".join(f"{key}={value}" for key, value in limits.items())
    return f"--alter|--add-config|{values}|--entity-type|clients|--entity-name|{client_id}"


def _remove(client_id: str, key: str) -> str:
    return f"--alter|--delete-config|{key}|--entity-type|clients|--entity-name|{client_id}"


def _limits(proxy: Proxy, client_id: str) -> list[float]:
    return proxy.metrics().values("kafka_quota_proxy_quota_limit", kind="produce", client_id=client_id)


def _until(what: str, is_so: Callable[[], bool], *, timeout_s: float = 30) -> None:
    wait_until(is_so, timeout_s=timeout_s, what=what, poll_s=0.02)


def _check_that_it_follows(kafka: Kafka, proxy: Proxy, topic: str) -> None:
    _configs(kafka, proxy.address(), _set("etl", producer_byte_rate=1_000))
    _until("the change is in force", lambda: _limits(proxy, "etl") == [1_000])
    with raw_client(proxy.port(), client_id="etl") as client:
        assert is_throttled(client, topic)
    assert proxy.metrics().total("kafka_quota_proxy_throttled_requests_total", client_id="etl", kind="produce") == 1

    _configs(kafka, kafka.bootstrap_servers, _set("etl", producer_byte_rate=2_000), _set("other", producer_byte_rate=7))
    _until("the change is in force", lambda: _limits(proxy, "etl") == [2_000])
    _until("so is a new one", lambda: _limits(proxy, "other") == [7])

    _configs(kafka, proxy.address(), _remove("etl", _P))
    _until("it is gone", lambda: _limits(proxy, "etl") == [])


def test_broker_quotas_are_followed_and_kept_while_the_broker_is_away(mortal_kafka: Kafka) -> None:
    kafka = mortal_kafka
    topic = create_topic(kafka)
    with Proxy({"quotas_from": {"broker": {"every": "1s"}}}, kafka) as proxy:
        _check_that_it_follows(kafka, proxy, topic)

        kafka.broker.kill()
        _until("hears of it", lambda: proxy.metrics().total(f"{_BROKER}_connected") == 0)
        assert _limits(proxy, "other") == [7]
        kafka.broker.restart()
        _until("reads again", lambda: proxy.metrics().total(f"{_BROKER}_connected") == 1)
        _until("is ready", proxy.is_ready)
        detail = json.loads(proxy.admin("/readyz"))["quotas_from"]
        assert (detail["broker"], detail["connected"], detail["read"]) == (kafka.listener(PROXIED).address, True, True)

        # The proxy reads the quotas before it serves.
        proxy.stop()
        proxy.start()
        assert _limits(proxy, "other") == [7]
        _configs(kafka, proxy.address(), _remove("other", _P))
        _until("it is gone", lambda: _limits(proxy, "other") == [])
