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

    assert (flow.bytes_between(1, 3), flow.bytes_between(-5, 50), flow.rate(now_s=3)) == (6, 15, 4)
    part = flow.since(2)
    assert (part.times, part.bytes_between(0, 9), part.bytes_between(3, 9)) == ([2, 3], 12, 8)
    assert flow.since(4).times == []


@pytest.mark.parametrize(
    ("burst_s", "burst_rate", "rate", "until_s", "measured"),
    [
        (1, 2, 1, 65, 1),
        (4, 1.25, 1, 65, 1),  # the burst of one second's quota takes four seconds
        (1, 0.8, 0.8, 65, 0.8),
        (1, 1.5, 1.5, 65, 1.5),
        (1, 1, 1, 58, 0.5),  # silent for the last seven of fourteen seconds
    ],
)
def test_a_paced_rate_leaves_out_the_burst_and_falls_in_silence(
    burst_s: int, burst_rate: float, rate: float, until_s: int, measured: float
) -> None:
    """All rates are in quotas."""
    flow = Flow()
    _steady(flow, start_s=50, end_s=50 + burst_s, rate=burst_rate * QUOTA)
    _steady(flow, start_s=50 + burst_s, end_s=until_s, rate=rate * QUOTA)

    found = paced_rate(flow, quota_bytes_per_second=QUOTA, now_s=65)

    assert found == pytest.approx(measured * QUOTA, rel=0.005)


@pytest.mark.parametrize(("cycles", "share"), [(2, 1.0), (6, 1.0), (4, 0.9), (4, 1.1)])
def test_a_sampled_rate_is_taken_over_whole_cycles(cycles: int, share: float) -> None:
    flow = _cycles(cycles, share=share)
    flow.record(REQUEST, now_s=flow.times[-1] + 7.3)

    rate = sampled_rate(flow, quota_bytes_per_second=QUOTA)

    assert rate == pytest.approx(share * QUOTA, rel=0.015)


def test_one_burst_is_no_cycle() -> None:
    flow = Flow()
    _steady(flow, start_s=0, end_s=1, rate=11 * QUOTA)
    for second in range(1, 11):
        flow.record(REQUEST, now_s=second)

    for without in (flow, Flow()):
        with pytest.raises(MeasurementError):
            sampled_rate(without, quota_bytes_per_second=QUOTA)


def test_a_second_at_twice_the_quota_inside_a_burst_is_no_new_burst() -> None:
    flow = Flow()
    _steady(flow, start_s=0, end_s=2, rate=3 * QUOTA)
    _steady(flow, start_s=2.9, end_s=4, rate=3 * QUOTA)

    assert burst_starts(flow, quota_bytes_per_second=QUOTA) == [0]
