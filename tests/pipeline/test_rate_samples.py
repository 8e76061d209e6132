"""Samples of rates become records. Times in these tests are seconds."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.client_metrics import RATE, THROTTLE, Measured
from kafka_quota_proxy.pipeline.rate_samples import (
    ImportedRecord,
    SampledBucket,
    SampleIntegrator,
    Series,
    node_ids,
    usual_distance_ms,
)

BUCKET = SampledBucket("kafka-1:9404", "produce", "alice", "etl")
MINUTE = 60


def rates(*samples: tuple[float, float], bucket: SampledBucket = BUCKET, quantity: str = RATE) -> Series:
    return Series(bucket, Measured(bucket.kind, quantity), [(round(at_s * 1_000), value) for at_s, value in samples])


def throttles(*samples: tuple[float, float]) -> Series:
    return rates(*samples, quantity=THROTTLE)


def taken(integrator: SampleIntegrator, *series: Series) -> list[tuple[float, float, int]]:
    """Return the start, the length and the amount of each record."""
    return [(one.start_ms / 1_000, one.interval_ms / 1_000, one.amount) for one in integrator.take(series)]


def test_a_sample_stands_for_the_time_since_the_one_before() -> None:
    integrator = SampleIntegrator(step_ms=60_000)

    found = taken(integrator, rates((60, 100.0), (120, 200.0), (180, 0.5), (245, 10.0)))

    assert found == [(0, 60, 6_000), (60, 60, 12_000), (120, 60, 30), (180, 65, 650)]
    assert integrator.gaps == 0


def test_a_sample_after_a_gap_stands_for_the_usual_distance() -> None:
    integrator = SampleIntegrator(step_ms=60_000)

    found = taken(integrator, rates((60, 100.0), (120, 100.0), (180, 100.0), (600, 100.0)))

    assert found[-1] == (540, 60, 6_000)
    assert integrator.gaps == 1


def test_missing_samples_within_kafkas_windows_are_no_gap() -> None:
    """The next sample is the mean of these windows, so it stands for all of the time."""
    integrator = SampleIntegrator(step_ms=1_000)

    found = taken(integrator, rates(*((at, 100.0) for at in (1, 2, 3, 4, 15, 26.1))))

    assert found[3:] == [(3, 1, 100), (4, 11, 1_100), (25.1, 1, 100)]
    assert integrator.gaps == 1


def test_a_restarted_broker_counts_from_its_first_sample() -> None:
    integrator = SampleIntegrator(step_ms=60_000)

    found = taken(integrator, rates((60, 900.0), (120, 900.0), (300, 5.0), (360, 900.0)))

    assert [amount for _, _, amount in found] == [54_000, 54_000, 300, 54_000]


@pytest.mark.parametrize("value", [nan, inf, -1.0])
def test_a_value_that_is_no_rate_is_a_missing_sample(value: float) -> None:
    integrator = SampleIntegrator(step_ms=60_000)

    found = taken(integrator, rates((60, 100.0), (120, value), (180, 100.0)))

    assert found == [(0, 60, 6_000), (120, 60, 6_000)]


def test_idle_time_has_no_records() -> None:
    found = taken(SampleIntegrator(step_ms=60_000), rates((60, 0.0), (120, 100.0), (180, 0.0)), throttles((60, nan)))

    assert found == [(60, 60, 6_000)]


def test_scrapes_that_are_rarer_than_the_step_make_longer_records() -> None:
    integrator = SampleIntegrator(step_ms=10_000)

    found = taken(integrator, rates((60, 100.0), (120, 100.0), (180, 100.0)))

    assert found == [(0, 60, 6_000), (60, 60, 6_000), (120, 60, 6_000)]
    assert integrator.usual_ms == 60_000


def test_records_continue_in_the_next_batch() -> None:
    integrator = SampleIntegrator(step_ms=60_000)

    first = taken(integrator, rates((60, 100.0), (120, 100.0)))
    second = taken(integrator, rates((185, 100.0), (240, 100.0)))

    assert first + second == [(0, 60, 6_000), (60, 60, 6_000), (120, 65, 6_500), (185, 55, 5_500)]


def test_replicas_of_prometheus_count_once() -> None:
    """Both scrape every 15 s, the second 7 s later. At equal times the higher value counts."""
    first = [(15.0 * at, 100.0) for at in range(1, 9)]
    later = [(at_s + 7, 100.0) for at_s, _ in first]

    together = SampleIntegrator(step_ms=15_000).take([rates(*first), rates(*later)])
    same = taken(SampleIntegrator(step_ms=15_000), rates(*first), rates(*((at_s, 90.0) for at_s, _ in first)))

    assert sum(one.amount for one in together) == 100 * (15 * 8 + 7)
    assert [amount for _, _, amount in same] == [1_500] * 8


def test_request_time_is_percent_of_a_thread_times_milliseconds() -> None:
    bucket = BUCKET._replace(kind="request")

    (found,) = SampleIntegrator(step_ms=1_000).take([rates((1, 100.0), bucket=bucket)])

    assert found.amount == 100_000  # one thread for a second


@pytest.mark.parametrize(("distance_s", "wait_ms", "resolution_ms"), [(60, 500, 60_000), (1.1, 50, 11_000)])
def test_a_throttle_time_is_that_of_one_request_in_kafkas_windows(
    distance_s: float, wait_ms: int, resolution_ms: int
) -> None:
    """Samples that are closer than the windows repeat the same mean, so each has a part of it."""
    times = [distance_s * at for at in range(1, 4)]

    found = list(
        SampleIntegrator(0).take([rates(*((at, 9.0) for at in times)), throttles(*((at, 500) for at in times))])
    )

    assert [(one.throttle_time_ms, one.resolution_ms) for one in found] == [(wait_ms, resolution_ms)] * 3


def test_the_usual_distance_is_the_median() -> None:
    assert usual_distance_ms([rates((0, 1), (15, 1), (30, 1), (300, 1)), rates((5, 1), (20, 1))]) == 15_000
    assert usual_distance_ms([rates((5, 1))]) is None


def test_instances_without_a_node_id_are_numbered_in_the_order_of_their_names() -> None:
    assert node_ids(["c:1", "a:1", "b:1"], {}) == {"a:1": 1, "b:1": 2, "c:1": 3}
    assert node_ids(["c:1", "a:1", "b:1"], {"b:1": 1}) == {"a:1": 2, "b:1": 1, "c:1": 3}


@given(
    st.lists(st.tuples(st.integers(1, 200_000), st.one_of(st.floats(0, 1e9), st.just(nan))), min_size=1, max_size=40),
    st.integers(1, 10),
)
def test_records_never_overlap_and_never_exceed_rate_times_time(steps: list[tuple[int, float]], batches: int) -> None:
    at_ms, samples = 0, []
    for distance_ms, value in steps:
        at_ms += distance_ms
        samples.append((at_ms, value))
    integrator = SampleIntegrator(step_ms=60_000)
    found: list[ImportedRecord] = []
    for first in range(0, len(samples), batches):
        series = Series(BUCKET, Measured("produce", RATE), samples[first : first + batches])
        found += integrator.take([series])

    ends = [one.start_ms + one.interval_ms for one in found]
    assert all(end <= later.start_ms for end, later in zip(ends, found[1:], strict=False))
    values = dict(samples)
    for one in found:
        assert one.amount == round(values[one.start_ms + one.interval_ms] * one.interval_ms / 1_000)
