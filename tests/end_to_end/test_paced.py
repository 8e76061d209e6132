"""A paced client that floods and ignores throttle times gets its quota in every second."""

from __future__ import annotations

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, MIB, per_second, produce_flood, steady_rate
from tests.end_to_end.support.proxy import Proxy

_QUOTA = 10 * MIB
_CLIENT = "flood"


def _flood(kafka: Kafka, *, seconds: float) -> None:
    rules = [{"client-id": _CLIENT, "producer_byte_rate": _QUOTA}]
    with Proxy({"quotas": rules, "shaping": "paced"}, kafka) as proxy:
        answers = produce_flood(
            proxy.port(),
            create_topic(kafka),
            client_id=_CLIENT,
            request_bytes=256 * KIB,
            seconds=seconds,
            ahead=4,
            obeys=False,
        )

    shares = [size / _QUOTA for size in per_second(answers)]
    assert shares[0] <= 2.1
    assert max(shares[1:]) <= 1.1
    assert min(shares[1:]) >= 0.8
    assert steady_rate(answers, after_s=1) / _QUOTA == pytest.approx(1, abs=0.01)


def test_flood_that_ignores_throttle_times_is_even_in_each_second(kafka_4: Kafka) -> None:
    _flood(kafka_4, seconds=12)
