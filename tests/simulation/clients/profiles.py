"""How the client libraries behave: time-outs, retries, versions, and whether they heed throttle times."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# The manner of an adversary, see ``adversary``.
HARM: Final = "harm"

# By the key of each API: from this version on the broker answers at once and leaves the waiting to the client
# (KIP-219). Of an API that is not here, all versions are.
_CLIENT_WAITS_FROM: Final[dict[int, int]] = {
    0: 6, 1: 8, 2: 3, 3: 6, 8: 4, 9: 4, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 18: 2, 19: 3, 20: 2, 22: 1, 37: 1,
}  # fmt: skip


def client_waits(api_key: int, api_version: int) -> bool:
    """Return whether a client that heeds throttle times waits after a response of this version."""
    return api_version >= _CLIENT_WAITS_FROM.get(api_key, 0)


class Profile(NamedTuple):
    """One client library with its defaults. Times are ms.

    Attributes:
        versions: The newest version that it speaks of each API, by its key.
        asks_versions: Whether it begins each connection with ApiVersions.
        heeds_throttle: Whether it sends nothing on a connection for the throttle time of a response.
        delivery_timeout_ms: How long a record may wait and be retried before it fails for good.
        most_in_flight: Produce requests without a response on one connection.
        most_in_flight_idempotent: The same for an idempotent producer.
        has_fetch_sessions: Whether it fetches with incremental sessions.
        shares_coordinator: Whether it sends heartbeats on the connection that it has for data.
    """

    name: str
    versions: "Mapping[int, int]"
    asks_versions: bool = True
    heeds_throttle: bool = False
    request_timeout_ms: float = 30_000
    delivery_timeout_ms: float = 120_000
    connect_timeout_ms: float = 10_000
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1_000
    metadata_age_ms: float = 300_000
    most_in_flight: int = 5
    most_in_flight_idempotent: int = 5
    has_fetch_sessions: bool = True
    shares_coordinator: bool = False
    fetch_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    partition_max_bytes: int = 1_048_576


_JAVA_VERSIONS: Final = {
    0: 13, 1: 17, 2: 10, 3: 13, 8: 9, 9: 9, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 17: 1, 18: 4, 19: 7, 20: 6, 22: 5,
    36: 2, 37: 3, 48: 1, 49: 1, 76: 1, 78: 2, 79: 2,
}  # fmt: skip
_LIBRDKAFKA_VERSIONS: Final = _JAVA_VERSIONS | {
    0: 10, 1: 16, 2: 7, 3: 12, 10: 2, 11: 5, 12: 3, 13: 1, 14: 3, 18: 3, 19: 4, 20: 1, 22: 4, 37: 0, 36: 1,
}  # fmt: skip
_AIOKAFKA_VERSIONS: Final = _JAVA_VERSIONS | {
    0: 8, 1: 11, 2: 3, 3: 5, 8: 3, 9: 3, 10: 1, 11: 5, 12: 1, 13: 1, 14: 3, 18: 2, 19: 3, 20: 3, 22: 0, 36: 1, 37: 1,
    48: 0, 49: 0,
}  # fmt: skip
# The last client of before KIP-219, of Kafka 1.1.
_OLD_VERSIONS: Final = {
    0: 5, 1: 7, 2: 2, 3: 5, 8: 3, 9: 3, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 17: 1, 18: 1, 19: 2, 20: 1, 22: 0, 36: 0,
    37: 0, 48: 0, 49: 0, 76: 1, 78: 1, 79: 1,
}  # fmt: skip

JAVA: Final = Profile("Java", MappingProxyType(_JAVA_VERSIONS), heeds_throttle=True)
# It reports throttle times to the application, but sends on.
LIBRDKAFKA: Final = Profile(
    "librdkafka",
    MappingProxyType(_LIBRDKAFKA_VERSIONS),
    request_timeout_ms=60_000,
    delivery_timeout_ms=300_000,
    connect_timeout_ms=30_000,
    reconnect_backoff_ms=100,
    reconnect_backoff_max_ms=10_000,
    most_in_flight=1_000,
    has_fetch_sessions=False,
)
# One Produce request at a time to each broker. It knows throttle times from its schemas alone.
AIOKAFKA: Final = Profile(
    "aiokafka",
    MappingProxyType(_AIOKAFKA_VERSIONS),
    request_timeout_ms=40_000,
    delivery_timeout_ms=40_000,
    connect_timeout_ms=40_000,
    reconnect_backoff_ms=100,
    reconnect_backoff_max_ms=100,
    retry_backoff_max_ms=100,
    most_in_flight=1,
    most_in_flight_idempotent=1,
    has_fetch_sessions=False,
)
FRANZ_GO: Final = Profile(
    "franz-go",
    MappingProxyType(_JAVA_VERSIONS),
    heeds_throttle=True,
    request_timeout_ms=20_000,
    delivery_timeout_ms=300_000,
    reconnect_backoff_ms=250,
    reconnect_backoff_max_ms=2_500,
    retry_backoff_ms=250,
    retry_backoff_max_ms=2_500,
    most_in_flight=1,
    fetch_wait_ms=5_000,
)
OLD: Final = Profile("old", MappingProxyType(_OLD_VERSIONS), reconnect_backoff_max_ms=50, retry_backoff_max_ms=100)
# Knows its versions without asking, waits for nothing, and comes back at once.
RUDE: Final = Profile(
    "rude",
    MappingProxyType(_OLD_VERSIONS | {0: 7, 1: 11}),
    asks_versions=False,
    request_timeout_ms=5_000,
    delivery_timeout_ms=30_000,
    reconnect_backoff_ms=1,
    reconnect_backoff_max_ms=20,
    retry_backoff_ms=1,
    retry_backoff_max_ms=20,
    most_in_flight=64,
    has_fetch_sessions=False,
    fetch_wait_ms=0,
    shares_coordinator=True,
)
# A script with a new library, which asks for nothing first, not even for metadata.
HASTY: Final = RUDE._replace(
    name="hasty", versions=JAVA.versions, request_timeout_ms=400, reconnect_backoff_ms=50,
    reconnect_backoff_max_ms=200, retry_backoff_ms=50, retry_backoff_max_ms=200,
)  # fmt: skip
PROFILES: Final = (JAVA, LIBRDKAFKA, AIOKAFKA, FRANZ_GO, OLD, RUDE)


class Habits(NamedTuple):
    """What one client does to its connections. Each is a chance from 0 to 1.

    Attributes:
        splits: That a request is written in several pieces at once.
        dribbles: That a request is written in pieces over seconds.
        stalls: That a request stops in the middle, for ever.
        stalls_from_bytes: The size of the smallest requests that stop.
        stalls_ms: After what time a connection with such a request ends.
        resets: That a request ends with a reset: in its middle, or while the response is on its way.
        reads_slowly: That a new connection pauses after each read.
        is_deaf: That a new connection stops to read at some byte, for ever.
        half_closes: That an orderly end closes the sending side first, and then waits for the responses. Who stops to
            read does so as well.
        deaf_after_bytes: The bytes at one of which a deaf connection stops to read.
    """

    splits: float = 0.0
    dribbles: float = 0.0
    stalls: float = 0.0
    resets: float = 0.0
    reads_slowly: float = 0.0
    is_deaf: float = 0.0
    half_closes: float = 0.0
    stalls_from_bytes: int = 0
    stalls_ms: float = 100_000.0  # later than the time-out of any request that waits for a response
    deaf_after_bytes: tuple[int, ...] = (0, 3, 40, 400, 4_000, 100_000)


HEALTHY: Final = Habits()
CLUMSY: Final = Habits(splits=0.3, dribbles=0.02, reads_slowly=0.2, half_closes=0.5)
# Hangs in the middle of what it reads, such as a process that is stopped in a debugger.
DEAF: Final = Habits(reads_slowly=0.3, is_deaf=0.6, half_closes=0.7, deaf_after_bytes=(2_000, 4_000, 100_000))
BROKEN: Final = Habits(
    splits=0.3, dribbles=0.05, stalls=0.01, resets=0.1, reads_slowly=0.3, is_deaf=0.03, half_closes=0.5
)
# Stops in the middle of what it sends.
STALLING: Final = BROKEN._replace(stalls=0.1, resets=0.0)
# Stops in the middle of each large request.
HALTING: Final = Habits(stalls=1.0, stalls_from_bytes=100_000, stalls_ms=40_000.0)
