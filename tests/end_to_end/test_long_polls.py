"""Hundreds of consumers without data hold no slot and delay no other client. No group rebalances."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.closed_loop import Crowd, Load, Polls, Writes
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.members import aiokafka_member, generations, java_member, librdkafka_member
from tests.end_to_end.support.proxy import Proxy

_POLLS: Final = Crowd("polls", connections=300)
_MAX_WAIT_MS: Final = 2_000
_WRITES: Final = Crowd("writes", connections=20)
_SLOTS: Final = 2
_GROUPS: Final = ("java", "librdkafka", "aiokafka")
# By then all have connected and polled once. The proxy learns from the first poll that polls wait.
_QUIET_AFTER_S: Final = 6.0
_IN_FLIGHT: Final = "kafka_quota_proxy_call_queue_in_flight"
_PASSED_BY: Final = "kafka_quota_proxy_call_queue_passed_by_total"


def _slots_in_use(proxy: Proxy, seconds: float) -> list[float]:
    """Sample the number of slots in use."""
    end_s = time.monotonic() + seconds
    found = []
    while time.monotonic() < end_s:
        found.append(proxy.metrics().total(_IN_FLIGHT, pool="requests"))
        time.sleep(0.1)
    return found


# The time for three polls, and then the time in which a group waits for a member.
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("quiet_s", "seconds"), [(10, 300)])
def test_long_polls_use_no_slot_and_cause_no_rebalance(slow_kafka: Kafka, quiet_s: int, seconds: int) -> None:
    idle, busy = create_topic(slow_kafka), create_topic(slow_kafka)
    groups = {client_id: f"{client_id}-{idle}" for client_id in _GROUPS}

    queue = {"fair_call_queue": {"max_in_flight": _SLOTS}}
    with Proxy(queue, slow_kafka) as proxy, ThreadPoolExecutor(len(_GROUPS)) as pool:
        port, address = proxy.port(), proxy.address()
        running = {
            "java": pool.submit(java_member, slow_kafka, address, idle, groups["java"], seconds),
            "librdkafka": pool.submit(librdkafka_member, address, idle, groups["librdkafka"], seconds),
            "aiokafka": pool.submit(aiokafka_member, address, idle, groups["aiokafka"], seconds),
        }
        with Load(port, idle, _POLLS, seconds=seconds, kind=Polls(_MAX_WAIT_MS)) as polls:
            time.sleep(_QUIET_AFTER_S)
            quiet = _slots_in_use(proxy, quiet_s)
            left_s = seconds - _QUIET_AFTER_S - quiet_s - 5
            with Load(port, busy, _WRITES, seconds=left_s, kind=Writes()) as writes:
                written = writes.served()[_WRITES.client_id]
            polled = polls.served()[_POLLS.client_id]
            metrics = proxy.metrics()
        reports = {client_id: report.result() for client_id, report in running.items()}

    # Another kind of request may be in flight.
    assert statistics.mean(quiet) < 0.1, quiet
    assert len(polled) > 0.8 * _POLLS.connections * seconds / (_MAX_WAIT_MS / 1_000)
    assert metrics.total(_PASSED_BY, api="Fetch") > 0.9 * (len(polled) - _POLLS.connections)
    # A write waits for the broker to do other writes, which takes far less than a poll.
    assert statistics.quantiles((one.took_s for one in written), n=100)[98] < _MAX_WAIT_MS / 1_000 / 2
    for client_id, report in reports.items():
        assert (client_id, report["assignments"], report["revocations"]) == (client_id, 1, 0)
    # Generation 1 begins when the member joins, and generation 2 when it leaves.
    assert generations(slow_kafka, groups.values()) == dict.fromkeys(groups.values(), 2)
