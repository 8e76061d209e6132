"""librdkafka lives through errors, delays, empty fetches and closed connections that a test asks for.

The driver checks that each record is acknowledged once, and read once, in order and byte for byte.
"""

from __future__ import annotations

from typing import Final

import pytest
from _pytest.mark import ParameterSet

from kafka_quota_proxy.testing.control import Control
from tests.end_to_end.support.clients import Librdkafka, create_topic, end_offset, numbers
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

_COUNT: Final = 300
_NOT_LEADER: Final = "NOT_LEADER_OR_FOLLOWER"
_QUICK: Final[dict[str, str | int | bool]] = {"enable.idempotence": True, "socket.timeout.ms": 1_000, "log_level": 0}

# What each order asks of the proxy, and what observed responses then say of it.
_PRODUCE: Final[dict[str, dict[str, object]]] = {
    "error": {"error": _NOT_LEADER},
    "slow broker": {"delay_ms": 200},
    "closed after its throttle": {"throttle_time_ms": 100, "close": True},
    "error, throttled and closed": {"error": _NOT_LEADER, "throttle_time_ms": 100, "close": True},
}
_FETCH: Final[dict[str, dict[str, object]]] = {
    "error": {"error": _NOT_LEADER},
    "trimmed": {"empty": True},
    "slow broker": {"delay_ms": 200},
    "closed after its throttle": {"throttle_time_ms": 100, "close": True},
}
_SHORT: Final = ("error", "trimmed")


def cases(effects: dict[str, dict[str, object]]) -> list[ParameterSet]:
    return [pytest.param(effects[one], marks=() if one in _SHORT else pytest.mark.long, id=one) for one in effects]


@pytest.mark.parametrize("effects", cases(_PRODUCE))
def test_producer_loses_and_doubles_nothing(
    kafka_4: Kafka, testing_proxy: Proxy, control: Control, effects: dict[str, object]
) -> None:
    topic = create_topic(kafka_4)
    times = 3 if "error" in effects else 1  # each retry meets the error again
    control.order({"api": "Produce", "client_id": "app", "count": times} | effects)

    Librdkafka(settings=_QUICK).produce(testing_proxy.address(), topic, client_id="app", count=_COUNT)

    assert numbers(kafka_4, topic) == set(range(_COUNT))
    assert end_offset(kafka_4, topic) == _COUNT
    found = control.observed("app")
    assert [{key: getattr(one, key) for key in effects} for one in found] == [effects] * times


@pytest.mark.parametrize("effects", cases(_FETCH))
def test_consumer_reads_each_record_once(
    kafka_4: Kafka, testing_proxy: Proxy, control: Control, effects: dict[str, object]
) -> None:
    topic = create_topic(kafka_4)
    Librdkafka(settings={}).produce(kafka_4.bootstrap_servers, topic, client_id="filler", count=_COUNT)
    control.order({"api": "Fetch", "client_id": "app", "topic": topic, "count": 3} | effects)

    Librdkafka(settings=_QUICK).consume(testing_proxy.address(), topic, client_id="app", count=_COUNT)

    found = control.observed("app")
    assert [{key: getattr(one, key) for key in effects} for one in found][:3] == [effects] * len(found)
    assert len(found) == 3 if "empty" in effects or "error" in effects else 1 <= len(found) <= 3
