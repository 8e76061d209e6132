"""Breaks of the arithmetic of quotas."""

# ruff: noqa: E501 - whole lines of the product are quoted

from typing import Final

from tests.simulation.bites.model import Break

_BUCKET: Final = "proxy/quota/bucket.py"
_LINE: Final = "proxy/quota/line.py"
_RATE: Final = "proxy/quota/rate.py"

QUOTA: Final = (
    Break(
        "A charge is not recorded in the rate",
        _BUCKET,
        "        rate.record(amount, now_ms=now_ms)\n        if self._tokens is not None and (",
        "        if self._tokens is not None and (",
    ),
    Break(
        "A bucket is silent for a hundredth of the wait",
        _BUCKET,
        "        self.silent_until_ms = max(self.silent_until_ms, now_ms + silent_ms)\n",
        "        self.silent_until_ms = max(self.silent_until_ms, now_ms + silent_ms // 100)\n",
    ),
    Break(
        "A bucket is silent ten times as long as it must",
        _BUCKET,
        "        self.silent_until_ms = max(self.silent_until_ms, now_ms + silent_ms)\n",
        "        self.silent_until_ms = max(self.silent_until_ms, now_ms + silent_ms * 10)\n",
    ),
    Break(
        "A reservation is not taken back",
        "proxy/quota/reserved_usage.py",
        "        self.in_flight -= amount\n        if self.in_flight and self.is_limited:\n",
        "        if self.in_flight and self.is_limited:\n",
    ),
    Break(
        "A merged bucket's charges go nowhere",
        _BUCKET,
        "        if self.absorbed_by is not None:\n            return self.absorbed_by.charge(amount, now_ms=now_ms)\n",
        "        if self.absorbed_by is not None:\n            return 0\n",
        why="Few worlds have a broker with two names. The proxy finds both names before clients use them.",
    ),
    Break(
        "A bucket forgets its debt when its limit changes",
        _BUCKET,
        "            self.silent_until_ms = now_ms + debt * 1_000 / limit if self.is_limited else 0.0\n",
        "            self.silent_until_ms = 0.0\n",
        theme="changed rules",
    ),
    Break(
        "A second debt is taken for the first",
        _BUCKET,
        "        if now_ms < self.silent_until_ms and self.kind in HAS_LINE:\n",
        "        if False:\n",
        why="It matters to sampled windows only. What the check of bounds allows them to forget is more than is lost.",
    ),
    Break(
        "A fetch that waits for data holds others back as if its broker had some",
        "proxy/quota/awaited_fetches.py",
        "            self._until_ms = now_ms + answer_ms\n",
        "            self._until_ms = now_ms + 10 * answer_ms\n",
        theme="full and idle topics",
    ),
    Break(
        "A client that leaves the line does not wake the next one",
        _LINE,
        "        if place.is_waiting:\n            self._stop_waiting(place)\n        self.wake_first()\n",
        "        if place.is_waiting:\n            self._stop_waiting(place)\n",
        why="The next client in the line has a timer, and goes on when it fires.",
        is_harmless=True,
    ),
    Break(
        "The last to come is the first in the line",
        _LINE,
        "        return self.rank < other.rank\n",
        "        return self.rank > other.rank\n",
    ),
    Break(
        "A place whose client was woken is never woken again",
        _LINE,
        "        place.is_woken = False\n        if place.is_waiting:\n            return\n",
        "        if place.is_waiting:\n            return\n",
        theme="many producers",
    ),
    Break(
        "The line of a removed bucket is kept",
        _LINE,
        "        if not self._waiting:\n            self._lines.discard(self)\n",
        "        if not self._waiting:\n            pass\n",
    ),
    Break(
        "A window counts for one window less",
        _RATE,
        "        self._span_ms = samples * window_ms\n",
        "        self._span_ms = (samples - 1) * window_ms\n",
    ),
    Break(
        "An old window is not purged",
        _RATE,
        "        self.total -= self._slots[at]\n        self._slots[at : at + _SLOT_LENGTH] = (0, now_ms, now_ms)\n",
        "        self._slots[at : at + _SLOT_LENGTH] = (0, now_ms, now_ms)\n",
    ),
    Break(
        "The tokens of an idle client grow without end",
        "proxy/quota/token_bucket.py",
        "        tokens = self._tokens + byte_rate_limit * ((now_ms - self._last_ms) / 1000)\n        if tokens > burst:\n            tokens = burst\n        tokens -= value\n        self._tokens = tokens if tokens < burst else burst\n",
        "        tokens = self._tokens + byte_rate_limit * ((now_ms - self._last_ms) / 1000)\n        self._tokens = tokens - value\n",
    ),
    Break(
        "A client waits half as long as its tokens are short",
        "proxy/quota/throttle.py",
        "    wait_ms = -tokens / byte_rate_limit * 1000\n",
        "    wait_ms = -tokens / byte_rate_limit * 500\n",
    ),
    Break(
        "The throttle formula divides by the rate, not by the limit",
        "proxy/quota/throttle.py",
        "    wait_ms = (byte_rate - byte_rate_limit) / byte_rate_limit * window_ms\n",
        "    wait_ms = (byte_rate - byte_rate_limit) / byte_rate * window_ms\n",
    ),
    Break(
        "A bucket that a connection holds may be evicted",
        "proxy/quota/bucket_table.py",
        "            if not bucket.holders and not self._park(bucket, now_ms):\n                self._unlist(bucket)\n",
        "            if not self._park(bucket, now_ms):\n                self._unlist(bucket)\n",
        why="The table of buckets would have to be full, and a connection would have to hold an idle bucket.",
    ),
    Break(
        "A released bucket is still held",
        "proxy/quota/bucket_table.py",
        "        bucket.holders -= 1\n",
        "",
    ),
    Break(
        "New rules are in force when a connection is opened, and not before",
        "proxy/quota/broker.py",
        "        if changed.tables:\n            self.renew()\n",
        "        if changed.tables:\n",
    ),
    Break(
        "A rule's own enforcement is ignored",
        "proxy/quota/client_quota_manager.py",
        "        bucket.enforcement = rule.enforcement if rule else None\n",
        "        bucket.enforcement = None\n",
        theme="changed rules",
    ),
    Break(
        "An open connection counts twice",
        "proxy/quota/open_connections.py",
        "        self._found[identity] = check.found\n        self._add(identity, 1)\n",
        "        self._found[identity] = check.found\n        self._add(identity, 2)\n",
    ),
    Break(
        "Open connections are not counted again under new rules",
        "proxy/quota/open_connections.py",
        "        self._charged_user = charged_user\n        self._recount()\n",
        "        self._charged_user = charged_user\n",
        why="New rules would have to limit clients that already have too many connections, and one more would have to be opened.",
    ),
    Break(
        "A replication quota gives back more than was reserved",
        "proxy/quota/replication.py",
        "        self._add(reserved_bytes - brought_bytes)\n",
        "        self._add(2 * reserved_bytes - brought_bytes)\n",
    ),
)
