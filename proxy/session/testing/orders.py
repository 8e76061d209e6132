"""Keeps the orders of a test: each has an exact effect on the next responses that match."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol import fetch_partitions
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.refusal_responses import REFUSABLE_APIS
from kafka_quota_proxy.protocol.response_topics import APIS_WITH_TOPICS, names_by_id, topics_of
from kafka_quota_proxy.protocol.throttle_time import has_throttle_time
from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.session.testing.effects import Effects
from kafka_quota_proxy.proxy.session.testing.observed import Observed

# Longer than any client waits for a response.
MAX_TIME_MS: Final = 3_600_000
MAX_COUNT: Final = 1_000_000
# A test has a few orders. The bound keeps a loop in a test from filling the memory.
MAX_ORDERS: Final = 1_000
_MAX_NAMES: Final = 100_000

_METADATA: Final = int(ApiKey.METADATA)
_FETCH: Final = int(ApiKey.FETCH)

# The APIs whose requests the proxy answers itself if an order has an error for them, so that the broker does nothing.
REFUSED_APIS: Final = REFUSABLE_APIS - {_FETCH}
# The APIs in whose responses an order can have an error.
APIS_WITH_ERRORS: Final = REFUSED_APIS | {_FETCH}


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
        effects: What it does to each of these responses.
        left: How many more responses it is for.
    """

    __slots__ = ("effects", "id", "left", "wanted")

    def __init__(self, order_id: int, wanted: Wanted, effects: Effects, count: int) -> None:
        self.id = order_id
        self.wanted = wanted
        self.effects = effects
        self.left = count

    def refuses(self, api_key: int) -> bool:
        """Return whether requests of this API are answered with an error in place of the broker."""
        return self.effects.error_code is not None and api_key in REFUSED_APIS

    def is_about(self, api_key: int, user: str, client_id: str) -> bool:
        """Return whether the order is for responses of this API to this client, whatever their topics are."""
        wanted = self.wanted
        return (
            wanted.api_key in (None, api_key) and wanted.user in (None, user) and wanted.client_id in (None, client_id)
        )


class TooManyOrdersError(Exception):
    """Raised for an order beyond ``MAX_ORDERS``."""


class OnDemandThrottles:
    """What a test has asked for, and what it can read of the responses. All connections of the proxy share it.

    ``unix_ms`` returns the time for ``observed``. ``close_later`` closes a connection after a time in milliseconds.
    """

    def __init__(
        self, unix_ms: Callable[[], int], close_later: Callable[[Waiter, int], None] = lambda _connection, _ms: None
    ) -> None:
        self.orders: dict[int, Order] = {}
        self.observed = Observed(unix_ms)
        self.close_later = close_later
        self._last_id = 0
        self._names: dict[bytes, bytes] = {}  # topic names by topic id

    def add(self, wanted: Wanted, effects: Effects, *, count: int) -> Order:
        """Have the effects on the next ``count`` responses that match. Orders for the same response act in turn.

        Raises:
            TooManyOrdersError: If there are ``MAX_ORDERS`` already.
        """
        if len(self.orders) >= MAX_ORDERS:
            raise TooManyOrdersError(f"there are {MAX_ORDERS} orders already; delete some, or reset")
        self._last_id += 1
        order = self.orders[self._last_id] = Order(self._last_id, wanted, effects, count)
        return order

    def remove(self, order_id: int) -> bool:
        """Remove an order, and return whether there was one. An order that is fulfilled is gone already."""
        return self.orders.pop(order_id, None) is not None

    def reset(self) -> None:
        """Remove all orders, and forget what was observed."""
        self.orders.clear()
        self.observed.clear()

    # -- requests --

    @property
    def refuses(self) -> bool:
        """Whether any request is to be answered with an error in place of the broker."""
        return any(order.effects.error_code is not None for order in self.orders.values())

    def refusal(self, api_key: int, *, user: str, client_id: str, topics: frozenset[bytes]) -> Order | None:
        """Return the first order that answers a request with an error in place of the broker, or None.

        ``topics`` contains the names or the 16-byte ids of the topics in the request.
        """
        for order in self.orders.values():
            if order.refuses(api_key) and order.is_about(api_key, user, client_id):
                topic = order.wanted.topic
                if topic is None or topics & self._keys(topic):
                    return order
        return None

    # -- responses --

    def reads_whole(self, api_key: int) -> bool:
        """Return whether responses of this API have to be read whole, because of the topics in them."""
        if api_key == _METADATA:
            return True
        return api_key in APIS_WITH_TOPICS and any(
            (order.wanted.topic is not None or order.effects.edits_fetch) and order.wanted.api_key in (None, api_key)
            for order in self.orders.values()
        )

    def learn_names(self, frame: bytes, api_version: int) -> None:
        """Learn the ids of topics from a whole Metadata response, because newer responses have no names of topics."""
        with suppress(ProtocolError):  # the client will find the fault
            self._names |= names_by_id(frame, api_version)
            while len(self._names) > _MAX_NAMES:
                del self._names[next(iter(self._names))]

    def take(self, api_key: int, api_version: int, *, user: str, client_id: str, frame: bytes) -> Effects | None:
        """Take a response off the first order that matches it. Call this once for each response of a broker.

        ``frame`` is the response from its size on. It has to be whole if ``reads_whole`` returns True for its API.

        Returns:
            The effects on the response, or None if no order is for it.
        """
        for order in self.orders.values():
            if not order.is_about(api_key, user, client_id):
                continue
            effects, topic = order.effects, order.wanted.topic
            if effects.throttle_time_ms is not None and not has_throttle_time(api_key, api_version):
                continue
            if topic is not None:
                effects = effects._replace(topics=self._keys(topic))
            if (topic is not None or effects.edits_fetch) and not _has_partition(effects, frame, api_key, api_version):
                continue
            self.fulfil(order)
            return effects
        return None

    def fulfil(self, order: Order) -> None:
        """Count a response off an order, and remove the order if it was the last."""
        order.left -= 1
        if not order.left:
            del self.orders[order.id]

    def _keys(self, topic: str) -> frozenset[bytes]:
        """Return what stands for a topic in requests and responses: its name, and its known ids."""
        name = topic.encode()
        return frozenset((name, *(topic_id for topic_id, known in self._names.items() if known == name)))


def _has_partition(effects: Effects, frame: bytes, api_key: int, api_version: int) -> bool:
    """Return whether a response has a partition that the effects are for. An effect on records needs records.

    An error is for partitions of Fetch only, because ``refusal`` answers the requests of other APIs.
    """
    if api_key not in APIS_WITH_TOPICS or api_version > HIGHEST_VERSION[api_key]:
        return False
    try:
        if api_key == _FETCH:
            return fetch_partitions.has_partition(frame, api_version, effects.topics, with_records=effects.is_empty)
        return not effects.edits_fetch and bool(topics_of(frame, api_key, api_version) & (effects.topics or set()))
    except ProtocolError:
        return False
