"""The same load under the same quota, in the broker and in the proxy at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

import pytest

from tests.end_to_end.support import tools
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.broker_quotas import BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import (
    KIB,
    MIB,
    Answer,
    batch_of,
    flow_of,
    produce_flood,
    rate_over_whole_cycles,
    throttled_s,
)
from tests.end_to_end.support.proxy import Proxy

_QUOTA = 2 * MIB
_REQUEST_BYTES = 64 * KIB


def _side_by_side(kafka: Kafka, *, seconds: float) -> tuple[list[Answer], list[Answer]]:
    """Flood the broker and the proxy at the same time. Return the responses of both."""
    topic = create_topic(kafka)
    tools.set_broker_quota(kafka, "theirs", {"producer_byte_rate": _QUOTA})
    rules = [{"client-id": "ours", "producer_byte_rate": _QUOTA}]
    with Proxy({"quotas": rules}, kafka) as proxy, ThreadPoolExecutor(2) as pool:
        ports = {"theirs": kafka.listener(DIRECT).port, "ours": proxy.port()}
        flows = {
            client_id: pool.submit(
                produce_flood, port, topic, client_id=client_id, request_bytes=_REQUEST_BYTES, seconds=seconds
            )
            for client_id, port in ports.items()
        }
        return flows["theirs"].result(), flows["ours"].result()


def _rate(answers: list[Answer]) -> float:
    return rate_over_whole_cycles(flow_of(answers), quota=_QUOTA)


def _pauses(answers: list[Answer]) -> list[int]:
    """Return the throttle times above half a second, which lie between two bursts."""
    return [answer.throttle_time_ms for answer in answers if answer.throttle_time_ms > 500]


def _burst_bytes(answers: list[Answer]) -> int:
    return sum(answer.size_bytes for answer in takewhile(lambda answer: answer.throttle_time_ms <= 500, answers))


def test_burst_and_silence_equal_kafkas(kafka_4: Kafka) -> None:
    kafkas, ours = _side_by_side(kafka_4, seconds=37)

    assert _burst_bytes(ours) == pytest.approx(_burst_bytes(kafkas), rel=0.03)
    assert len(_pauses(ours)) == pytest.approx(len(_pauses(kafkas)), abs=2)
    for our_ms, their_ms in zip(_pauses(ours)[:9], _pauses(kafkas)[:9], strict=True):
        assert our_ms == pytest.approx(their_ms, abs=40)
    assert throttled_s(ours) == pytest.approx(throttled_s(kafkas), rel=0.05)
    assert _rate(ours) / _rate(kafkas) == pytest.approx(1, abs=0.02)


def _first_wait_ms(port: int, topic: str, limit_anonymous: Callable[[], object]) -> int:
    """Send 25 KB without a limit, and a little more under the first limit. Return the throttle time of the latter."""
    with raw_client(port, client_id="first") as client:
        for _ in range(2):
            assert client.produce(topic, batch_of(12_400)).throttle_time_ms == 0
    limit_anonymous()
    with raw_client(port, client_id="second") as client:
        return client.produce(topic, batch_of(100)).throttle_time_ms


def test_first_limit_of_a_user_counts_what_was_sent_before_it_as_in_kafka() -> None:
    """It needs a Kafka of its own, because a broker remembers which kinds of quotas it ever had."""
    with Kafka(KAFKA_4) as kafka:
        topic = create_topic(kafka)
        bob, anonymous = ({"user": name, "producer_byte_rate": 1_000} for name in ("bob", "ANONYMOUS"))
        with BrokerQuotas(kafka) as quotas:
            bobs = {Entity("bob", None): {"producer_byte_rate": 1_000.0}}
            quotas.replace(bobs)
            both = bobs | {Entity("ANONYMOUS", None): {"producer_byte_rate": 1_000.0}}
            theirs_ms = _first_wait_ms(kafka.listener(DIRECT).port, topic, lambda: quotas.replace(both))
        with Proxy({"quotas": [bob]}, kafka) as proxy:
            ours_ms = _first_wait_ms(proxy.port(), topic, lambda: proxy.reload({"quotas": [bob, anonymous]}))

    # The assumed window of a new rate grows from 10 s to 11 s within each second.
    assert theirs_ms == pytest.approx(15_000, abs=1_000)
    assert ours_ms == pytest.approx(15_000, abs=1_000)


@pytest.mark.long
@pytest.mark.parametrize("broker", ["kafka_39", "kafka_4"])
def test_rate_equals_kafkas_over_two_minutes(broker: str, request: pytest.FixtureRequest) -> None:
    kafkas, ours = _side_by_side(request.getfixturevalue(broker), seconds=135)

    assert _rate(ours) / _rate(kafkas) == pytest.approx(1, abs=0.01)
    # At both, a client with one request in flight loses some 2 % between bursts if it waits for throttle times.
    assert _rate(ours) / _QUOTA == pytest.approx(0.985, abs=0.02)
    assert throttled_s(ours) == pytest.approx(throttled_s(kafkas), rel=0.02)
