"""The exact oracle of one bucket: what has passed, and what the quota has given by now.

The oracle keeps a *credit*, the bytes that may still pass. It grows at the rate in force up to a burst, and each byte
that passes takes from it. A request may begin whenever the credit is not negative, because a bucket out of debt serves
one request of any size. So "no request begins in debt" bounds the bytes of all windows at once: in any window of W
seconds at most rate * W + burst + one request pass.
"""

from typing import Final

from tests.simulation.checks.entities import Limit
from tests.simulation.checks.settings import Settings

# What the rounding of times to whole ms may be worth, in ms of the quota.
TOLERANCE_MS: Final = 3.0


class Flow:
    """The credit of one bucket.

    Sampled windows forget. The bytes of one window, N samples, are forgotten together, while clients pay for what the
    last request of the window was over the limit. So each window may bring one such request more. For requests that are
    small next to the quota that is nothing, and for large ones it is what Kafka's own formula gives. But it is never
    more than one more window: what is over the limit is a debt, which time pays, and nothing forgets.

    Attributes:
        credit: How many bytes may pass now.
        rate: The rate in force, or the larger of two during a change.
        burst: The most credit.
        most_fetched: What all fetches together may ask for at a time.
        largest: The largest request so far.
        at_ms: The time of ``credit``.
    """

    __slots__ = (
        "_charged_ms",
        "_forgets",
        "_owes_before",
        "_paid_ms",
        "_settings",
        "_soft_until_ms",
        "at_ms",
        "burst",
        "credit",
        "largest",
        "limit",
        "most_fetched",
        "rate",
    )

    def __init__(self, limit: Limit, settings: Settings, now_ms: float) -> None:
        self._settings = settings
        self._soft_until_ms = 0.0
        self._forgets = False
        self._owes_before = False
        self._paid_ms = 0.0  # when the debt of before the change is paid
        self.limit = limit
        self.largest = 0
        self.rate = limit.rate
        self.burst = self._burst_of(limit)
        self.most_fetched = self._most_fetched_of(limit)
        self.credit = self.burst
        self.at_ms = self._charged_ms = now_ms

    def _burst_of(self, limit: Limit) -> float:
        settings = self._settings
        if limit.shaping == "paced":
            return limit.rate * settings.burst_ms / 1_000
        # The samples that count, and the one that may be on its way out.
        return limit.rate * settings.window_ms / 1_000 * (settings.window_num + 1)

    def _most_fetched_of(self, limit: Limit) -> float:
        """Return what idle clients have saved up, or half of what the limit allows in the shortest window."""
        settings = self._settings
        if limit.shaping == "paced":
            return limit.rate * settings.burst_ms / 1_000
        return limit.rate * settings.window_ms * (settings.window_num - 1) / 2_000

    def change(self, limit: Limit, settings: Settings, now_ms: float, settle_ms: float, *, unsure: int = 0) -> None:
        """Apply another limit from now on. Until it has settled, the larger of the two holds.

        The proxy may never charge ``unsure`` of the bytes that have passed.
        """
        self.advance(now_ms)
        self._settings = settings
        before, burst = self.limit, self._burst_of(limit)
        # Kafka's token bucket gives what the limit of now is worth for all the time since the last charge. In that time
        # the limit of before may have given less than its rate, if the bucket was full.
        if limit.shaping == "paced" and limit.rate > self.rate:
            self.credit = min(max(burst, self.burst), self.credit + limit.rate * (now_ms - self._charged_ms) / 1_000)
        self.rate, self.burst = max(limit.rate, self.rate), max(burst, self.burst)
        # A higher limit gives its whole window, once the debt of before is paid. It may do so before it has settled.
        if self.is_known:
            self._paid_ms = now_ms + max(0.0, -self.credit - unsure) * 1_000 / self.rate
        self._forgets |= limit.shaping != before.shaping or limit.shaping == "sampled"
        self.most_fetched = max(self._most_fetched_of(limit), self.most_fetched)
        self.limit = limit
        self._soft_until_ms = now_ms + settle_ms

    def advance(self, now_ms: float) -> None:
        """Add what the quota has given since the last call."""
        if self._soft_until_ms and now_ms >= self._soft_until_ms:
            self._add(self._soft_until_ms)
            is_paid = self._paid_ms <= self._soft_until_ms
            self._soft_until_ms = 0.0
            self.rate, self.burst = self.limit.rate, self._burst_of(self.limit)
            self.most_fetched = self._most_fetched_of(self.limit)
            if self._forgets:
                self._forgets, self._owes_before = False, True
                self.credit = max(0.0, self.credit) if is_paid else self.credit
        self._add(now_ms)

    @property
    def is_known(self) -> bool:
        """Whether the credit says something. While windows change it does not."""
        return not (self._forgets and self._soft_until_ms)

    def _add(self, now_ms: float) -> None:
        rate = self.rate
        if self.limit.shaping == "sampled":
            forgotten = min(self.largest, self.burst)
            rate += forgotten * 1_000 / (self._settings.window_num * self._settings.window_ms)
        self.credit = min(self.burst, self.credit + rate * max(0.0, now_ms - self.at_ms) / 1_000)
        if self._owes_before and self.credit >= 0:
            self._owes_before, self.credit = False, self.burst
        self.at_ms = now_ms

    def take(self, amount: int, now_ms: float) -> None:
        """Let ``amount`` bytes pass now."""
        self.advance(now_ms)
        self.credit -= amount
        self.largest = max(self.largest, amount)

    def charged(self, at_ms: float) -> None:
        """Note that the proxy has charged what passed at ``at_ms``, or later."""
        self._charged_ms = max(self._charged_ms, at_ms)

    def give_back(self, amount: int, now_ms: float) -> None:
        """Take back bytes that were never charged."""
        self.advance(now_ms)
        self.credit = min(self.burst, self.credit + amount)

    @property
    def tolerance(self) -> float:
        """The bytes by which rounding may be wrong."""
        slack = self.largest if self.limit.shaping == "sampled" else 0
        return self.rate * TOLERANCE_MS / 1_000 + 2 + slack

    def debt(self, now_ms: float) -> float:
        """Return by how many bytes the bucket is over its limit now, at least 0."""
        self.advance(now_ms)
        return max(0.0, -self.credit - self.tolerance) if self.is_known else 0.0


class Suspicion:
    """A request that began in debt, unless enough of what was on its way then is never charged."""

    __slots__ = ("excess", "text", "waits_for")

    def __init__(self, excess: float, text: str, waits_for: set[int]) -> None:
        self.excess = excess
        self.text = text
        self.waits_for = waits_for
