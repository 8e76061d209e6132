"""Limits how many requests a broker gets at a time. The other requests wait in the proxy, in a fair order.

``VegasLimit`` finds the limit in the way in which TCP Vegas finds a window (Brakmo and Peterson, 1995; ``VegasLimit``
of Netflix's concurrency-limits). Suppose that L requests are in flight, and that each takes the time R, but would take
only the time B if no request had to wait at the broker. Then the broker works on L * B / R requests, and the others,
which are L * (1 - B / R), wait in a queue at the broker. L, which is the limit, grows while fewer than alpha requests
wait there, and shrinks while more than beta do. So L settles where the broker is fully used and few requests wait.

Unlike TCP segments, requests differ from each other. So this module differs from TCP Vegas in three points:

* R is the mean time of many responses. The minimum would be the time of the smallest request.
* alpha, beta and the steps of L grow with L, because the noise in the estimated number of waiting requests does, too.
* B is measured: twice a minute, L is halved for some responses, and B moves towards their mean time. Otherwise the
  proxy would not notice that a broker has had too many requests for long, or has become slower.
"""

from enum import Enum, auto
from typing import Final, TypeAlias

_ALPHA: Final = 0.10
_BETA: Final = 0.20
_LEAST_ALPHA: Final = 3
_LEAST_BETA: Final = 6
_STEP: Final = 0.05
# The factor by which the limit grows until requests queue at the broker for the first time.
_SLOW_START: Final = 1.25

_WINDOW_MS: Final = 50
_WINDOW_SAMPLES: Final = 32
_SMOOTHING: Final = 0.3

_FIRST_PROBE_AFTER_MS: Final = 1_000
_PROBE_EVERY_MS: Final = 30_000
_PROBE_SAMPLES: Final = 128
_LONGEST_PROBE_MS: Final = 1_000
_FEWEST_PROBE_SAMPLES: Final = 8
# The first probes are averaged. Each later probe has at least this weight, so that old probes fade out.
_LEAST_PROBE_WEIGHT: Final = 0.2
# If R falls below this part of B, then B was measured while requests queued. Noise is smaller.
_CLEARLY_FASTER: Final = 0.75


class FixedLimit:
    """A constant limit. ``learns`` is False, which means that callers need not call ``observe``."""

    __slots__ = ("limit",)
    learns = False

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def observe(self, rtt_us: int, in_flight: int, now_ms: int) -> None:
        """Do nothing, because the limit is constant."""


class _Phase(Enum):
    SLOW_START = auto()
    STEADY = auto()
    DRAINING = auto()  # the limit is halved, and older requests are still being answered
    PROBING = auto()  # the limit is halved, and responses now belong to requests sent to a half-empty broker


