"""Consumers below their quota do not notice it, and a consumer at its quota can use what it is charged for.

The clock is simulated, and each consumer has the defaults of Java and librdkafka.
"""

from random import Random

import pytest

from kafka_quota_proxy.config.model import Shaping
from tests.support.consumers import Consumers, Partition

KIB = 1024
MIB = 1024 * 1024
# How long a broker with data is taken to need for an answer, before the first measurement.
FIRST_ANSWER_MS = 21

each_shaping = pytest.mark.parametrize("shaping", Shaping)


def check_quiet(group: Consumers, *, longest_hold_ms: float = FIRST_ANSWER_MS) -> None:
    assert not [told_ms for one in group.all for told_ms in one.told_ms]
    assert sum(one.empty for one in group.all) == 0
    assert max(held_ms for one in group.all for held_ms in one.held_ms) <= longest_hold_ms


@each_shaping
@pytest.mark.parametrize(("number", "quota"), [(1, 1024 * MIB), (2, 2 * MIB), (200, 2 * MIB)])
def test_idle_consumers_get_each_record_at_once(shaping: Shaping, number: int, quota: int) -> None:
    group = Consumers(quota, shaping)
    partitions = [Partition(80, end=0) for _ in range(number)]
    for partition in partitions:
        group.add(partition)

    for second in range(3):
        group.run(1_000)
        group.produce(*partitions)
        group.run(50)
        assert {len(one.reads) for one in group.all} == {second + 1}

    check_quiet(group)


@each_shaping
def test_consumers_that_come_later_do_not_wait_for_those_that_are_there(shaping: Shaping) -> None:
    group = Consumers(2 * MIB, shaping)
    for _ in range(200):
        group.add(Partition(80, end=0), within_ms=10_000)

    group.run(12_000)

    check_quiet(group)


@each_shaping
@pytest.mark.parametrize("number", [1, 200])
def test_consumers_that_use_half_of_their_quota_are_not_throttled(shaping: Shaping, number: int) -> None:
    group = Consumers(2 * MIB, shaping)
    partitions = [Partition(KIB, end=0) for _ in range(number)]
    for partition in partitions:
        group.add(partition, within_ms=1_000)

    for step in range(100):
        group.run(100)
        group.produce(*(partitions[(step * 102 + nth) % number] for nth in range(102)))

    check_quiet(group)


@pytest.mark.parametrize(
    ("quota", "batch", "partitions", "shaping"),
    [
        (100 * KIB, KIB, 1, Shaping.PACED),
        (100 * KIB, KIB, 50, Shaping.SAMPLED),
        (100 * KIB, MIB - 100, 50, Shaping.PACED),
        (MIB, 200_000, 1, Shaping.SAMPLED),
        (2 * MIB, 24_000, 50, Shaping.PACED),
        (5 * MIB, 65_000, 1, Shaping.SAMPLED),
    ],
)
def test_lone_consumer_gets_its_quota_in_whole_batches(
    quota: int, batch: int, partitions: int, shaping: Shaping
) -> None:
    """With 50 partitions it has no session, like librdkafka and aiokafka, so each response names all of them."""
    group = Consumers(quota, shaping)
    consumer = group.add(*(Partition(batch) for _ in range(partitions)), has_session=partitions == 1)

    group.run(15_000 + 330_000)

    assert group.share(consumer, after_s=15) >= 0.95


@pytest.mark.kafka
@pytest.mark.parametrize("batch", [KIB, 65_000, MIB - 100])
@each_shaping
def test_lone_consumer_gets_a_large_quota_in_whole_batches(shaping: Shaping, batch: int) -> None:
    group = Consumers(50 * MIB, shaping)
    consumer = group.add(Partition(batch))

    group.run(15_000 + 22_000)

    assert group.share(consumer, after_s=15) >= 0.95


@pytest.mark.parametrize(
    ("sizes", "quota", "shaping"),
    [
        ((1_000, 16_000), 100 * KIB, Shaping.PACED),
        ((1_000, 64_000), 100 * KIB, Shaping.SAMPLED),
        ((100_000, 1_000_000), 100 * KIB, Shaping.PACED),
        ((100_000, 1_000_000), 2 * MIB, Shaping.SAMPLED),
    ],
)
def test_lone_consumer_gets_nearly_its_quota_in_batches_of_mixed_sizes(
    sizes: tuple[int, int], quota: int, shaping: Shaping
) -> None:
    random = Random(1)  # noqa: S311 - a simulation
    group = Consumers(quota, shaping)
    consumer = group.add(Partition(*(random.randint(*sizes) for _ in range(97))))

    group.run(15_000 + 220_000)

    assert group.share(consumer, after_s=15) >= 0.95


@pytest.mark.parametrize(
    ("quota", "batch", "answer_ms"),
    [
        (512 * KIB, 16_384, 200),
        (100 * KIB, KIB, 20),
        (5 * MIB, 16_384, 5),  # in 5 ms the limit allows one batch and the half of another
    ],
)
@each_shaping
def test_slow_broker_takes_little_from_a_lone_consumer(
    shaping: Shaping, quota: int, batch: int, answer_ms: int
) -> None:
    group = Consumers(quota, shaping, answer_ms=lambda: answer_ms)
    consumer = group.add(Partition(batch))

    group.run(15_000 + 165_000)

    assert group.share(consumer, after_s=15) >= (0.95 if shaping is Shaping.PACED else 0.9)


@each_shaping
def test_crowd_gets_its_quota_in_whole_batches(shaping: Shaping) -> None:
    group = Consumers(256 * KIB, shaping)
    for _ in range(30):
        group.add(Partition(16_384), within_ms=1_000)

    group.run(15_000 + 220_000)

    assert 0.93 <= group.share(*group.all, after_s=15) <= 1.05


@each_shaping
def test_idle_consumers_take_little_from_greedy_ones_of_the_same_quota(shaping: Shaping) -> None:
    group = Consumers(2 * MIB, shaping)
    greedy = [group.add(Partition(16_384), within_ms=500) for _ in range(30)]
    partitions = [Partition(80, end=0) for _ in range(30)]
    for partition in partitions:
        group.add(partition, within_ms=500)

    for _ in range(60):
        group.run(1_000)
        group.produce(*partitions)

    assert group.share(*greedy, after_s=15) >= 0.85


@pytest.mark.parametrize("seed", range(4, 9))
def test_long_batch_at_the_end_is_no_sign_that_the_broker_has_more(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a simulation
    partition = Partition(*(random.randint(200, 1_200) for _ in range(400)), 200_000, 200_000, end=401)
    group = Consumers(20 * KIB, Shaping.SAMPLED)
    group.add(partition)
    while not group.parked:
        group.run(50)

    group.run(300)
    group.produce(partition)

    assert group.context.quotas.answer_time.ms < FIRST_ANSWER_MS
