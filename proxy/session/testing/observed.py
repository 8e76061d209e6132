"""Keeps the clients that were seen and the throttled responses, for tests to read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas

# How many responses are kept. Older ones are forgotten.
MAX_OBSERVED: Final = 10_000
# How many clients are remembered. Later ones are not.
MAX_CLIENTS: Final = 100

ON_DEMAND: Final = "testing"
BY_QUOTA: Final = "quota"


class ThrottledResponse(NamedTuple):
    """A response with a throttle time.

    Attributes:
        time_ms: The Unix time at which the response began.
        api_key: The API of the request.
        api_version: The version of the request.
        user: The user of the connection.
        client_id: The client-id of the request.
        throttle_time_ms: The throttle time in the response, in milliseconds.
        size_bytes: The size of the request if it is a Produce, and otherwise of the response.
        reason: Whether a test asked for the response (``ON_DEMAND``), or a quota throttles it (``BY_QUOTA``).
        quotas: The quotas of the broker that has answered. They stand for it, because its node id may not be known yet.
    """

    time_ms: int
    api_key: int
    api_version: int
    user: str
    client_id: str
    throttle_time_ms: int
    size_bytes: int
    reason: str
    quotas: BrokerQuotas | None = None


class Observed:
    """The last throttled responses, the oldest first, and all clients. ``unix_ms`` returns the time.

    Attributes:
        clients: How many responses of each API a client has got, by user and client-id.
    """

    def __init__(self, unix_ms: Callable[[], int]) -> None:
        self._unix_ms = unix_ms
        self._responses: deque[ThrottledResponse] = deque(maxlen=MAX_OBSERVED)
        self.clients: dict[tuple[str, str], dict[int, int]] = {}

    def add(
        self,
        api_key: int,
        api_version: int,
        *,
        user: str,
        client_id: str,
        throttle_time_ms: int,
        size_bytes: int,
        reason: str,
        quotas: BrokerQuotas | None = None,
    ) -> None:
        """Add a response that begins now."""
        self._responses.append(
            ThrottledResponse(
                self._unix_ms(), api_key, api_version, user, client_id, throttle_time_ms, size_bytes, reason, quotas
            )
        )

    def see(self, api_key: int, *, user: str, client_id: str) -> None:
        """Count a response to a client."""
        client = user, client_id
        counts = self.clients.get(client)
        if counts is None:
            if len(self.clients) >= MAX_CLIENTS:
                return
            counts = self.clients[client] = {}
        counts[api_key] = counts.get(api_key, 0) + 1

    def find(self, client_id: str | None = None) -> Iterator[ThrottledResponse]:
        """Yield the responses to one client-id, or all."""
        return (one for one in tuple(self._responses) if client_id in (None, one.client_id))

    def clear(self) -> None:
        """Forget all responses and clients."""
        self._responses.clear()
        self.clients.clear()
