"""The replay gives the same results as ``brute_force`` and ``literal_replay``, which are slower."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import KafkaSettings, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.pipeline import replay as replay_module
from kafka_quota_proxy.pipeline.replay import Hour, Outcome, Replay
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from tests.pipeline.brute_force import passed
from tests.pipeline.literal_replay import Demand, LiteralReplay, arrays, beside, parts
from tests.support.cases import A_THIRD

LIMIT = 1_000.0

kinds = st.sampled_from([QuotaKind.PRODUCE, QuotaKind.FETCH])
# Rates of neighbour records, in bytes per millisecond.
rates = st.sampled_from([math.inf, 0.0, 0.1, 1.0, 7.5, 40.0])

demands = st.lists(
    st.builds(
        Demand,
        start_ms=st.integers(0, 120).map(lambda tick: 1_000_000 + tick * 500),
        interval_ms=st.sampled_from([0, 1, 250, 1_000, 1_003, 20_000]),
        amount=st.integers(0, 40_000),
        requests=st.integers(0, 40),
        before=rates,
        after=rates,
    ),
    max_size=25,
).map(lambda found: sorted(found, key=lambda demand: demand.start_ms))


def bucket(
    limit: float = LIMIT,
    kind: QuotaKind = QuotaKind.PRODUCE,
    *,
    kafka: KafkaSettings | None = None,
    shaping: Shaping = Shaping.SAMPLED,
    burst_ms: int = 1_000,
) -> Bucket:
    """Return a bucket under ``limit``."""
    rule = QuotaRule(user="alice", client_id="etl", producer_byte_rate=limit, consumer_byte_rate=limit)
    manager = ClientQuotaManager(
        kind, [rule], kafka=kafka, shaping=shaping, burst_ms=burst_ms, max_throttle_time_ms=25_000
    )
    return manager.bucket(user="alice", client_id="etl", now_ms=0)


def replayed(given: Sequence[Demand], *buckets: Bucket, at_once: int = 1_000) -> list[Outcome]:
    """Return the outcomes of ``Replay``, with batches of ``at_once`` records."""
    replay = Replay(*buckets)
    for first in range(0, len(given), at_once):
        replay.take(arrays(given[first : first + at_once]))
    return replay.end()


def one_by_one(given: Sequence[Demand], bucket: Bucket) -> Outcome:
    """Return the outcome of ``LiteralReplay``."""
    replay = LiteralReplay(bucket)
    for demand in given:
        replay.take(demand)
    return replay.end()


def by_brute_force(given: list[Demand], kind: QuotaKind, shaping: Shaping) -> dict[int, tuple[int, int, int]]:
    """Return the amount, the waiting time and the number of throttled requests of each hour."""
    comes = [(at_ms, order, amount) for order, demand in enumerate(given) for at_ms, amount in parts(demand)]
    in_order = [(at_ms, amount) for at_ms, _, amount in sorted(comes, key=lambda part: part[:2])]
    found: dict[int, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for one in passed(in_order, LIMIT, is_paced=shaping is Shaping.PACED, is_fetch=kind is QuotaKind.FETCH):
        amount, waits_ms, throttled = found[one.out_ms // 3_600_000]
        found[one.out_ms // 3_600_000] = (amount + one.amount, waits_ms + one.wait_ms, throttled + (one.wait_ms > 0))
    return found


@given(given=demands, kind=kinds, shaping=st.sampled_from(Shaping))
def test_replay_equals_brute_force_to_the_millisecond(given: list[Demand], kind: QuotaKind, shaping: Shaping) -> None:
    (outcome,) = replayed(given, bucket(kind=kind, shaping=shaping))

    mine = {
        at_ms // 3_600_000: (hour.amount, hour.throttle_time_ms, hour.throttled_requests)
        for at_ms, hour in outcome.hours.items()
    }
    assert mine == by_brute_force(given, kind, shaping)


@given(given=demands, kind=kinds)
def test_no_byte_is_lost_and_throttle_time_fits_the_clock(given: list[Demand], kind: QuotaKind) -> None:
    (outcome,) = replayed(given, bucket(kind=kind))

    amount = sum(demand.amount for demand in given)
    assert sum(hour.amount for hour in outcome.hours.values()) == amount
    for hour in outcome.hours.values():
        assert hour.delayed_amount <= hour.amount
    silent_ms = sum(hour.throttle_time_ms for hour in outcome.hours.values())
    largest = max((amount for demand in given for _, amount in parts(demand)), default=0)
    first_ms = given[0].start_ms if given else 0
    assert silent_ms <= outcome.sent_ms - first_ms + 11_000 + largest


def test_a_client_that_asks_for_twice_its_limit_gets_it_in_twice_the_time() -> None:
    given = [Demand(at * 1_000, 1_000, 2_000, 4) for at in range(600)]

    (outcome,) = replayed(given, bucket())

    # The bucket is in debt from early on until after the last part.
    assert 1_185_000 <= outcome.busy_ms <= 1_211_000
    # At the beginning, Kafka's windows let the amount of ten seconds pass at once.
    assert outcome.sent_ms == pytest.approx(1_200_000, rel=0.02)


@A_THIRD
@given(
    given=demands,
    tried=st.lists(st.floats(100, 6_000), min_size=1, max_size=5, unique=True),
    max_delay_ms=st.sampled_from([0, 1_000, 30_000]),
    kind=kinds,
)
def test_a_replay_ends_early_under_a_limit_that_delays_for_too_long_and_under_all_lower_ones(
    given: list[Demand], tried: list[float], max_delay_ms: int, kind: QuotaKind
) -> None:
    whole = [one_by_one(given, bucket(limit, kind)) for limit in tried]
    replay = Replay(*(bucket(limit, kind) for limit in tried), max_delay_ms=max_delay_ms)
    for demand in given:
        replay.take(arrays([demand]))

    found = replay.end()

    too_low = [
        limit for limit, outcome in zip(tried, whole, strict=True) if outcome.total().longest_delay_ms > max_delay_ms
    ]
    for limit, outcome, expected in zip(tried, found, whole, strict=True):
        if limit > max(too_low, default=0):
            assert outcome == expected
        else:
            assert outcome.total().longest_delay_ms > max_delay_ms


@A_THIRD
@given(given=demands, kind=kinds)
def test_the_total_is_that_of_all_hours(given: list[Demand], kind: QuotaKind) -> None:
    far = [
        *given, *(demand._replace(start_ms=demand.start_ms + 7_200_000, amount=demand.amount // 2) for demand in given)
    ]  # fmt: skip
    (outcome,) = replayed(far, bucket(kind=kind))

    total, hours = outcome.total(), outcome.hours.values()
    for name in ("amount", "delayed_amount", "throttled_requests", "throttle_time_ms"):
        assert getattr(total, name) == sum(getattr(hour, name) for hour in hours)
    assert total.longest_delay_ms == max((hour.longest_delay_ms for hour in hours), default=0)


def test_a_replay_that_ends_early_sends_no_more() -> None:
    given = [Demand(at * 1_000, 1_000, 2_000, 4) for at in range(600)]
    alone = Replay(bucket(), max_delay_ms=5_000)
    for at in range(600):
        alone.take(arrays(given[at : at + 1]))
    together = Replay(bucket(LIMIT / 2), bucket(), max_delay_ms=5_000)
    together.take(arrays(given))

    (outcome,), (lower, higher) = alone.end(), together.end()

    assert 0 < outcome.total().amount < 40_000
    assert lower.total() == Hour(longest_delay_ms=higher.total().longest_delay_ms)


@pytest.mark.parametrize("shaping", Shaping)
def test_a_lower_limit_lacks_more_tokens(shaping: Shaping) -> None:
    """The same parts may leave tokens under one limit, and none under the other."""
    given = [Demand(at_ms, 0, amount, 1) for at_ms, amount in ((0, 900), (200, 450), (5_000, 10), (6_000, 10))]
    limits = (LIMIT, 2 * LIMIT)

    def buckets() -> list[Bucket]:
        return [bucket(limit, QuotaKind.FETCH, shaping=shaping) for limit in limits]

    assert replayed(given, *buckets(), at_once=1) == [one_by_one(given, one) for one in buckets()]


def test_debt_is_waited_for_in_full() -> None:
    given = [Demand(0, 1_000, 80_000, 2)]

    (outcome,) = replayed(given, bucket())

    (hour,) = outcome.hours.values()
    # 40,000 at 250 ms exceed the limit by 30,000, which takes 30 s. Then they have left the windows, and the rest goes
    # out.
    assert outcome.sent_ms == 250 + 30_000
    assert hour.delayed_amount == 40_000
    assert hour.longest_delay_ms == 250 + 30_000 - 750
    assert hour.throttled_requests == 2
    assert hour.throttle_time_ms == 30_000 + 30_000


def test_fetches_pass_in_pieces() -> None:
    given = [Demand(0, 1_000, 8_000, 1)]

    outcomes = [replayed(given, bucket(kind=kind)) for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)]

    (produce,), (fetch,) = outcomes
    assert produce.sent_ms == 500
    # A fetch asks for half of a window at most, and two of them fit into the window.
    assert fetch.sent_ms == 500


@st.composite
def long_demand(draw: st.DrawFn) -> list[Demand]:
    """Draw hours of a client with steady stretches, silence and bursts."""
    given, at_ms = list[Demand](), 1_800_000_000_000 + draw(st.integers(0, 3_600_000))
    for _ in range(draw(st.integers(1, 6))):
        interval_ms = draw(st.sampled_from([1, 100, 1_000, 1_000, 1_003, 15_000]))
        requests = draw(st.integers(0, 14))
        base = draw(st.integers(0, 1_500)) * max(1, interval_ms) // 1_000
        noise = draw(st.lists(st.integers(0, 400), min_size=1, max_size=7))
        step_ms = draw(st.sampled_from([interval_ms, interval_ms, interval_ms // 2, interval_ms * 2, 700]))
        for nth in range(draw(st.integers(1, 120))):
            amount = base + noise[nth % len(noise)]
            given.append(Demand(at_ms, interval_ms, amount, requests + nth * draw_bit(noise) % 3))
            at_ms += step_ms
        if draw(st.booleans()):
            given.append(Demand(at_ms, interval_ms, draw(st.integers(0, 30_000)), draw(st.integers(0, 20))))
        at_ms += draw(st.sampled_from([0, 1, 999, 1_000, 10_500, 11_000, 12_000, 90_000, 7_200_000]))
    return beside(given) if draw(st.booleans()) else given


def draw_bit(noise: Sequence[int]) -> int:
    """Return 1 if the number of requests varies as well, else 0."""
    return noise[0] % 2


kafkas = st.builds(
    KafkaSettings,
    quota_window_num=st.sampled_from([11, 11, 2, 5]),
    quota_window_size_seconds=st.sampled_from([1, 1, 3]),
)
# Limits relative to the use in ten seconds. Below 1 many requests wait, above 1 none, and near 1 some may.
factors = st.one_of(st.sampled_from([0.5, 2.0, 8.0]), st.floats(0.8, 1.2), st.floats(0.99, 1.01))


def limit_near(given: Sequence[Demand], factor: float, seconds: float = 10) -> float:
    """Return a limit of ``factor`` times the rate of the busiest ``seconds``."""
    span_ms = seconds * 1_000
    busiest = max(
        sum(other.amount for other in given[at : at + 200] if other.start_ms < demand.start_ms + span_ms)
        for at, demand in enumerate(given)
    )
    return max(1.0, busiest / seconds * factor)


# The number of parts that are first charged together. With a small number, the two ways of charging alternate often.
first_parts = st.sampled_from([3, 50, 1_024])


@contextmanager
def charging(parts: int) -> Iterator[None]:
    """Make the replay charge this many parts together at first, and then a few one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "_LEAST_AT_ONCE", parts)
        patch.setattr(replay_module, "_LEAST_ALONE", max(1, parts // 16))
        yield


@pytest.mark.kafka
@given(
    given=long_demand(),
    tried=st.lists(factors, min_size=1, max_size=5),
    kafka=kafkas,
    kind=kinds,
    shaping=st.sampled_from(Shaping),
    parts=first_parts,
)
@settings(max_examples=150)
def test_charging_many_at_once_equals_one_by_one(
    given: list[Demand], tried: list[float], kafka: KafkaSettings, kind: QuotaKind, shaping: Shaping, parts: int
) -> None:
    seconds = 10 if shaping is Shaping.SAMPLED else 1
    limits = [limit_near(given, factor, seconds) for factor in tried]

    with charging(parts):
        outcomes = replayed(given, *(bucket(limit, kind, kafka=kafka, shaping=shaping) for limit in limits))

    assert outcomes == [one_by_one(given, bucket(limit, kind, kafka=kafka, shaping=shaping)) for limit in limits]


@pytest.mark.kafka
@given(
    given=long_demand(),
    factor=factors,
    shaping=st.sampled_from(Shaping),
    burst_ms=st.sampled_from([100, 1_000, 10_000]),
    records=st.integers(1, 200),
    kind=kinds,
    parts=first_parts,
)
@settings(max_examples=150)
def test_batch_sizes_do_not_change_the_outcome(
    given: list[Demand], factor: float, shaping: Shaping, burst_ms: int, records: int, kind: QuotaKind, parts: int
) -> None:
    limit = limit_near(given, factor, 10 if shaping is Shaping.SAMPLED else burst_ms / 1_000)

    with charging(parts):
        outcomes = replayed(given, bucket(limit, kind, shaping=shaping, burst_ms=burst_ms), at_once=records)

    assert outcomes == [one_by_one(given, bucket(limit, kind, shaping=shaping, burst_ms=burst_ms))]


@A_THIRD
@given(
    given=demands,
    limit=st.floats(100, 3_000),
    shaping=st.sampled_from(Shaping),
    factor=st.sampled_from([1, -1, 10**9, 10**11]),
    records=st.integers(1, 25),
    kind=kinds,
)
def test_refunds_huge_amounts_and_bursts_are_exact(
    given: list[Demand], limit: float, shaping: Shaping, factor: int, records: int, kind: QuotaKind
) -> None:
    given = [
        demand._replace(amount=demand.amount * factor if at % 2 else demand.amount) for at, demand in enumerate(given)
    ]

    for tried in (limit, limit * max(factor, 1)):
        outcomes = replayed(given, bucket(tried, kind, shaping=shaping), at_once=records)

        assert outcomes == [one_by_one(given, bucket(tried, kind, shaping=shaping))]
