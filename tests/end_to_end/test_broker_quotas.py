"""``quotas_from: broker``: the proxy enforces a broker's quotas, follows changes, and does not throttle twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, PROXIED, QUICK_TO_RETURN, Kafka
from tests.end_to_end.support.kafka_configs import run_configs
from tests.end_to_end.support.load import (
    KIB,
    MIB,
    Answer,
    batch_of,
    fetch_flood,
    is_throttled,
    produce_flood,
    throttled_s,
)
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_BROKER: Final = "kafka_quota_proxy_broker_quotas"
_P, _C = "producer_byte_rate", "consumer_byte_rate"
_QUOTA: Final = 2 * MIB
# Windows of three seconds, so that a few cycles pass quickly.
_WINDOWS: Final[dict[str, str | int]] = {"quota.window.num": 4, "quota.window.size.seconds": 1}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(KAFKA_4, config={**QUICK_TO_RETURN, **_WINDOWS}) as kafka:
        yield kafka


def _proxy(kafka: Kafka, **more: object) -> Proxy:
    return Proxy({"quotas_from": {"broker": {"every": "1s"}}, "kafka": dict(_WINDOWS), **more}, kafka)


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


def _check_that_it_follows(
    kafka: Kafka, proxy: Proxy, topic: str, *, listener: str = PROXIED, port: int | None = None
) -> None:
    _configs(kafka, proxy.address(listener), _set("etl", producer_byte_rate=1_000))
    _until("the change is in force", lambda: _limits(proxy, "etl") == [1_000])
    with raw_client(port or proxy.port(listener), client_id="etl") as client:
        assert is_throttled(client, topic)
    assert proxy.metrics().total("kafka_quota_proxy_throttled_requests_total", client_id="etl", kind="produce") == 1

    _configs(kafka, kafka.bootstrap_servers, _set("etl", producer_byte_rate=2_000), _set("other", producer_byte_rate=7))
    _until("the change is in force", lambda: _limits(proxy, "etl") == [2_000])
    _until("so is a new one", lambda: _limits(proxy, "other") == [7])

    _configs(kafka, proxy.address(listener), _remove("etl", _P))
    _until("it is gone", lambda: _limits(proxy, "etl") == [])


def test_broker_quotas_are_followed_and_kept_while_the_broker_is_away(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    with _proxy(kafka) as proxy:
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


def _flooded(
    kafka: Kafka, proxy: Proxy, topic: str, *, seconds: float, obeys: bool, client_ids: tuple[str, str]
) -> dict[str, tuple[list[Answer], list[Answer]]]:
    """Produce and fetch directly and through the proxy at the same time, and return all responses."""
    ports = dict(zip(client_ids, (kafka.listener(DIRECT).port, proxy.port()), strict=True))
    with ThreadPoolExecutor(4) as pool:
        flows = {
            client_id: (
                pool.submit(
                    produce_flood,
                    port,
                    topic,
                    client_id=client_id,
                    request_bytes=64 * KIB,
                    seconds=seconds,
                    obeys=obeys,
                ),
                pool.submit(
                    fetch_flood, port, topic, client_id=client_id, max_bytes=64 * KIB, seconds=seconds, obeys=obeys
                ),
            )
            for client_id, port in ports.items()
        }
        return {client_id: (produced.result(), fetched.result()) for client_id, (produced, fetched) in flows.items()}


def _bytes(answers: list[Answer]) -> int:
    return sum(answer.size_bytes for answer in answers)


def _check_that_it_is_not_the_sum(kafka: Kafka, proxy: Proxy, topic: str, *, seconds: float, obeys: bool) -> None:
    names = (f"past-{obeys}", f"through-{obeys}")
    limits = {_P: _QUOTA, _C: _QUOTA}
    _configs(kafka, proxy.address(), *(_set(name, **limits) for name in names))
    assert _limits(proxy, names[1]) == [_QUOTA]
    with raw_client(proxy.port(), client_id="filler") as client:
        client.produce(topic, batch_of(64 * KIB))

    flows = _flooded(kafka, proxy, topic, seconds=seconds, obeys=obeys, client_ids=names)

    for kind, past, through in zip(("produce", "fetch"), flows[names[0]], flows[names[1]], strict=True):
        # The flood may end within a window, so the results may differ by one second's worth.
        assert _bytes(through) == pytest.approx(_bytes(past), abs=max(_QUOTA, 0.05 * _bytes(past))), kind
        # If both added up, it would be twice that, and less would pass.
        assert throttled_s(past) > 1
        assert throttled_s(through) == pytest.approx(throttled_s(past), abs=max(1.5, 0.15 * throttled_s(past))), kind
    # Proxy and broker both throttle.
    assert proxy.metrics().total("kafka_quota_proxy_throttle_seconds_total", client_id=names[1], kind="produce") > 1


@pytest.mark.long
@pytest.mark.parametrize("obeys", [True, False])
def test_client_through_the_proxy_is_as_fast_as_a_direct_one(kafka: Kafka, obeys: bool) -> None:
    with _proxy(kafka) as proxy:
        _check_that_it_is_not_the_sum(kafka, proxy, create_topic(kafka), seconds=8.5, obeys=obeys)
