"""How the client libraries behave: time-outs, retries, versions, and whether they heed throttle times."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
INIT_PRODUCER_ID: Final = 22
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
SHARE_GROUP_HEARTBEAT: Final = 76
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
# The manner of an adversary, see ``adversary``.
HARM: Final = "harm"

# From these versions on the broker answers at once and leaves the waiting to the client (KIP-219). Of an API that is
# not here, all versions are.
_CLIENT_WAITS_FROM: Final[dict[int, int]] = {
    PRODUCE: 6, FETCH: 8, LIST_OFFSETS: 3, METADATA: 6, OFFSET_COMMIT: 4, OFFSET_FETCH: 4, FIND_COORDINATOR: 2,
    JOIN_GROUP: 3, HEARTBEAT: 2, LEAVE_GROUP: 2, SYNC_GROUP: 2, API_VERSIONS: 2, CREATE_TOPICS: 3, DELETE_TOPICS: 2,
    INIT_PRODUCER_ID: 1, CREATE_PARTITIONS: 1,
}  # fmt: skip


def client_waits(api_key: int, api_version: int) -> bool:
    """Return whether a client that heeds throttle times waits after a response of this version."""
    return api_version >= _CLIENT_WAITS_FROM.get(api_key, 0)


class Profile(NamedTuple):
    """One client library with its defaults. Times are ms.

    Attributes:
        versions: The newest version that it speaks of each API.
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
    PRODUCE: 13, FETCH: 17, LIST_OFFSETS: 10, METADATA: 13, OFFSET_COMMIT: 9, OFFSET_FETCH: 9, FIND_COORDINATOR: 6,
    JOIN_GROUP: 9, HEARTBEAT: 4, LEAVE_GROUP: 5, SYNC_GROUP: 5, SASL_HANDSHAKE: 1, API_VERSIONS: 4, CREATE_TOPICS: 7,
    DELETE_TOPICS: 6, INIT_PRODUCER_ID: 5, SASL_AUTHENTICATE: 2, CREATE_PARTITIONS: 3, DESCRIBE_CLIENT_QUOTAS: 1,
    ALTER_CLIENT_QUOTAS: 1, SHARE_GROUP_HEARTBEAT: 1, SHARE_FETCH: 2, SHARE_ACKNOWLEDGE: 2,
}  # fmt: skip
_LIBRDKAFKA_VERSIONS: Final = _JAVA_VERSIONS | {
    PRODUCE: 10, FETCH: 16, LIST_OFFSETS: 7, METADATA: 12, FIND_COORDINATOR: 2, JOIN_GROUP: 5, HEARTBEAT: 3,
    LEAVE_GROUP: 1, SYNC_GROUP: 3, API_VERSIONS: 3, CREATE_TOPICS: 4, DELETE_TOPICS: 1, INIT_PRODUCER_ID: 4,
    CREATE_PARTITIONS: 0, SASL_AUTHENTICATE: 1,
}  # fmt: skip
_AIOKAFKA_VERSIONS: Final = _JAVA_VERSIONS | {
    PRODUCE: 8, FETCH: 11, LIST_OFFSETS: 3, METADATA: 5, OFFSET_COMMIT: 3, OFFSET_FETCH: 3, FIND_COORDINATOR: 1,
    JOIN_GROUP: 5, HEARTBEAT: 1, LEAVE_GROUP: 1, SYNC_GROUP: 3, API_VERSIONS: 2, CREATE_TOPICS: 3, DELETE_TOPICS: 3,
    INIT_PRODUCER_ID: 0, SASL_AUTHENTICATE: 1, CREATE_PARTITIONS: 1, DESCRIBE_CLIENT_QUOTAS: 0, ALTER_CLIENT_QUOTAS: 0,
}  # fmt: skip
# The last client of before KIP-219, of Kafka 1.1.
_OLD_VERSIONS: Final = {
    PRODUCE: 5, FETCH: 7, LIST_OFFSETS: 2, METADATA: 5, OFFSET_COMMIT: 3, OFFSET_FETCH: 3, FIND_COORDINATOR: 1,
    JOIN_GROUP: 2, HEARTBEAT: 1, LEAVE_GROUP: 1, SYNC_GROUP: 1, SASL_HANDSHAKE: 1, API_VERSIONS: 1, CREATE_TOPICS: 2,
    DELETE_TOPICS: 1, INIT_PRODUCER_ID: 0, SASL_AUTHENTICATE: 0, CREATE_PARTITIONS: 0, DESCRIBE_CLIENT_QUOTAS: 0,
    ALTER_CLIENT_QUOTAS: 0, SHARE_GROUP_HEARTBEAT: 1, SHARE_FETCH: 1, SHARE_ACKNOWLEDGE: 1,
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
    MappingProxyType(_OLD_VERSIONS | {PRODUCE: 7, FETCH: 11}),
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
