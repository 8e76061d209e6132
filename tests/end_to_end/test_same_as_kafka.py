"""The same load under the same quota, in the broker and in the proxy at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

import pytest

from tests.end_to_end.support import tools
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import (
    KIB,
    MIB,
    Answer,
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
