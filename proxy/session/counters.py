"""The counters of one listener. They are plain integers that the metrics read."""

from dataclasses import dataclass, field
from typing import Final

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy

# A client may send any api_key, so the number of unknown APIs that are counted one by one is bounded.
_MAX_UNKNOWN: Final = 64
OTHER: Final = -1
# Bounds what is kept until the log takes it. A flood of client names must not fill the memory, nor keep the event loop
# from other work.
MAX_NEWLY_THROTTLED: Final = 2_000
MAX_HOSTS: Final = 16
# Results of logins.
ACCEPTED: Final = "accepted"
UNKNOWN_USER: Final = "unknown"  # accepted, but the proxy cannot read the user's name
FAILED: Final = "failed"


@dataclass(slots=True, eq=False, repr=False)
class RecentThrottles:
    """The throttles of one bucket since the log last took such throttles.

    Attributes:
        began_ms: The time of the first throttle.
        until_ms: The end of the last wait.
        waits_for: What the client that was throttled last waits for, or None if the limit is only observed.
        hosts: The addresses of the throttled clients, up to ``MAX_HOSTS`` of them.
    """

    began_ms: int
    until_ms: int = 0
    waits_for: BlockedBy | None = None
    hosts: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class Counters:
    """Counts requests, logins, protocol errors and disconnects, and collects what the log reports next.

    Attributes:
        frames: The number of requests by api_key.
        unknown_apis: The number of requests of an API or version that the proxy does not know, by api_key.
        protocol_errors: The number of protocol errors by reason.
        disconnects: The number of client connections that have ended, by cause.
        logins: The number of logins by mechanism and result.
        abandoned: The number of requests that were not forwarded, because their clients had gone while they waited.
        observed_connections: The number of connections that exceeded a limit on open connections, but were accepted
            because the limit is only observed.
        newly_throttled: The buckets that went over their limits since the log last took them, up to
            ``MAX_NEWLY_THROTTLED`` of them.
        newly_unknown: SASL mechanisms in which the broker accepted a login whose user name the proxy could not read.
            The log reports each mechanism once, and removes it from this set.
    """

    frames: list[int] = field(default_factory=lambda: [0] * (max(ApiKey) + 1))
    unknown_apis: dict[int, int] = field(default_factory=dict)
    protocol_errors: dict[str, int] = field(default_factory=dict)
    disconnects: dict[str, int] = field(default_factory=dict)
    logins: dict[tuple[str, str], int] = field(default_factory=dict)
    abandoned: int = 0
    observed_connections: int = 0
    newly_throttled: dict[Bucket, RecentThrottles] = field(default_factory=dict)
    newly_unknown: set[str] = field(default_factory=set)

    def frame(self, api_key: int, api_version: int) -> None:
        """Count one request by its API, and also as unknown if the proxy does not know the API or the version."""
        if api_key < len(self.frames):
            self.frames[api_key] += 1
        if api_version > HIGHEST_VERSION.get(api_key, -1):
            known = self.unknown_apis
            key = api_key if api_key in known or len(known) < _MAX_UNKNOWN else OTHER
            known[key] = known.get(key, 0) + 1

    def protocol_error(self, reason: str) -> None:
        """Count a connection that sent bytes that are not Kafka's protocol."""
        self.protocol_errors[reason] = self.protocol_errors.get(reason, 0) + 1

    def disconnect(self, cause: str) -> None:
        """Count the end of a client connection."""
        self.disconnects[cause] = self.disconnects.get(cause, 0) + 1

    def login(self, mechanism: str, result: str) -> None:
        """Count the result of a login."""
        seen = self.logins.get((mechanism, result), 0)
        self.logins[mechanism, result] = seen + 1
        if result == UNKNOWN_USER and not seen:
            self.newly_unknown.add(mechanism)

    def throttled(self, bucket: Bucket, host: str, wait_ms: int, waits_for: BlockedBy | None, *, now_ms: int) -> None:
        """Note for the log that a bucket is over its limit, so that the client at ``host`` waits ``wait_ms``.

        ``wait_ms`` is 0, and ``waits_for`` None, if the limit is only
        observed.
        """
        recent = self.newly_throttled.get(bucket)
        if recent is None:
            if len(self.newly_throttled) >= MAX_NEWLY_THROTTLED:
                return
            recent = self.newly_throttled[bucket] = RecentThrottles(now_ms)
        recent.until_ms = max(recent.until_ms, now_ms + wait_ms)
        recent.waits_for = waits_for
        if len(recent.hosts) < MAX_HOSTS:
            recent.hosts[host] = None
