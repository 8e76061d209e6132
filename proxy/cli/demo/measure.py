"""Computes the rate at which a client of the demo sends or receives, to compare it with the client's quota.

This module does no I/O and reads no clock. All times are in seconds on the same clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from kafka_quota_proxy.proxy.cli.demo.workload import DemoError

# ``shaping: paced`` lets an idle client send a second's worth at once (``burst: 1s``), in addition to what the quota
# allows in that second.
_PACED_BURST_S: Final = 1.0
# A rate over a shorter time says more about the size of a request than about the flow.
_SHORTEST_S: Final = 1.0
# A burst begins where a quarter of a second carries at least 0.6 of what the quota allows in that time. Between bursts
# Kafka's throttle lets one request per second through, which is a fortieth of the quota.
_BURST_SPAN_S: Final = 0.25
_BURST_SHARE: Final = 0.6
# Kafka's default windows make cycles of 11 to 12.5 s. In each cycle at least four seconds are silent.
_SILENCE_S: Final = 3.0
_SILENCE_SHARE: Final = 0.3


class MeasurementError(DemoError):
    """Raised if a client of the demo has sent or received too little to compute its rate."""


class Flow:
    """Records how many bytes one client of the demo has sent or received, and when."""

    __slots__ = ("_sums", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._sums: list[int] = [0]  # _sums[i] is the sum of the bytes of the first i records

    def record(self, size_bytes: int, *, now_s: float) -> None:
        """Add ``size_bytes`` that were sent or received at the time ``now_s``. Call this in the order of time."""
        self._times.append(now_s)
        self._sums.append(self._sums[-1] + size_bytes)

    @property
    def times(self) -> list[float]:
        """The times at which bytes were sent or received, one for each call of ``record``."""
        return self._times

    def bytes_between(self, start_s: float, end_s: float) -> int:
        """Return how many bytes were sent or received at or after ``start_s`` and before ``end_s``."""
        return self._sums[bisect_left(self._times, end_s)] - self._sums[bisect_left(self._times, start_s)]

    def since(self, start_s: float) -> Flow:
        """Return the part of this flow at or after ``start_s``."""
        first = bisect_left(self._times, start_s)
        part = Flow()
        part._times = self._times[first:]
        part._sums = [total - self._sums[first] for total in self._sums[first:]]
        return part

    def rate(self, *, now_s: float) -> float:
        """Return the rate over the second before ``now_s``, in bytes per second."""
        return self.bytes_between(now_s - 1, now_s)


def burst_end(flow: Flow, *, quota_bytes_per_second: float) -> float | None:
    """Return the time at which a client has used up its burst, or None if it has not. The client has paced shaping.

    With paced shaping, the proxy holds clients to an even rate, but lets an idle client send or receive a burst: as
    much at once as the quota allows in a second. The burst is used up when the client has sent or received this much in
    addition to what the quota has allowed since the first byte. From then on, the client is throttled. The result is at
    least a second after the first byte.
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
    """Return the rate of a client with paced shaping from the end of its burst until now, in bytes per second.

    If the client has not used up its burst, the measurement starts a second after the first byte. The rate includes the
    time since the last byte, so that it falls if the flow stops.

    Raises:
        MeasurementError: Less than a second has been measured.
    """
    start_s = burst_end(flow, quota_bytes_per_second=quota_bytes_per_second)
    if start_s is None and flow.times:
        start_s = flow.times[0] + _PACED_BURST_S
    if start_s is None or now_s - start_s < _SHORTEST_S:
        raise MeasurementError("a paced rate needs a second of traffic after its burst: ask for more --seconds")
    return flow.bytes_between(start_s, now_s) / (now_s - start_s)


def burst_starts(flow: Flow, *, quota_bytes_per_second: float) -> list[float]:
    """Return the times at which the bursts of a client with sampled shaping began. The first byte begins a burst.

    Bursts are recognized only if the client uses up its quota, in requests of at most a fortieth of what the quota
    allows in a second.
    """
    enough = _BURST_SHARE * _BURST_SPAN_S * quota_bytes_per_second
    little = _SILENCE_SHARE * _SILENCE_S * quota_bytes_per_second
    starts = flow.times[:1]
    index = 0
    while index < len(flow.times):
        time_s = flow.times[index]
        if time_s - starts[-1] <= _SILENCE_S:
            # Skip the burst in one step, because nearly all records are in bursts, and the demo calls this function
            # several times a second.
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
    """Return the rate of a client with sampled shaping, over whole cycles of burst and silence, in bytes per second.

    A part of a cycle would distort the rate, because a burst has as many bytes as the quota allows in eleven seconds.

    Raises:
        MeasurementError: No cycle is complete.
    """
    starts = burst_starts(flow, quota_bytes_per_second=quota_bytes_per_second)
    if len(starts) < 2:
        raise MeasurementError("no whole cycle of Kafka's windows was seen: ask for lower rates or more --seconds")
    return flow.bytes_between(starts[0], starts[-1]) / (starts[-1] - starts[0])
