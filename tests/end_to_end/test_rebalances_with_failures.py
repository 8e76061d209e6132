"""A throttled move continues through failures, and ends with identical replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import QUICK_TO_RETURN
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.rebalance import Bed, Growth, Load, Reassignment, behind_proxies, load
from tests.end_to_end.support.steady import SteadyClients, SyncWatch

pytestmark = pytest.mark.long

MB: Final = 1_000_000
RATE: Final = 5 * MB
SIZE: Final = 20 * MB
RECORD_BYTES: Final = 16_300
# Without a list of replicas, every lagging replica of the broker is throttled.
THROTTLED: Final[dict[str, Any]] = {"replication": {"leader.replication.throttled.rate": RATE}}


@pytest.fixture(scope="module", params=[KAFKA_4])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    config = {} if request.param == KAFKA_2_8 else QUICK_TO_RETURN
    with behind_proxies(request.param, THROTTLED, config=config) as bed:
        yield bed
        # The next test must not start with a half-finished move.
        assert all(broker.is_running for broker in bed.kafka.brokers)


def same_on(moved: Load, *node_ids: int) -> bool:
    digests = [moved.digests(broker) for broker in moved.kafka.brokers if broker.node_id in node_ids]
    return all(one == digests[0] for one in digests)


def test_move_survives_a_kill_of_the_leader(bed: Bed) -> None:
    moving = load(bed.kafka, on=[1, 2], size_bytes=SIZE, record_bytes=RECORD_BYTES)
    wait_until(lambda: same_on(moving, 1, 2), timeout_s=30, what="both replicas have all")
    reassignment = Reassignment(load=moving, to=[2, 1, 3])

    with Growth(moving, bed.kafka.brokers[2]) as growth:
        reassignment.execute()
        growth.wait_for(SIZE / 3, timeout_s=30)
        bed.kafka.broker.kill()
        growth.wait_for(SIZE * 0.9, timeout_s=60)
        bed.kafka.broker.restart()
        reassignment.wait(timeout_s=60)

    assert same_on(moving, 1, 2, 3)


def test_move_survives_a_kill_of_the_new_replica(bed: Bed) -> None:
    target = bed.kafka.brokers[2]
    moving = load(bed.kafka, on=[1], size_bytes=SIZE, record_bytes=RECORD_BYTES)
    reassignment = Reassignment(load=moving, to=[1, 3])

    with Growth(moving, target) as growth:
        reassignment.execute()
        growth.wait_for(SIZE / 3, timeout_s=30)
        target.kill()
        target.restart()
        reassignment.wait(timeout_s=60)

    assert same_on(moving, 1, 3)


def test_move_survives_a_kill_of_the_proxy(bed: Bed) -> None:
    moving = load(bed.kafka, on=[1], size_bytes=SIZE, record_bytes=RECORD_BYTES)
    reassignment = Reassignment(load=moving, to=[1, 3])

    with Growth(moving, bed.kafka.brokers[2]) as growth, SyncWatch(bed.kafka) as watch:
        reassignment.execute()
        growth.wait_for(SIZE / 3, timeout_s=30)
        bed.proxy.kill()
        bed.proxy.start()
        reassignment.wait(timeout_s=60)

    assert same_on(moving, 1, 3)
    assert watch.under_replicated == {moving.topic}


def test_thousand_partitions_move_within_the_throttle(bed: Bed) -> None:
    create_topic(bed.kafka, partitions=1_000, replicas=[1, 3])
    calm = create_topic(bed.kafka, replicas=[1, 3])
    # 20 MB last four seconds, too short for a rate without the start.
    moving = load(bed.kafka, on=[1], size_bytes=2 * SIZE, record_bytes=RECORD_BYTES)
    reassignment = Reassignment(load=moving, to=[1, 3])

    with (
        SteadyClients(bed.kafka, calm, records_per_second=20) as clients,
        SyncWatch(bed.kafka) as watch,
        Growth(moving, bed.kafka.brokers[2]) as growth,
    ):
        reassignment.execute()
        reassignment.wait(timeout_s=60)

    assert clients.failures == []
    assert watch.under_replicated == {moving.topic}
    assert growth.rate() == pytest.approx(RATE, rel=0.1)
    assert same_on(moving, 1, 3)


@pytest.mark.parametrize("bed", [KAFKA_4, KAFKA_2_8], indirect=True)
def test_records_larger_than_every_limit_move(bed: Bed) -> None:
    """The limits are 1 MiB of a partition, 10 MiB of a response, and a rate of 5 MB/s."""
    record_bytes = 11 * MB
    moving = load(
        bed.kafka,
        on=[1],
        size_bytes=3 * record_bytes,
        record_bytes=record_bytes,
        partitions=1,
        config={"max.message.bytes": str(12 * MB)},
    )
    reassignment = Reassignment(load=moving, to=[1, 3])

    with Growth(moving, bed.kafka.brokers[2]) as growth:
        reassignment.execute()
        reassignment.wait(timeout_s=60)

    assert same_on(moving, 1, 3)
    # From the first complete record on, because a record that is being written counts in part.
    first = next(step for step in growth.steps() if step.size_bytes >= record_bytes)
    last = growth.steps()[-1]
    assert (last.size_bytes - first.size_bytes) / (last.at_s - first.at_s) < RATE * 1.1
