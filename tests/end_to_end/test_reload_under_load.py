"""A full queue is replaced again and again. No request is lost, answered twice or reordered."""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest

from tests.end_to_end.support.clients import create_topic, end_offset
from tests.end_to_end.support.closed_loop import Crowd, Load, Writes
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

_AT_THE_MOST_S: Final = 120
_CROWDS: Final = tuple(Crowd(f"user-{number}", connections=number, ahead=3) for number in range(1, 10))
_BEHIND_EACH_OTHER: Final[tuple[dict[str, Any] | None, ...]] = (
    {"max_in_flight": 1},
    {},
    {"max_in_flight": 3, "scheduler.priority.levels": 2, "callqueue.capacity": 2},
    {"max_in_flight": 2, "callqueue.within-level": "fifo", "callqueue.capacity": 9},
    None,
    {"max_in_flight": 4, "identity-provider.impl": "user-client-id"},
    {"max_in_flight": 2, "callqueue.impl": "fifo", "scheduler.priority.levels": 1, "callqueue.capacity": 1},
    {"max_in_flight": 2, "cost-provider.impl": "traffic", "scheduler.priority.levels": 9},
)


def _settings(queue: dict[str, Any] | None) -> dict[str, Any]:
    return {} if queue is None else {"fair_call_queue": queue}


_TIMES: Final = 100  # each queue is used a dozen times


@pytest.mark.long
def test_replacing_the_queue_loses_and_doubles_nothing(slow_kafka: Kafka) -> None:
    topic = create_topic(slow_kafka)
    with Proxy(_settings(_BEHIND_EACH_OTHER[0]), slow_kafka) as proxy:
        with Load(proxy.port(), topic, *_CROWDS, seconds=_AT_THE_MOST_S, kind=Writes()) as load:
            queues = itertools.islice(itertools.cycle(_BEHIND_EACH_OTHER[1:] + _BEHIND_EACH_OTHER[:1]), _TIMES)
            reloads = [proxy.reload(_settings(queue)) for queue in queues]
            load.end()
            served = load.served()
        metrics = proxy.metrics()

    assert reloads == [True] * _TIMES
    assert all(served.values())
    assert end_offset(slow_kafka, topic) == sum(map(len, served.values()))
    # No request and no slot is left in a replaced queue.
    assert metrics.total("kafka_quota_proxy_call_queue_in_flight") == 0
    assert metrics.total("kafka_quota_proxy_call_queue_size") == 0
    assert metrics.total("kafka_quota_proxy_call_queue_waiting_for_room") == 0
