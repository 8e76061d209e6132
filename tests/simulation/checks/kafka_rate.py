"""Kafka's own arithmetic of a quota over sampled windows, written down once more (``SampledStat``, ``Rate``, 3.8)."""


class _Sample:
    """The sum of one window, and the times of its start and of its last record, in ms."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0


class KafkaRate:
    """The rate of one bucket over ``number`` windows of ``window_ms``."""

    __slots__ = ("_current", "_number", "_samples", "_window_ms")

    def __init__(self, number: int, window_ms: int) -> None:
        self._number = number
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, amount: int, now_ms: int) -> None:
        """Add an amount."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        if now_ms - samples[self._current].start_ms >= self._window_ms:
            self._current = (self._current + 1) % (self._number + 1)
            if self._current >= len(samples):
                samples.append(_Sample(now_ms))
            else:
                samples[self._current].reset(now_ms)
        samples[self._current].total += amount
        samples[self._current].last_ms = now_ms

    def throttle_ms(self, limit: float, now_ms: int) -> float:
        """Return for how long a client waits now, given the limit per second."""
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._number * self._window_ms:
                sample.reset(now_ms)
        elapsed_ms = now_ms - min((sample.start_ms for sample in self._samples), default=now_ms)
        full = elapsed_ms // self._window_ms
        if full < self._number - 1:
            elapsed_ms += (self._number - 1 - full) * self._window_ms
        return max(0.0, sum(sample.total for sample in self._samples) * 1_000 / limit - elapsed_ms)
