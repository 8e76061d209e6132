"""Defines the options of the demo, and computes its duration and the sizes of its records from them. Does no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.proxy.runtime.processes import ChildError

PRODUCER_CLIENT_ID: Final = "demo-producer"
CONSUMER_CLIENT_ID: Final = "demo-consumer"
PRODUCER_TOPIC: Final = "demo-produce"
CONSUMER_TOPIC: Final = "demo-fetch"

DEFAULT_PRODUCE_RATE: Final = 2 * 1024 * 1024
DEFAULT_FETCH_RATE: Final = 1024 * 1024
DEFAULT_SECONDS: Final = 12
# For how long the clients run without a limit at first. On a fast machine they move some hundred MiB in this time.
FREE_SECONDS: Final = 3
# Below the minimum, the few bytes around a record weigh as much as the record. Above the maximum, two busy cores need
# so long for a burst of eleven seconds' worth that no silence follows the burst.
MIN_RATE: Final = 16 * 1024
MAX_RATE: Final = 32 * 1024 * 1024
# With paced shaping, the first second carries a burst and says nothing about the rate.
MIN_SECONDS: Final = 3
MAX_SECONDS: Final = 3_600
# With sampled shaping, which uses Kafka's own windows, a burst is followed by silence until it has left the window. By
# Kafka's default settings such a cycle takes 11 to 12.5 s.
SAMPLED_SECONDS: Final = 15
# On a slow machine the burst takes longer. The demo waits at most this many seconds more for a whole cycle.
SAMPLED_PATIENCE_SECONDS: Final = 15

# The demo fails if a measured rate differs from its quota by more than this share of the quota.
TOLERANCE: Final = 0.05
# The number of requests per second when a client is at its quota. It is low enough that a client can send a burst of
# eleven seconds' worth in one second.
_REQUESTS_PER_SECOND: Final = 40
# Less than the 5 MiB that the mock cluster keeps per partition.
_PRELOAD_BYTES: Final = 4 * 1024 * 1024
_PRELOAD_RECORDS: Final = 400
# A fetch that is on its way when the limit comes into force counts towards it, so it must be small.
_FETCHES_PER_SECOND: Final = 4

Rule = Mapping[str, str | int]  # as in the section quotas of a configuration file


class DemoError(ChildError):
    """Raised if the demo cannot continue. The message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the demo that the user has chosen. Rates are in bytes per second."""

    produce_rate: int
    fetch_rate: int
    seconds: int
    shaping: Shaping

    @property
    def planned_seconds(self) -> int:
        """The duration under the quotas. With sampled shaping it is long enough for a cycle of burst and silence."""
        return max(self.seconds, SAMPLED_SECONDS) if self.shaping is Shaping.SAMPLED else self.seconds


def proxy_config(quotas: Sequence[Rule], shaping: Shaping, *, port: int, admin_port: int, upstream: str) -> str:
    """Return the text of a configuration file for the proxy. ``upstream`` is the address of the embedded broker.

    The text is JSON, which is valid YAML.
    """
    return json.dumps(
        {
            "listeners": [{"name": "demo", "bind": f"127.0.0.1:{port}", "upstream": upstream}],
            "shaping": shaping.value,
            "quotas": quotas,
            "admin": {"bind": f"127.0.0.1:{admin_port}"},
            # Through /testing the demo removes the quotas at first, and later restores them.
            "testing": True,
            # So that connections of the user's applications do not delay the end.
            "drain_timeout": "1s",
            # Warnings of the proxy would say that clients are throttled, which is the purpose of the demo.
            "log": {"level": "error"},
        }
    )


def record_bytes(rate: int, *, overhead_bytes: int) -> int:
    """Return the size of a record's value, so that 40 requests of one record use up what ``rate`` allows in a second.

    ``overhead_bytes`` is what Kafka charges for a request or response in addition to the value.
    """
    return max(rate // _REQUESTS_PER_SECOND - overhead_bytes, 1)


def max_fetch_bytes(rate: int) -> int:
    """Return the most bytes that a fetch of the consumer asks for, if its quota is ``rate``."""
    return max(rate // _FETCHES_PER_SECOND, 1)


def preload_records(value_bytes: int) -> int:
    """Return how many records with values of ``value_bytes`` the broker writes to the consumer's topic at its start.

    The number is limited, because the mock broker deletes old records of a large partition.
    """
    return max(1, min(_PRELOAD_RECORDS, _PRELOAD_BYTES // (value_bytes + 100)))
