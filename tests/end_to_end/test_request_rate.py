"""``request_rate`` limits the requests per second of a client, over any number of connections."""

from __future__ import annotations

import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import confluent_kafka
import pytest

from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import METADATA, raw_client, string
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

_RATE: Final = 20
_SECONDS: Final = 10
_WINDOWS: Final = 3
# The initial burst, in seconds of the rate: a paced burst, or all windows but one.
_AT_ONCE_S: Final = {"paced": 1, "sampled": _WINDOWS - 1}
_CONNECTIONS: Final = {"one": 1, "five": 5, "thirty": 30}
_FREE: Final = "free"
_METADATA_VERSION: Final = 5


class Outcome(NamedTuple):
    answered: int  # before the end
    counted: float = 0.0  # requests that the proxy counted
    throttled: float = 0.0  # requests that the proxy throttled


def _ask(port: int, topic: str, client_id: str, connections: int, *, pause_s: float = 0) -> Outcome:
    """Request metadata of the topic on each connection, again after each throttle time."""
    end_s = time.monotonic() + _SECONDS
    question = struct.pack(">i", 1) + string(topic) + b"\0"

    def ask_on_one() -> int:
        answered = 0
        with raw_client(port, client_id=client_id) as client:
            while time.monotonic() < end_s:
                throttle_time_ms = int.from_bytes(client.ask(METADATA, _METADATA_VERSION, question).body[:4])
                answered += time.monotonic() < end_s
                time.sleep(max(0, min(pause_s + throttle_time_ms / 1_000, end_s - time.monotonic())))
        return answered

    with ThreadPoolExecutor(connections) as pool:
        running = [pool.submit(ask_on_one) for _ in range(connections)]
        return Outcome(sum(one.result() for one in running))


def _send(port: int, topic: str, client_id: str) -> Outcome:
    """Send records with librdkafka, one per request."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "client.id": client_id, "linger.ms": 0, **QUIET}
    )
    producer.list_topics(topic, timeout=30)
    end_s, sent = time.monotonic() + _SECONDS, 0
    while time.monotonic() < end_s:
        producer.produce(topic, b"x", partition=0)
        assert producer.flush(30) == 0
        sent += time.monotonic() < end_s
    return Outcome(sent)


@pytest.fixture(scope="module")
def outcomes(kafka_4: Kafka) -> dict[str, Outcome]:
    topic = create_topic(kafka_4)
    names = [(shaping, name) for shaping in _AT_ONCE_S for name in (*_CONNECTIONS, "librdkafka")]
    rules: list[dict[str, Any]] = [
        {"client-id": f"{shaping}-{name}", "request_rate": _RATE, "shaping": shaping} for shaping, name in names
    ]
    settings = {"quotas": rules, "kafka": {"quota.window.num": _WINDOWS}}
    with Proxy(settings, kafka_4) as proxy, ThreadPoolExecutor(len(names) + 1) as pool:
        running = {
            f"{shaping}-{name}": pool.submit(_send, proxy.port(), topic, f"{shaping}-{name}")
            if name == "librdkafka"
            else pool.submit(_ask, proxy.port(), topic, f"{shaping}-{name}", _CONNECTIONS[name])
            for shaping, name in names
        }
        running[_FREE] = pool.submit(_ask, proxy.port(), topic, _FREE, 1, pause_s=1 / _RATE / 10)
        done = {name: one.result() for name, one in running.items()}
        metrics = proxy.metrics()

    def total(name: str, client_id: str) -> float:
        return metrics.total(f"kafka_quota_proxy_{name}_total", kind="request_rate", client_id=client_id)

    return {
        name: one._replace(counted=total("requests", name), throttled=total("throttled_requests", name))
        for name, one in done.items()
    }


@pytest.mark.parametrize("shaping", _AT_ONCE_S)
@pytest.mark.parametrize("name", [*_CONNECTIONS, "librdkafka"])
def test_request_rate_holds_over_all_connections_of_a_client(
    outcomes: dict[str, Outcome], shaping: str, name: str
) -> None:
    answered = outcomes[f"{shaping}-{name}"].answered

    assert answered <= 1.05 * _RATE * (_SECONDS + _AT_ONCE_S[shaping]) + 1
    # Other load of the machine also slows down the client without a limit.
    assert answered >= 0.8 * min(_RATE * _SECONDS, outcomes[_FREE].answered)


def test_client_without_request_rate_is_not_throttled(outcomes: dict[str, Outcome]) -> None:
    assert outcomes[_FREE].throttled == 0
    assert all(one.throttled > 0 for name, one in outcomes.items() if name != _FREE)


def test_each_answered_request_is_counted_once(outcomes: dict[str, Outcome]) -> None:
    for name, one in outcomes.items():
        # The proxy also counts the last request of each connection, answered after the end, and librdkafka's first
        # requests.
        assert 0 <= one.counted - one.answered <= 31, name
