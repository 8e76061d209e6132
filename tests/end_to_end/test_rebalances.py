"""Partitions move at the rate of the configuration file, and other traffic is not affected.

The clusters have no throttle of their own. Their followers fetch as those of 4.x, 3.9 and 0.10.1 do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.load import MIB
from tests.end_to_end.support.rebalance import Bed, Growth, Load, Reassignment, behind_proxies, load
from tests.end_to_end.support.steady import SteadyClients, SyncWatch

MB: Final = 1_000_000
RECORD_BYTES: Final = 16_300
RATE: Final = 10 * MB


# The brokers' own throttle lets a whole set of windows pass at once, which with eleven windows is a short move.
FEW_WINDOWS: Final[dict[str, str | int]] = {"replication.quota.window.num": 3}


@pytest.fixture(scope="module", params=[KAFKA_4])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    with behind_proxies(request.param, {}, config=FEW_WINDOWS) as bed:
        yield bed


def throttled(*loads: Load, rate: int) -> dict[str, Any]:
    """Return the configuration that limits the replication of these loads to a rate."""
    return {
        "replication": {
            "leader.replication.throttled.rate": rate,
            "throttled.replicas": {one.topic: "*" for one in loads},
        }
    }


@pytest.mark.long
@pytest.mark.parametrize("bed", [KAFKA_4, KAFKA_4_3, KAFKA_3_9, KAFKA_2_8], indirect=True)
def test_replica_grows_at_the_configured_rate_and_is_identical(bed: Bed) -> None:
    kafka, proxy = bed
    source, _, target = kafka.brokers
    moving = load(kafka, on=[1], size_bytes=60 * MB, record_bytes=RECORD_BYTES)
    written = moving.digests(source)
    assert proxy.reload(throttled(moving, rate=10 * MB))

    reassignment = Reassignment(load=moving, to=[3])
    with Growth(moving, target) as growth:
        reassignment.execute()
        reassignment.wait(timeout_s=60)

    assert growth.rate() == pytest.approx(10 * MB, rel=0.05)
    assert moving.digests(target) == written
    assert "still in progress" not in reassignment.verify()


def test_follower_rate_holds_over_all_its_leaders_and_clients_continue(bed: Bed) -> None:
    """Loads move from two brokers to the third, and only their replicas are out of sync meanwhile."""
    kafka, proxy = bed
    loads = [load(kafka, on=[leader], size_bytes=40 * MB, record_bytes=RECORD_BYTES) for leader in (1, 2)]
    calm = create_topic(kafka, replicas=[1, 3, 2])
    rate = "follower.replication.throttled.rate"
    assert proxy.reload({"replication": {rate: MB}})  # the second move begins long before the first ends
    reassignments = [Reassignment(load=one, to=[3]) for one in loads]
    with (
        SteadyClients(kafka, calm, records_per_second=200) as clients,
        SyncWatch(kafka) as watch,
        Growth(loads[0], kafka.brokers[2]) as first,
        Growth(loads[1], kafka.brokers[2]) as second,
    ):
        for reassignment in reassignments:
            reassignment.execute("--additional")
        begin_s, before = time.monotonic(), [growth.samples[-1].size_bytes for growth in (first, second)]
        assert proxy.reload({"replication": {rate: RATE}})
        second.wait_for(30 * MB, timeout_s=60)
        after = [growth.samples[-1].size_bytes for growth in (first, second)]
        took_s, sent = time.monotonic() - begin_s, len(clients.acknowledged)
        assert proxy.reload({})
        for reassignment in reassignments:
            reassignment.wait(timeout_s=60)

    moved = [size - size_before for size, size_before in zip(after, before, strict=True)]
    # A second's worth passes at once, and a response of 10 MiB may be on its way.
    assert sum(moved) <= RATE * (took_s + 1) + 10 * MIB
    assert min(moved) > sum(moved) / 5
    assert watch.under_replicated == {one.topic for one in loads}
    assert clients.failures == []
    assert len(clients.read) == len(clients.acknowledged) > sent > 0


@pytest.mark.long
def test_move_survives_a_kill_of_the_proxy(bed: Bed) -> None:
    kafka, proxy = bed
    moving = load(kafka, on=[1], size_bytes=20 * MB, record_bytes=RECORD_BYTES)
    written = moving.digests(kafka.brokers[0])
    assert proxy.reload(throttled(moving, rate=5 * MB))
    reassignment = Reassignment(load=moving, to=[1, 3])

    with Growth(moving, kafka.brokers[2]) as growth, SyncWatch(kafka) as watch:
        reassignment.execute()
        growth.wait_for(20 * MB / 3, timeout_s=30)
        proxy.kill()
        proxy.start()
        reassignment.wait(timeout_s=60)

    assert moving.digests(kafka.brokers[2]) == written
    assert watch.under_replicated == {moving.topic}


@pytest.mark.long
@pytest.mark.parametrize("bed", [KAFKA_4, KAFKA_2_8], indirect=True)
def test_records_larger_than_every_limit_move(bed: Bed) -> None:
    """The limits are 1 MiB of a partition, 10 MiB of a response, and a rate of 5 MB/s."""
    kafka, proxy = bed
    config = {"max.message.bytes": str(12 * MB)}
    moving = load(kafka, on=[1], size_bytes=33 * MB, record_bytes=11 * MB, partitions=1, config=config)
    written = moving.digests(kafka.brokers[0])
    # Without a list of replicas, every lagging replica of the broker is throttled.
    assert proxy.reload({"replication": {"leader.replication.throttled.rate": 5 * MB}})
    reassignment = Reassignment(load=moving, to=[1, 3])

    with Growth(moving, kafka.brokers[2]) as growth:
        reassignment.execute()
        reassignment.wait(timeout_s=60)

    assert moving.digests(kafka.brokers[2]) == written
    # From the first complete record on, because a record that is being written counts in part.
    first = next(step for step in growth.steps() if step.size_bytes >= 11 * MB)
    last = growth.steps()[-1]
    assert (last.size_bytes - first.size_bytes) / (last.at_s - first.at_s) < 5 * MB * 1.1
