"""The options of the demo, and what follows from them: sizes of requests, duration. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.model import Shaping

PRODUCER_CLIENT_ID: Final = "demo-producer"
CONSUMER_CLIENT_ID: Final = "demo-consumer"
PRODUCER_TOPIC: Final = "demo-produce"
CONSUMER_TOPIC: Final = "demo-fetch"

# Below, the few bytes around a record weigh as much as the record; above, a burst of eleven seconds' worth takes two
# busy cores so long that no silence follows it.
MIN_RATE: Final = 16 * 1024
MAX_RATE: Final = 32 * 1024 * 1024
# Paced, the first second carries a burst and says nothing about the rate.
MIN_SECONDS: Final = 3
MAX_SECONDS: Final = 3_600
# Kafka's own windows: a burst, then silence until it has left the window, 11 to 12.5 s by Kafka's default settings.
SAMPLED_SECONDS: Final = 15
# On a slow machine the burst takes longer; after this many seconds more no cycle is expected.
SAMPLED_PATIENCE_SECONDS: Final = 15

# The promise of the demo: a measured rate further off its quota than this is a failure.
TOLERANCE: Final = 0.05
# At the quota. Fine enough for an even picture, coarse enough to send a burst of eleven seconds' worth in one.
_REQUESTS_PER_SECOND: Final = 40
# The mock keeps 5 MiB per partition.
_PRELOAD_BYTES: Final = 4 * 1024 * 1024
_PRELOAD_RECORDS: Final = 400


class DemoError(Exception):
    """The demo cannot continue; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options. Rates in bytes per second."""

    produce_rate: int
    fetch_rate: int
    seconds: int
    shaping: Shaping

    @property
    def planned_seconds(self) -> int:
        """The duration of the demo, which is long enough for a whole cycle of Kafka's windows."""
        return max(self.seconds, SAMPLED_SECONDS) if self.shaping is Shaping.SAMPLED else self.seconds


def record_bytes(rate: int, *, overhead_bytes: int) -> int:
    """Return the size of a record's value so that one request or response of one record has the right size."""
    return max(rate // _REQUESTS_PER_SECOND - overhead_bytes, 1)


def preload_records(value_bytes: int) -> int:
    """Return how many records of this size fit into a partition of the mock; the consumer reads them over and over."""
    return max(1, min(_PRELOAD_RECORDS, _PRELOAD_BYTES // (value_bytes + 100)))
