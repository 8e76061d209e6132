"""The replay beside two others: one as slow and as literal as Kafka's arithmetic, one that sends part by part."""

import math
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.model import KafkaSettings, QuotaRule, Shaping
from pipeline import replay as replay_module
from pipeline.replay import Outcome, Replay
from proxy.quota.client import Bucket, ClientQuotaManager
from proxy.quota.entity import QuotaKind
from tests.pipeline.literal_replay import Demand, LiteralReplay, arrays, beside, parts
from tests.support.kafka_rate import MetricConfig, Rate, record_and_get_throttle_time_ms

LIMIT = 1_000.0
CAP_MS = 25_000

# Of records beside one; bytes per millisecond.
rates = st.sampled_from([math.inf, 0.0, 0.1, 1.0, 7.5, 40.0])

demands = st.lists(
    st.builds(
        Demand,
        start_ms=st.integers(0, 120).map(lambda tick: 1_000_000 + tick * 500),
        interval_ms=st.sampled_from([0, 1, 250, 1_000, 1_003, 20_000]),
        amount=st.integers(0, 40_000),
        requests=st.integers(0, 40),
        connections=st.integers(1, 3),
        before=rates,
        after=rates,
    ),
    max_size=25,
).map(lambda found: sorted(found, key=lambda demand: demand.start_ms))


def bucket(
    limit: float = LIMIT,
    *,
    kafka: KafkaSettings | None = None,
    shaping: Shaping = Shaping.SAMPLED,
    burst_ms: int = 1_000,
    cap_ms: int | None = CAP_MS,
) -> Bucket:
    """Return a bucket under ``limit``."""
    rule = QuotaRule(user="alice", client_id="etl", producer_byte_rate=limit)
    manager = ClientQuotaManager(
        QuotaKind.PRODUCE, [rule], kafka=kafka, shaping=shaping, burst_ms=burst_ms, max_throttle_time_ms=cap_ms
    )
    return manager.bucket(user="alice", client_id="etl", now_ms=0)


def replayed(given: Sequence[Demand], *buckets: Bucket, at_once: int = 1_000) -> list[Outcome]:
    """Return what ``Replay`` makes of it, given so many records at once."""
    replay = Replay(*buckets)
    for first in range(0, len(given), at_once):
        replay.take(arrays(given[first : first + at_once]))
    return replay.end()


def one_by_one(given: Sequence[Demand], bucket: Bucket) -> Outcome:
    """Return what becomes of it when each part is charged by itself."""
    replay = LiteralReplay(bucket)
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

    (outcome,) = replayed(given, bucket())

    mine = {
        at_ms // 3_600_000: (hour.amount, hour.throttle_time_ms, hour.throttled_requests)
        for at_ms, hour in outcome.hours.items()
    }
    assert mine == by_brute_force(given, connections)


@given(given=demands)
def test_nothing_is_lost_and_nobody_is_silent_for_longer_than_there_is_time(given: list[Demand]) -> None:
    (outcome,) = replayed(given, bucket())

    amount = sum(demand.amount for demand in given)
    assert outcome.demand == amount
    assert sum(hour.amount for hour in outcome.hours.values()) == amount
    for hour in outcome.hours.values():
        assert hour.silent_ms <= hour.throttle_time_ms
        assert hour.delayed_amount <= hour.amount
    silent_ms = sum(hour.silent_ms for hour in outcome.hours.values())
    assert silent_ms <= outcome.sent_ms - outcome.first_ms + CAP_MS


def test_a_client_that_asks_for_twice_its_limit_gets_it_in_twice_the_time() -> None:
    given = [Demand(at * 1_000, 1_000, 2_000, 4, 1) for at in range(600)]

    (outcome,) = replayed(given, bucket())

    assert outcome.active_ms == 600_000
    # Kafka's windows let ten seconds' worth pass at once in the beginning.
    assert outcome.sent_ms == pytest.approx(1_200_000, rel=0.02)


def test_two_connections_wait_side_by_side() -> None:
    given = [Demand(0, 1_000, 40_000, 2, 2)]

    (outcome,) = replayed(given, bucket())

    (hour,) = outcome.hours.values()
    # 20,000 at 250 ms are 10,000 too much: 10 s. 40,000 at 750 ms are 30,000 too much, and 25 s is the longest.
    assert hour.throttled_requests == 2
    assert hour.throttle_time_ms == 10_000 + 25_000
    assert hour.silent_ms == 25_500
    assert hour.delayed_amount == 0


