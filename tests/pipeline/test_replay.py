"""The replay beside a second one that is as slow and as literal as Kafka's arithmetic is described."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.model import KafkaSettings, QuotaRule
from pipeline.replay import Demand, Outcome, Replay, parts, parts_of
from proxy.quota.client import Bucket, ClientQuotaManager
from proxy.quota.entity import QuotaKind
from tests.support.kafka_rate import MetricConfig, Rate, record_and_get_throttle_time_ms

LIMIT = 1_000.0
CAP_MS = 25_000

demands = st.lists(
    st.builds(
        Demand,
        start_ms=st.integers(0, 120).map(lambda tick: 1_000_000 + tick * 500),
        interval_ms=st.sampled_from([0, 1, 250, 1_000, 1_003, 20_000]),
        amount=st.integers(0, 40_000),
        requests=st.integers(0, 40),
        connections=st.integers(1, 3),
    ),
    max_size=25,
).map(lambda found: sorted(found, key=lambda demand: demand.start_ms))


def bucket() -> Bucket:
    """Return a bucket under ``LIMIT``."""
    rule = QuotaRule(user="alice", client_id="etl", producer_byte_rate=LIMIT)
    manager = ClientQuotaManager(QuotaKind.PRODUCE, [rule], kafka=KafkaSettings(), max_throttle_time_ms=CAP_MS)
    return manager.bucket(user="alice", client_id="etl", now_ms=0)


def replayed(given: list[Demand]) -> Outcome:
    """Return what ``Replay`` makes of it."""
    replay = Replay(bucket())
    for demand in given:
        replay.take(demand)
    return replay.end()


def by_brute_force(given: list[Demand], connections: int) -> dict[int, tuple[int, int, int]]:
    """Return amount, waits and throttled requests by hour: all parts in one list, each connection looked at."""
    comes = [(at_ms, order, amount) for order, demand in enumerate(given) for at_ms, amount in parts(demand)]
    rate, config, free_ms = Rate(), MetricConfig(samples=11, window_ms=1_000, bound=LIMIT), [0] * connections
    found: dict[int, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for at_ms, _, amount in sorted(comes, key=lambda part: part[:2]):
        first = min(range(connections), key=lambda one: free_ms[one])
        now_ms = max(at_ms, free_ms[first])
        wait_ms = min(CAP_MS, max(0, record_and_get_throttle_time_ms(rate, config, amount, now_ms)))
        free_ms[first] = now_ms + wait_ms
        amounts, waits, throttled = found[now_ms // 3_600_000]
        found[now_ms // 3_600_000] = (amounts + amount, waits + wait_ms, throttled + (wait_ms > 0))
    return found


@given(given=demands, connections=st.integers(1, 3))
def test_it_is_what_brute_force_says_to_the_millisecond(given: list[Demand], connections: int) -> None:
    given = [demand._replace(connections=connections) for demand in given]

    outcome = replayed(given)

    mine = {
        at_ms // 3_600_000: (hour.amount, hour.throttle_time_ms, hour.throttled_requests)
        for at_ms, hour in outcome.hours.items()
    }
    assert mine == by_brute_force(given, connections)


@given(given=demands)
def test_nothing_is_lost_and_nobody_is_silent_for_longer_than_there_is_time(given: list[Demand]) -> None:
    outcome = replayed(given)

    amount = sum(demand.amount for demand in given)
    assert outcome.demand == amount
    assert sum(hour.amount for hour in outcome.hours.values()) == amount
    for hour in outcome.hours.values():
        assert hour.silent_ms <= hour.throttle_time_ms
        assert hour.delayed_amount <= hour.amount
    silent_ms = sum(hour.silent_ms for hour in outcome.hours.values())
    assert silent_ms <= outcome.sent_ms - outcome.first_ms + CAP_MS


@given(
    demand=st.builds(
        Demand,
        start_ms=st.integers(0, 10_000),
        interval_ms=st.integers(0, 90_000),
        amount=st.integers(0, 10_000),
        requests=st.integers(0, 300),
        connections=st.just(1),
    )
)
def test_parts_lie_within_their_interval_in_order_and_add_up(demand: Demand) -> None:
    found = list(parts(demand))

    assert sum(amount for _, amount in found) == demand.amount
    assert len(found) == parts_of(demand.requests, demand.interval_ms) <= max(10, 90)
    times = [at_ms for at_ms, _ in found]
    assert times == sorted(times)
    assert demand.start_ms <= times[0] <= times[-1] <= demand.start_ms + demand.interval_ms


def test_a_client_that_asks_for_twice_its_limit_gets_it_in_twice_the_time() -> None:
    given = [Demand(at * 1_000, 1_000, 2_000, 4, 1) for at in range(600)]

    outcome = replayed(given)

    assert outcome.active_ms == 600_000
    # Kafka's windows let ten seconds' worth pass at once in the beginning.
    assert outcome.sent_ms == pytest.approx(1_200_000, rel=0.02)


def test_two_connections_wait_side_by_side() -> None:
    given = [Demand(0, 1_000, 40_000, 2, 2)]

    outcome = replayed(given)

    (hour,) = outcome.hours.values()
    # 20,000 at 250 ms are 10,000 too much: 10 s. 40,000 at 750 ms are 30,000 too much, and 25 s is the longest.
    assert hour.throttled_requests == 2
    assert hour.throttle_time_ms == 10_000 + 25_000
    assert hour.silent_ms == 25_500
    assert hour.delayed_amount == 0
