"""Computes a client's rate and compares it with its quota. No I/O, no clock: times are seconds of one clock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from kafka_quota_proxy.proxy.cli.demo.workload import DemoError

# ``shaping: paced`` lets an idle client send a second's worth at once (``burst: 1s``), on top of that second's own.
_PACED_BURST_S: Final = 1.0
# Shorter than this a rate says more about the size of a request than about the flow.
_SHORTEST_S: Final = 1.0
# A burst begins where a quarter of a second carries more than 0.6 of the quota. Between bursts Kafka's throttle lets
# through a request a second, a fortieth of the quota; in the second before a burst the flow is at the quota itself,
# so there the exact place of the border does not change the average.
_BURST_SPAN_S: Final = 0.25
_BURST_SHARE: Final = 0.6
# Kafka's default windows make a cycle of 11 to 12.5 s, of which at least four are silent.
_SILENCE_S: Final = 3.0
_SILENCE_SHARE: Final = 0.3


class MeasurementError(DemoError):
    """There is not enough traffic for a rate."""


class Flow:
    """The bytes of one client over time."""

    __slots__ = ("_sums", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._sums: list[int] = [0]  # _sums[i]: bytes of the first i events

    def record(self, size_bytes: int, *, now_s: float) -> None:
        """Note that ``size_bytes`` have been acknowledged or delivered at ``now_s``; times never go back."""
        self._times.append(now_s)
        self._sums.append(self._sums[-1] + size_bytes)

    @property
    def times(self) -> list[float]:
        """The times of all records."""
        return self._times

    def bytes_between(self, start_s: float, end_s: float) -> int:
        """Return the bytes recorded at or after ``start_s`` and before ``end_s``."""
        return self._sums[bisect_left(self._times, end_s)] - self._sums[bisect_left(self._times, start_s)]

    def rate(self, *, now_s: float) -> float:
        """Return bytes per second over the last second."""
        return self.bytes_between(now_s - 1, now_s)


def burst_end(flow: Flow, *, quota_bytes_per_second: float) -> float | None:
    """Return when a paced client had used up its burst: at least a second after its first byte.

    A client that has used more than the burst and what the quota has added since is throttled: from then on the proxy
    sets the pace. ``None`` if the client never got there, for instance on a slow machine.
    """
    if not flow.times:
        return None
    first_s = flow.times[0]
    for index in range(bisect_left(flow.times, first_s + _PACED_BURST_S), len(flow.times)):
        time_s = flow.times[index]
        allowed = quota_bytes_per_second * (_PACED_BURST_S + time_s - first_s)
        if flow.bytes_between(first_s, time_s) >= allowed:
            return time_s
    return None


def paced_rate(flow: Flow, *, quota_bytes_per_second: float, now_s: float) -> float:
    """Return bytes per second from the end of the burst, or from the second second on, until now.

    An idle client has saved up the burst, so it is not part of the rate. The end is now and not the last byte, so that
    a stopped flow lowers the rate.

    Raises:
        MeasurementError: Less than a second has passed since then.
    """
    start_s = burst_end(flow, quota_bytes_per_second=quota_bytes_per_second)
    if start_s is None and flow.times:
        start_s = flow.times[0] + _PACED_BURST_S
    if start_s is None or now_s - start_s < _SHORTEST_S:
        raise MeasurementError("a paced rate needs a second of traffic after its burst: ask for more --seconds")
    return flow.bytes_between(start_s, now_s) / (now_s - start_s)


def burst_starts(flow: Flow, *, quota_bytes_per_second: float) -> list[float]:
    """Return when each burst of Kafka's sampled windows began, the first byte included.

    Args:
        flow: a client that moves all it may, in requests of at most a fortieth of a second's quota.
        quota_bytes_per_second: its quota.
    """
    enough = _BURST_SHARE * _BURST_SPAN_S * quota_bytes_per_second
    little = _SILENCE_SHARE * _SILENCE_S * quota_bytes_per_second
    starts = flow.times[:1]
    index = 0
    while index < len(flow.times):
        time_s = flow.times[index]
        if time_s - starts[-1] <= _SILENCE_S:
            # Skip the burst in one step: nearly all events are in bursts, and this runs several times a second.
            index = bisect_right(flow.times, starts[-1] + _SILENCE_S)
            continue
        if (
            flow.bytes_between(time_s, time_s + _BURST_SPAN_S) >= enough
            and flow.bytes_between(time_s - _SILENCE_S, time_s) <= little
        ):
            starts.append(time_s)
        index += 1
    return starts


def sampled_rate(flow: Flow, *, quota_bytes_per_second: float) -> float:
    """Return bytes per second over all whole cycles seen: from the first burst's start to the last one's.

    Any other stretch says as much about its own ends as about the rate: a burst holds eleven seconds' worth.

    Raises:
        MeasurementError: No cycle is complete yet.
    """
    starts = burst_starts(flow, quota_bytes_per_second=quota_bytes_per_second)
    if len(starts) < 2:
        raise MeasurementError("no whole cycle of Kafka's windows was seen: ask for lower rates or more --seconds")
    return flow.bytes_between(starts[0], starts[-1]) / (starts[-1] - starts[0])