@st.composite
def long_demand(draw: st.DrawFn) -> list[Demand]:
    """Hours of a client that is mostly quiet: stretches that go on as they began, with silence and bursts between."""
    given, at_ms = list[Demand](), 1_800_000_000_000 + draw(st.integers(0, 3_600_000))
    for _ in range(draw(st.integers(1, 6))):
        interval_ms = draw(st.sampled_from([1, 100, 1_000, 1_000, 1_003, 15_000]))
        requests = draw(st.integers(0, 14))
        base = draw(st.integers(0, 1_500)) * max(1, interval_ms) // 1_000
        noise = draw(st.lists(st.integers(0, 400), min_size=1, max_size=7))
        step_ms = draw(st.sampled_from([interval_ms, interval_ms, interval_ms // 2, interval_ms * 2, 700]))
        connections = draw(st.integers(1, 3))
        for nth in range(draw(st.integers(1, 120))):
            amount = base + noise[nth % len(noise)]
            given.append(Demand(at_ms, interval_ms, amount, requests + nth * draw_bit(noise) % 3, connections))
            at_ms += step_ms
        if draw(st.booleans()):
            given.append(Demand(at_ms, interval_ms, draw(st.integers(0, 30_000)), draw(st.integers(0, 20)), 1))
        at_ms += draw(st.sampled_from([0, 1, 999, 1_000, 10_500, 11_000, 12_000, 90_000, 7_200_000]))
    return beside(given) if draw(st.booleans()) else given


def draw_bit(noise: Sequence[int]) -> int:
    """Return whether the number of requests moves as well."""
    return noise[0] % 2


kafkas = st.builds(
    KafkaSettings,
    quota_window_num=st.sampled_from([11, 11, 2, 5]),
    quota_window_size_seconds=st.sampled_from([1, 1, 3]),
)
caps = st.sampled_from([None, CAP_MS, 300, 0])
# Of what was used in ten seconds, about: so many wait, nobody does, or somebody might.
factors = st.one_of(st.sampled_from([0.5, 2.0]), st.floats(0.8, 1.2), st.floats(0.99, 1.01))


def limit_near(given: Sequence[Demand], factor: float, seconds: float = 10) -> float:
    """Return the limit that is ``factor`` of what came in the busiest such time."""
    span_ms = seconds * 1_000
    busiest = max(
        sum(other.amount for other in given[at : at + 200] if other.start_ms < demand.start_ms + span_ms)
        for at, demand in enumerate(given)
    )
    return max(1.0, busiest / seconds * factor)


@pytest.fixture(params=[3, 50, 1_024])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many parts are taken at once at first, and how many alone: few, that stretches meet often."""
    monkeypatch.setattr(replay_module, "_LEAST_AT_ONCE", request.param)
    monkeypatch.setattr(replay_module, "_LEAST_ALONE", max(1, request.param // 16))
    return int(request.param)


@given(given=long_demand(), tried=st.lists(factors, min_size=1, max_size=3), kafka=kafkas, cap_ms=caps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("at_once")
def test_many_at_once_are_what_they_are_one_by_one(
    given: list[Demand], tried: list[float], kafka: KafkaSettings, cap_ms: int | None
) -> None:
    limits = [limit_near(given, factor) for factor in tried]

    outcomes = replayed(given, *(bucket(limit, kafka=kafka, cap_ms=cap_ms) for limit in limits))

    assert outcomes == [one_by_one(given, bucket(limit, kafka=kafka, cap_ms=cap_ms)) for limit in limits]


@given(
    given=long_demand(),
    factor=factors,
    shaping=st.sampled_from(Shaping),
    burst_ms=st.sampled_from([100, 1_000, 10_000]),
    records=st.integers(1, 200),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("at_once")
def test_it_does_not_matter_which_arithmetic_and_how_many_records_come_at_once(
    given: list[Demand], factor: float, shaping: Shaping, burst_ms: int, records: int
) -> None:
    limit = limit_near(given, factor, 10 if shaping is Shaping.SAMPLED else burst_ms / 1_000)

    outcomes = replayed(given, bucket(limit, shaping=shaping, burst_ms=burst_ms), at_once=records)

    assert outcomes == [one_by_one(given, bucket(limit, shaping=shaping, burst_ms=burst_ms))]


@given(
    given=demands,
    limit=st.floats(100, 3_000),
    shaping=st.sampled_from(Shaping),
    factor=st.sampled_from([1, -1, 10**9, 10**11]),
    records=st.integers(1, 25),
)
def test_what_is_taken_back_what_is_huge_and_what_comes_at_once_is_right_as_well(
    given: list[Demand], limit: float, shaping: Shaping, factor: int, records: int
) -> None:
    given = [
        demand._replace(amount=demand.amount * factor if at % 2 else demand.amount) for at, demand in enumerate(given)
    ]

    for tried in (limit, limit * max(factor, 1)):
        outcomes = replayed(given, bucket(tried, shaping=shaping), at_once=records)

        assert outcomes == [one_by_one(given, bucket(tried, shaping=shaping))]
