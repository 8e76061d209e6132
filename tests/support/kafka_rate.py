"""Kafka's classes that measure rates, for tests that replay many requests. For others tests/oracles has Kafka's own.

They are literal translations of ``SampledStat``, ``WindowedSum``, ``Rate`` and ``TokenBucket`` of
org.apache.kafka.common.metrics.stats in Kafka 3.8 and later. Every number is a double and every step is in Kafka's
order, so that results can be compared with ``==``. Nothing is cached. tests/oracles/test_rates.py compares them with
Kafka's.
"""

from dataclasses import dataclass, field
from math import floor, inf

MAX_INT32 = 2**31 - 1


@dataclass(kw_only=True)
class MetricConfig:
    """The number of windows, their length and the quota.

    Each call is given a configuration. Another configuration does not change the samples recorded so far.
    """

    samples: int = 2
    window_ms: int = 30_000
    bound: float | None = None


@dataclass(kw_only=True)
class Slot:
    """The sum of one window of a ``SampledStat``."""

    start_ms: int
    last_event_ms: int
    value: float = 0.0

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.start_ms = now_ms
        self.last_event_ms = now_ms


@dataclass
class SampledStat:
    """A ring of slots. It has at most one slot more than the configuration has samples."""

    slots: list[Slot] = field(default_factory=list)
    current: int = 0

    def record(self, config: MetricConfig, value: float, now_ms: int) -> None:
        if not self.slots:
            self.slots.append(Slot(start_ms=now_ms, last_event_ms=now_ms))
        slot = self.slots[self.current]
        is_complete = now_ms - slot.start_ms >= config.window_ms
        if is_complete:
            self.current = (self.current + 1) % (config.samples + 1)
            if self.current >= len(self.slots):
                self.slots.append(Slot(start_ms=now_ms, last_event_ms=now_ms))
            else:
                self.slots[self.current].reset(now_ms)
            slot = self.slots[self.current]
        slot.value = slot.value + value
        slot.last_event_ms = now_ms

    def purge(self, config: MetricConfig, now_ms: int) -> None:
        for slot in self.slots:
            if now_ms - slot.last_event_ms >= config.samples * config.window_ms:
                slot.reset(now_ms)

    def oldest(self, now_ms: int) -> Slot:
        if not self.slots:
            self.slots.append(Slot(start_ms=now_ms, last_event_ms=now_ms))
        oldest = self.slots[0]
        for slot in self.slots:
            if slot.start_ms < oldest.start_ms:
                oldest = slot
        return oldest

    def measure_sum(self, config: MetricConfig, now_ms: int) -> float:
        self.purge(config, now_ms)
        total = 0.0
        for slot in self.slots:
            total = total + slot.value
        return total


@dataclass
class Rate:
    """The rate in units per second that client quotas use."""

    stat: SampledStat = field(default_factory=SampledStat)

    def record(self, config: MetricConfig, value: float, now_ms: int) -> None:
        self.stat.record(config, value, now_ms)

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        value = self.stat.measure_sum(config, now_ms)
        return value / (self.window_ms(config, now_ms) / 1000.0)

    def window_ms(self, config: MetricConfig, now_ms: int) -> int:
        self.stat.purge(config, now_ms)
        elapsed_ms = now_ms - self.stat.oldest(now_ms).start_ms
        full_windows = elapsed_ms // config.window_ms
        least_full_windows = config.samples - 1
        if full_windows < least_full_windows:
            elapsed_ms = elapsed_ms + (least_full_windows - full_windows) * config.window_ms
        return max(elapsed_ms, 1)


@dataclass
class TokenBucket:
    """The token bucket that controller mutation quotas use. ``tokens`` is the number of units that may pass.

    The bucket is full at first only because the first time since the Unix epoch is so large.
    """

    tokens: float = 0.0
    last_ms: int = 0

    def record(self, config: MetricConfig, value: float, now_ms: int) -> None:
        assert config.bound is not None
        self.refill(config, now_ms)
        self.tokens = min(self.burst(config), self.tokens - value)

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        assert config.bound is not None
        self.refill(config, now_ms)
        return self.tokens

    def refill(self, config: MetricConfig, now_ms: int) -> None:
        assert config.bound is not None
        elapsed_s = (now_ms - self.last_ms) / 1000.0
        self.tokens = min(self.burst(config), self.tokens + config.bound * elapsed_s)
        self.last_ms = now_ms

    def burst(self, config: MetricConfig) -> float:
        assert config.bound is not None
        return config.samples * (config.window_ms / 1000.0) * config.bound


def java_round(value: float) -> int:
    """Round as Java's ``Math.round`` does. A half is rounded up, also below 0."""
    return floor(value + 0.5)


def throttle_time_ms(rate: Rate, config: MetricConfig, now_ms: int) -> int:
    """Return the result of ``QuotaUtils.throttleTime``, but at most the largest int32, where Kafka overflows."""
    assert config.bound is not None
    difference = rate.measure(config, now_ms) - config.bound
    wait_ms = difference / config.bound * rate.window_ms(config, now_ms)
    return MAX_INT32 if wait_ms == inf else min(java_round(wait_ms), MAX_INT32)


def record_and_get_throttle_time_ms(rate: Rate, config: MetricConfig, value: float, now_ms: int) -> int:
    """Record a value and return the throttle time, as ``recordAndGetThrottleTimeMs`` does.

    The throttle time is 0 unless the rate exceeds the quota.
    """
    rate.record(config, value, now_ms)
    assert config.bound is not None
    is_violated = not rate.measure(config, now_ms) <= config.bound
    return throttle_time_ms(rate, config, now_ms) if is_violated else 0
