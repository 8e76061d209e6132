"""Tests rates and verdicts that are computed from simulated flows."""

import pytest

from kafka_quota_proxy.proxy.cli.demo.measure import Flow, MeasurementError, burst_starts, paced_rate, sampled_rate

QUOTA = 4_000
# The demo's clients send a fortieth of a second's quota in each request.
REQUEST = QUOTA // 40


def _steady(flow: Flow, *, start_s: float, end_s: float, rate: float = QUOTA) -> None:
    count = round((end_s - start_s) * rate / REQUEST)
    for index in range(count):
        flow.record(REQUEST, now_s=start_s + (end_s - start_s) * index / count)


def _cycles(count: int, *, length_s: float = 11.5, share: float = 1.0) -> Flow:
    """Return a flow as Kafka's windows cause it: a long burst, a request each second, and a second at the quota."""
    flow = Flow()
    for cycle in range(count):
        start_s = 100 + cycle * length_s
        trickle_s = [start_s + 1 + n for n in range(int(length_s) - 2)]
        burst_bytes = share * QUOTA * length_s - REQUEST * len(trickle_s) - QUOTA
        _steady(flow, start_s=start_s, end_s=start_s + 0.5, rate=burst_bytes / 0.5)
        for time_s in trickle_s:
            flow.record(REQUEST, now_s=time_s)
        _steady(flow, start_s=start_s + length_s - 1, end_s=start_s + length_s)
    return flow


def test_bytes_are_counted_from_the_start_inclusive_to_the_end_exclusive() -> None:
    flow = Flow()
    for second, size in enumerate((1, 2, 4, 8)):
        flow.record(size, now_s=second)

    assert flow.bytes_between(1, 3) == 6
    assert flow.bytes_between(-5, 50) == 15
    assert flow.rate(now_s=3) == 4


def test_part_of_a_flow_begins_at_its_start_inclusive() -> None:
    flow = Flow()
    for second, size in enumerate((1, 2, 4, 8)):
        flow.record(size, now_s=second)

    part = flow.since(2)

    assert (part.times, part.bytes_between(0, 9), part.bytes_between(3, 9)) == ([2, 3], 12, 8)
    assert flow.since(4).times == []
    assert flow.bytes_between(0, 9) == 15


def test_a_paced_rate_leaves_out_the_burst_of_the_first_second() -> None:
    flow = Flow()
    _steady(flow, start_s=50, end_s=51, rate=2 * QUOTA)
    _steady(flow, start_s=51, end_s=65)

    rate = paced_rate(flow, quota_bytes_per_second=QUOTA, now_s=65)

    assert rate == pytest.approx(QUOTA, rel=1e-9)


def test_a_paced_rate_leaves_out_a_longer_burst() -> None:
    """At 1.25 times the quota, the burst of one second's quota takes four seconds."""
    flow = Flow()
    _steady(flow, start_s=50, end_s=54, rate=1.25 * QUOTA)
    _steady(flow, start_s=54, end_s=65)

    rate = paced_rate(flow, quota_bytes_per_second=QUOTA, now_s=65)

    assert rate == pytest.approx(QUOTA, rel=0.005)


def test_a_client_slower_than_its_quota_has_its_own_rate() -> None:
    flow = Flow()
    _steady(flow, start_s=50, end_s=65, rate=0.8 * QUOTA)

    rate = paced_rate(flow, quota_bytes_per_second=QUOTA, now_s=65)

    assert rate == pytest.approx(0.8 * QUOTA, rel=0.005)


def test_a_rate_above_the_quota_is_measured() -> None:
    flow = Flow()
    _steady(flow, start_s=50, end_s=65, rate=1.5 * QUOTA)

    rate = paced_rate(flow, quota_bytes_per_second=QUOTA, now_s=65)

    assert rate == pytest.approx(1.5 * QUOTA, rel=0.005)


def test_silence_at_the_end_lowers_a_paced_rate() -> None:
    flow = Flow()
    _steady(flow, start_s=0, end_s=8)

    rate = paced_rate(flow, quota_bytes_per_second=QUOTA, now_s=15)

    assert rate == pytest.approx(QUOTA / 2, rel=1e-9)


@pytest.mark.parametrize("now_s", [0, 1, 1.9])
def test_a_paced_rate_needs_two_seconds(now_s: float) -> None:
    flow = Flow()
    flow.record(REQUEST, now_s=0)

    with pytest.raises(MeasurementError):
        paced_rate(flow, quota_bytes_per_second=QUOTA, now_s=now_s)


def test_without_traffic_there_is_no_rate() -> None:
    with pytest.raises(MeasurementError):
        paced_rate(Flow(), quota_bytes_per_second=QUOTA, now_s=1_000)
    with pytest.raises(MeasurementError):
        sampled_rate(Flow(), quota_bytes_per_second=QUOTA)


def test_the_start_of_each_burst_is_found() -> None:
    flow = _cycles(4)

    starts = burst_starts(flow, quota_bytes_per_second=QUOTA)

    # The fifth burst is the last second of the simulated flow, which is at the quota.
    assert len(starts) == 5
    for cycle, start_s in enumerate(starts):
        assert 100 + cycle * 11.5 - 1.25 <= start_s <= 100 + cycle * 11.5 + 0.1


@pytest.mark.parametrize("cycles", [2, 3, 6])
def test_a_sampled_rate_is_taken_over_whole_cycles(cycles: int) -> None:
    flow = _cycles(cycles)
    flow.record(REQUEST, now_s=flow.times[-1] + 7.3)

    rate = sampled_rate(flow, quota_bytes_per_second=QUOTA)

    assert rate == pytest.approx(QUOTA, rel=0.01)


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_a_sampled_rate_off_its_quota_is_measured(share: float) -> None:
    flow = _cycles(4, share=share)

    rate = sampled_rate(flow, quota_bytes_per_second=QUOTA)

    assert rate == pytest.approx(share * QUOTA, rel=0.015)


def test_one_burst_is_no_cycle() -> None:
    flow = Flow()
    _steady(flow, start_s=0, end_s=1, rate=11 * QUOTA)
    for second in range(1, 11):
        flow.record(REQUEST, now_s=second)

    with pytest.raises(MeasurementError):
        sampled_rate(flow, quota_bytes_per_second=QUOTA)


def test_a_second_at_twice_the_quota_inside_a_burst_is_no_new_burst() -> None:
    flow = Flow()
    _steady(flow, start_s=0, end_s=2, rate=3 * QUOTA)
    _steady(flow, start_s=2.9, end_s=4, rate=3 * QUOTA)

    assert burst_starts(flow, quota_bytes_per_second=QUOTA) == [0]