class VegasLimit:
    """A limit between ``minimum`` and ``maximum`` that is learned from response times. It begins at ``minimum``.

    By default, the maximum is Kafka's ``queued.max.requests``, the most requests that wait within a broker.

    ``rtt_us`` and ``base_rtt_us`` are the times that the docstring of this module calls R and B, in microseconds. Both
    are 0 while they are unknown.
    """

    __slots__ = (
        "_count",
        "_estimate",
        "_next_probe_ms",
        "_peak",
        "_phase",
        "_phase_since_ms",
        "_probe_interval_ms",
        "_probes",
        "_sum_us",
        "_to_skip",
        "_window_samples",
        "base_rtt_us",
        "limit",
        "maximum",
        "minimum",
        "rtt_us",
    )

    learns = True

    def __init__(self, *, minimum: int = 4, maximum: int = 500) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.limit = minimum
        self.base_rtt_us = 0.0
        self.rtt_us = 0.0
        self._estimate = float(minimum)
        self._phase = _Phase.SLOW_START
        self._phase_since_ms = 0
        self._next_probe_ms = 0
        self._probe_interval_ms = _FIRST_PROBE_AFTER_MS
        self._probes = 1
        self._to_skip = 0
        # The first window sets B.
        self._window_samples = _PROBE_SAMPLES
        self._count = self._sum_us = self._peak = 0

    def observe(self, rtt_us: int, in_flight: int, now_ms: int) -> None:
        """Learn from one response.

        ``rtt_us`` is the time that the request took in microseconds, and is above 0. ``in_flight`` is the number of
        requests that were at the broker, including the answered request.
        """
        if not self._count and not self.base_rtt_us:
            self._phase_since_ms = now_ms
            self._next_probe_ms = now_ms + _FIRST_PROBE_AFTER_MS
        if self._phase is _Phase.DRAINING:
            self._drain(in_flight, now_ms)
            return
        self._count += 1
        self._sum_us += rtt_us
        if in_flight > self._peak:
            self._peak = in_flight
        if self._phase is _Phase.PROBING:
            if self._count >= _PROBE_SAMPLES or now_ms - self._phase_since_ms > _LONGEST_PROBE_MS:
                self._end_probe(now_ms)
        elif (
            self._count >= self._window_samples
            and self._count >= self.limit
            and now_ms - self._phase_since_ms >= _WINDOW_MS
        ):
            self._end_window(now_ms)

    def _end_window(self, now_ms: int) -> None:
        self._window_samples = _WINDOW_SAMPLES
        mean_us = self._sum_us / self._count
        self.rtt_us += (mean_us - self.rtt_us) * (_SMOOTHING if self.rtt_us else 1.0)
        if not self.base_rtt_us or self.rtt_us < self.base_rtt_us * _CLEARLY_FASTER:
            self.base_rtt_us = self.rtt_us
            self._probes = 1
        self._estimate = min(max(self._stepped(), self.minimum), self.maximum)
        self._begin(self._phase, self._estimate, now_ms)
        if now_ms >= self._next_probe_ms:
            # If no request ever queued, the probe ends the slow start.
            self._begin(_Phase.DRAINING, self._estimate / 2, now_ms)

    def _stepped(self) -> float:
        """Return the next estimate of the limit, from the number of requests that seem to wait at the broker."""
        estimate = self._estimate
        queued = estimate * (1 - self.base_rtt_us / self.rtt_us)
        alpha = max(_LEAST_ALPHA, estimate * _ALPHA)
        step = max(1.0, estimate * _STEP)
        if queued > max(_LEAST_BETA, estimate * _BETA):
            self._phase = _Phase.STEADY
            return estimate - step
        if queued >= alpha:
            self._phase = _Phase.STEADY
            return estimate
        if self._peak * 2 <= estimate:  # clients use at most half of the limit, so a higher one would have no effect
            return estimate
        return estimate * _SLOW_START if self._phase is _Phase.SLOW_START else estimate + step

    def _drain(self, in_flight: int, now_ms: int) -> None:
        """Ignore a response while requests from before the limit was halved are still in flight.

        After the last of these responses, begin to measure B.
        """
        if in_flight <= self.limit:
            self._to_skip -= 1
        if self._to_skip <= 0:
            self._begin(_Phase.PROBING, self.limit, now_ms)
        elif now_ms - self._phase_since_ms > _LONGEST_PROBE_MS:
            self._end_probe(now_ms)

    def _end_probe(self, now_ms: int) -> None:
        if self._count >= _FEWEST_PROBE_SAMPLES:
            self._probes += 1
            weight = max(1 / self._probes, _LEAST_PROBE_WEIGHT)
            self.base_rtt_us += (self._sum_us / self._count - self.base_rtt_us) * weight
        self._probe_interval_ms = min(self._probe_interval_ms * 2, _PROBE_EVERY_MS)
        self._next_probe_ms = now_ms + self._probe_interval_ms
        self._begin(_Phase.STEADY, self._estimate, now_ms)

    def _begin(self, phase: _Phase, limit: float, now_ms: int) -> None:
        self._phase = phase
        self._phase_since_ms = now_ms
        self.limit = max(self.minimum, int(limit))
        self._to_skip = self.limit
        self._count = self._sum_us = self._peak = 0


Limit: TypeAlias = FixedLimit | VegasLimit
