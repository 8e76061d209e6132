"""Followers that lag get the records of throttled partitions at the rate of the file, and not faster.

In any span of time they get less than the rate, a quarter of a second of it, and one response. So a bucket is kept for
each rate, as full as it can be. While it owes something, no fetch gets records of a partition that lags.

All numbers are taken from the frames that pass. Charges count from when the follower asks, because the proxy may set
bytes aside from then on, and for nobody before the proxy has passed them on. So this bucket never has less than the
real one.
"""

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tests.simulation.checks.replication import Bucket, FollowerCheck, Key, is_of_follower, told_by

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# What an idle limit saves up, in seconds of it.
_SAVED_S: Final = 0.25
# The proxy counts whole milliseconds, and a byte is a rounding error to it.
_ROUNDING_MS: Final = 2.0
_ROUNDING_BYTES: Final = 2.0
# A follower waits 30 s for a response. What has passed before is known by then.
_KNOWN_MS: Final = 40_000.0


class _Charge(NamedTuple):
    sent_ms: float
    passed_ms: float
    size_bytes: int


class _Level:
    """How many bytes one rate allows, at most. It is full at first."""

    __slots__ = ("_bytes", "_charges", "_most", "_ms", "_rate")

    def __init__(self, rate: float, now_ms: float) -> None:
        self._rate = rate
        self._most = self._bytes = rate * _SAVED_S
        self._ms = now_ms
        self._charges: list[_Charge] = []

    def charge(self, charge: _Charge) -> None:
        """Take bytes. Charges that are certainly followed by no earlier one are forgotten."""
        self._charges.append(charge)
        self._charges.sort()
        while self._charges and self._charges[0].passed_ms < charge.passed_ms - _KNOWN_MS:
            first = self._charges.pop(0)
            self._bytes = self._after(self._bytes, first.sent_ms - self._ms) - first.size_bytes
            self._ms = max(self._ms, first.sent_ms)

    def _after(self, level: float, time_ms: float) -> float:
        return min(self._most, level + self._rate * max(0.0, time_ms) / 1_000)

    def _at(self, at_ms: float) -> float:
        level, ms = self._bytes, self._ms
        for charge in self._charges:
            if charge.passed_ms < at_ms:
                level = self._after(level, charge.sent_ms - ms) - charge.size_bytes
                ms = max(ms, charge.sent_ms)
        return self._after(level, at_ms - ms)

    def best(self, from_ms: float, until_ms: float) -> float:
        """Return the most that the level was between two times."""
        times = [charge.passed_ms for charge in self._charges if from_ms <= charge.passed_ms < until_ms]
        return max(map(self._at, (*times, until_ms)))

    def owes(self, level: float) -> bool:
        """Return whether a level is certainly below nothing."""
        return level < -(_ROUNDING_BYTES + self._rate * _ROUNDING_MS / 1_000)


class ReplicationRates(FollowerCheck):
    """Keeps a level for each leader and each follower with a rate."""

    name: ClassVar[str] = "replication rates"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._levels: dict[Bucket, _Level] = {}

    def _begin(self) -> None:
        super()._begin()
        self._levels.clear()

    # -- what passes --

    def received(self, exchange: "Exchange") -> None:
        """Count the records that lag, and see whether their rates had room for them."""
        if not is_of_follower(exchange):
            return
        is_of_session = self._is_of_session(exchange)  # it is charged, and passes as a whole
        is_known = self._is_known(exchange) and self._limits.is_on and exchange.response is not None
        if is_known and exchange.response_of_broker is not None:
            brought = self._brought(exchange)
            for bucket, (size_bytes, key) in brought.items():
                if not is_of_session:
                    self._judge(exchange, bucket, size_bytes, key)
            for bucket, (size_bytes, _) in brought.items():
                charge = _Charge(exchange.sent_ms, exchange.passed_ms, size_bytes)
                self._level(bucket).charge(charge)

    def _level(self, bucket: Bucket) -> _Level:
        level = self._levels.get(bucket)
        if level is None:
            level = self._levels[bucket] = _Level(self._limits.rates[bucket.side], self._since_ms)
        return level

    def _brought(self, exchange: "Exchange") -> dict[Bucket, tuple[int, Key]]:
        """Return the bytes of records that count towards each rate, and one of their partitions."""
        assert exchange.response_of_broker is not None
        assert exchange.response is not None
        _, before = told_by(exchange.response_of_broker, exchange.api_version)
        _, after = told_by(exchange.response, exchange.api_version)
        brought: dict[Bucket, tuple[int, Key]] = {}
        for key, one in after.items():
            offset = exchange.detail.get(key, inf)
            if not one.records or key not in before or offset >= before[key].high_watermark:
                continue
            if isinstance(key[0], bytes) and self._limits.lists is not None:
                continue  # the proxy may not know yet which topic that is
            for bucket in self._buckets(exchange, key):
                brought[bucket] = (brought.get(bucket, (0, key))[0] + len(one.records), key)
        return brought

    def _judge(self, exchange: "Exchange", bucket: Bucket, size_bytes: int, key: Key) -> None:
        level = self._level(bucket)
        best = level.best(exchange.sent_ms, exchange.passed_ms)
        if level.owes(best):
            text = f"{exchange} brought {size_bytes} B of replicas that lag, such as {key}, and the rate of {bucket}"
            self.world.fail(self.name, f"{text}, {self._limits.rates[bucket.side]:.0f} B/s, owed {-best:.0f} B")
