"""Keeps the orders of a test: each throttles the next responses that match by exactly its time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.response_topics import APIS_WITH_TOPICS, names_by_id, topics_of
from kafka_quota_proxy.protocol.throttle_time import has_throttle_time
from kafka_quota_proxy.proxy.session.testing.observed import Observed

# Longer than any client waits for a response.
MAX_TIME_MS: Final = 3_600_000
MAX_COUNT: Final = 1_000_000
# A test has a few orders. The bound keeps a loop in a test from filling the memory.
MAX_ORDERS: Final = 1_000
_MAX_NAMES: Final = 100_000


class Wanted(NamedTuple):
    """Which responses an order is for. None stands for any."""

    api_key: int | None = None
    user: str | None = None
    client_id: str | None = None
    topic: str | None = None


class Order:
    """An order for the next responses.

    Attributes:
        id: The number of the order, counted from 1.
        wanted: Which responses it is for.
        throttle_time_ms: The throttle time that each of these responses gets, in milliseconds.
        left: How many more responses it is for.
    """

    __slots__ = ("id", "left", "throttle_time_ms", "wanted")

    def __init__(self, order_id: int, wanted: Wanted, throttle_time_ms: int, count: int) -> None:
        self.id = order_id
        self.wanted = wanted
        self.throttle_time_ms = throttle_time_ms
        self.left = count


class TooManyOrdersError(Exception):
    """Raised for an order beyond ``MAX_ORDERS``."""


class OnDemandThrottles:
    """What a test has asked for, and what it can read of the responses. All connections of the proxy share it.

    ``unix_ms`` returns the time for ``observed``.
    """

    def __init__(self, unix_ms: Callable[[], int]) -> None:
        self.orders: dict[int, Order] = {}
        self.observed = Observed(unix_ms)
        self._last_id = 0
        self._names: dict[bytes, bytes] = {}  # topic names by topic id

    def add(self, wanted: Wanted, throttle_time_ms: int, *, count: int) -> Order:
        """Throttle the next ``count`` responses that match. Orders for the same response act in turn.

        Raises:
            TooManyOrdersError: If there are ``MAX_ORDERS`` already.
        """
        if len(self.orders) >= MAX_ORDERS:
            raise TooManyOrdersError(f"there are {MAX_ORDERS} orders already; delete some, or reset")
        self._last_id += 1
        order = self.orders[self._last_id] = Order(self._last_id, wanted, throttle_time_ms, count)
        return order

    def remove(self, order_id: int) -> bool:
        """Remove an order, and return whether there was one. An order that is fulfilled is gone already."""
        return self.orders.pop(order_id, None) is not None

    def reset(self) -> None:
        """Remove all orders, and forget what was observed."""
        self.orders.clear()
        self.observed.clear()

    def reads_whole(self, api_key: int) -> bool:
        """Return whether responses of this API have to be read whole, because of the topics in them."""
        if api_key == ApiKey.METADATA:
            return True
        return api_key in APIS_WITH_TOPICS and any(
            order.wanted.topic is not None and order.wanted.api_key in (None, api_key) for order in self.orders.values()
        )

    def learn_names(self, frame: bytes, api_version: int) -> None:
        """Learn the ids of topics from a whole Metadata response, because newer responses have no names of topics."""
        with suppress(ProtocolError):  # the client will find the fault
            self._names |= names_by_id(frame, api_version)
            while len(self._names) > _MAX_NAMES:
                del self._names[next(iter(self._names))]

    def take(self, api_key: int, api_version: int, *, user: str, client_id: str, frame: bytes) -> int | None:
        """Take a response off the first order that matches it. Call this once for each response of a broker.

        ``frame`` is the response from its size on. It has to be whole if ``reads_whole`` returns True for its API.

        Returns:
            The throttle time of the response in milliseconds, or None if no order is for it.
        """
        if not has_throttle_time(api_key, api_version):
            return None
        for order in self.orders.values():
            wanted = order.wanted
            if (
                wanted.api_key in (None, api_key)
                and wanted.user in (None, user)
                and wanted.client_id in (None, client_id)
                and (wanted.topic is None or self._has_topic(wanted.topic, frame, api_key, api_version))
            ):
                order.left -= 1
                if not order.left:
                    del self.orders[order.id]
                return order.throttle_time_ms
        return None

    def _has_topic(self, topic: str, frame: bytes, api_key: int, api_version: int) -> bool:
        """Return whether a response has partitions of a topic, which stand there under its name or one of its ids."""
        if api_key not in APIS_WITH_TOPICS or api_version > HIGHEST_VERSION[api_key]:
            return False
        name = topic.encode()
        with suppress(ProtocolError):
            return any(
                found == name or self._names.get(found) == name for found in topics_of(frame, api_key, api_version)
            )
        return False
