"""Limits how fast connections to one broker are created: Kafka's connection creation quotas (KIP-612).

A new connection is first recorded for the broker and its listener. If one of them is over its limit, the listener
pauses, which means that it stops accepting connections for a while. The new connection is served after the pause.

Then the connection is recorded for its IP address. If the address is over its limit, the connection is refused: it is
kept open for a while without being served, and then closed. A refused connection no longer counts in the rates of the
broker, the listener and the address.

The table of addresses is bounded (``quota.bucket_table``). It never evicts an address that is at its limit. If such
addresses fill the table, all addresses that are not in the table share one rate.

Source: ``ConnectionQuotas`` of kafka.network.SocketServer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_quota_proxy.config.addresses import canonical
from kafka_quota_proxy.config.model import Enforcement, Listener, ProxyConfig
from kafka_quota_proxy.proxy.quota.address_limits import UNLIMITED_RATE, AddressLimits
from kafka_quota_proxy.proxy.quota.bucket_table import BucketTable
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals
from kafka_quota_proxy.proxy.quota.rate import Rate
from kafka_quota_proxy.proxy.quota.throttle import throttle_time_ms

EXPIRES_AFTER_MS: Final = 3_600_000
_EXPIRY_SLICE: Final = 1_000
_SHARED: Final = Tags("", "<shared>")


@dataclass(slots=True, eq=False, repr=False)
class _AddressEntry:
    """The rate of connections from one IP address, as an entry of ``BucketTable`` with the tags ``("", address)``."""

    tags: Tags
    rate: Rate
    last_record_ms: int
    holders: int = 0
    is_in_use: bool = False
    is_listed: bool = False
    is_parked: bool = False


@dataclass(slots=True, eq=False, repr=False)
class ListenerQuota:
    """Counts the new connections to one broker through one listener, and applies the limits on their rate.

    Attributes:
        limit: The limit of the listener in connections per second.
        is_protected: Whether the broker's limit does not apply, because this is the inter-broker listener.
        observes: Whether limits are measured but not enforced.
        arrived: How many connections have arrived since the start.
        paused: How many connections made the listener pause.
        pause_time_ms: The total time of these pauses.
        refused: How many connections were refused because of the limit of their address.
        observed: How many connections enforcement would have delayed by a pause or refused.
        logged: The part of ``usage`` that the usage log has read.
    """

    name: str
    _broker: "ConnectionQuotas"
    limit: float = UNLIMITED_RATE
    is_protected: bool = False
    observes: bool = False
    arrived: int = 0
    paused: int = 0
    pause_time_ms: int = 0
    refused: int = 0
    observed: int = 0
    logged: UsageTotals = NO_USAGE
    rate: Rate = field(init=False)

    def __post_init__(self) -> None:
        self.rate = self._broker.new_rate()

    @property
    def usage(self) -> UsageTotals:
        """The totals since the start. Refused connections do not count in ``amount``."""
        return UsageTotals(
            amount=self.arrived - self.refused,
            requests=self.arrived,
            throttled_requests=self.paused + self.refused,
            throttle_time_ms=self.pause_time_ms,
            observed_throttled_requests=self.observed,
        )

    def configure(self, listener: Listener | None, enforcement: Enforcement) -> None:
        """Apply the settings of a listener, or remove its limits if ``listener`` is None."""
        own = listener.max_connection_creation_rate if listener else None
        self.limit = UNLIMITED_RATE if own is None else float(own)
        self.is_protected = listener is not None and listener.inter_broker
        self.observes = ((listener.enforcement if listener else None) or enforcement) is Enforcement.OBSERVE

    def record(self, *, now_ms: int) -> int:
        """Record a new connection.

        Return for how many ms the listener must stop accepting, or 0 if no limit is exceeded.

        Source: ``ConnectionQuotas.recordConnectionAndGetThrottleTimeMs``.
        """
        broker = self._broker
        self.arrived += 1
        pause_ms = broker.record(self.rate, self.limit, now_ms=now_ms)
        if not self.is_protected:
            pause_ms = max(pause_ms, broker.record(broker.rate, broker.limit, now_ms=now_ms))
        if not pause_ms:
            return 0
        if self.observes:
            self.observed += 1
            return 0
        self.paused += 1
        self.pause_time_ms += pause_ms
        return pause_ms

    def record_address(self, host: str, *, served_ms: int, now_ms: int) -> int:
        """Record a new connection for its IP address. If the address is over its limit, the connection is refused.

        Return 0 if the connection may be served. Otherwise, return for how many ms the caller must keep the refused
        connection open before closing it.

        ``served_ms`` is the time from which on the connection could be served: it has arrived, and the pause that it
        caused has ended. A refused connection is subtracted from the rates of the listener and the broker, but only
        within the length of one quota window after that time. In Kafka the address is known by then. If it is known
        later, the subtraction would affect the rates for much longer than the connection itself.

        Source: ``ConnectionQuotas.recordIpConnectionMaybeThrottle``.
        """
        broker = self._broker
        if not broker.limits_addresses:
            return 0
        keep_ms = broker.record_address(host, is_taken_back=not self.observes, now_ms=now_ms)
        if not keep_ms:
            return 0
        if self.observes:
            self.observed += 1
            return 0
        if now_ms - served_ms < broker.window_ms:
            self.rate.record(-1, now_ms=now_ms)
            if not self.is_protected:
                broker.rate.record(-1, now_ms=now_ms)
        self.refused += 1
        return keep_ms


class ConnectionQuotas:
    """The rates of new connections to one broker, and their limits: for the broker, its listeners and IP addresses.

    When limits change, the measured rates are kept. Several brokers may share ``limits``, which contains the limits of
    IP addresses.
    """

    def __init__(self, config: ProxyConfig, limits: AddressLimits | None = None) -> None:
        self._samples = config.kafka.quota_window_num
        self.window_ms = config.kafka.quota_window_size_seconds * 1_000
        self.rate = self.new_rate()
        self.limit: float = UNLIMITED_RATE
        self._listeners: dict[str, ListenerQuota] = {}
        self._addresses = BucketTable[_AddressEntry](
            config.max_buckets, owes_until_ms=self._owes_until_ms, is_named=self._is_named, on_removed=lambda _: None
        )
        self._shared: _AddressEntry | None = None
        self.overflows = 0  # how many connections came from addresses without a place in the table
        self.limits: Final = AddressLimits(config.ip_quotas) if limits is None else limits
        self._read(config)

    @property
    def listeners(self) -> tuple[ListenerQuota, ...]:
        """The counters and limits of all listeners in front of this broker."""
        return tuple(self._listeners.values())

    @property
    def addresses(self) -> int:
        """For how many IP addresses a rate is measured now."""
        return len(self._addresses)

    @property
    def evicted(self) -> int:
        """For how many IP addresses the measured rate was dropped to make room for other addresses."""
        return self._addresses.evicted

    @property
    def limits_addresses(self) -> bool:
        """Whether there is a limit on the new connections of any IP address."""
        return self.limits.has_any

    def configure(self, config: ProxyConfig) -> None:
        """Apply the limits of ``config`` on new connections, except the limits of IP addresses."""
        self._read(config)
        self._addresses.max_buckets = config.max_buckets
        for listener in self._listeners.values():
            listener.configure(self._by_name.get(listener.name), config.enforcement)

    def rules_changed(self, named: Mapping[str, bool]) -> None:
        """Apply changes of the limits of IP addresses. ``self.limits`` already contains them.

        ``named`` contains each address that gained a limit of its own, with the value True, or lost its own limit, with
        the value False.
        """
        self._addresses.count_named({Tags("", host): is_named for host, is_named in named.items()})

    def listener(self, name: str) -> ListenerQuota:
        """Return the counters and limits of the listener with this name. The first call creates them."""
        listener = self._listeners.get(name)
        if listener is None:
            listener = self._listeners[name] = ListenerQuota(name, self)
            listener.configure(self._by_name.get(name), self._enforcement)
        return listener

    def limit_of(self, host: str) -> float:
        """Return the limit of an address in connections per second, or ``UNLIMITED_RATE`` if it has no limit."""
        return self.limits.of(canonical(host))

    def expire_slices(self, *, now_ms: int) -> Iterator[None]:
        """Drop the measured rates of the IP addresses that created no connection for an hour, in slices.

        Yields after each slice, so that the event loop can run other tasks.
        """
        sources = list(self._addresses)
        for start in range(0, len(sources), _EXPIRY_SLICE):
            for source in sources[start : start + _EXPIRY_SLICE]:
                if now_ms - source.last_record_ms > EXPIRES_AFTER_MS and source.is_listed:
                    self._addresses.remove(source)
            self._addresses.recheck_parked(now_ms=now_ms, most=_EXPIRY_SLICE)
            yield

    def new_rate(self) -> Rate:
        """Return a new rate, which is measured over the windows of Kafka's settings."""
        return Rate(samples=self._samples, window_ms=self.window_ms)

    def record(self, rate: Rate, limit: float, *, now_ms: int) -> int:
        """Record a connection in ``rate``.

        Return the throttle time in ms, at most one window, or 0 within ``limit``.
        """
        rate.record(1, now_ms=now_ms)
        if limit >= UNLIMITED_RATE:
            return 0
        measured = rate.measure(now_ms=now_ms)
        if measured <= limit:
            return 0
        if limit <= 0:
            return self.window_ms
        wait_ms = throttle_time_ms(byte_rate=measured, byte_rate_limit=limit, window_ms=rate.window_ms(now_ms=now_ms))
        return min(wait_ms, self.window_ms)

    def record_address(self, host: str, *, is_taken_back: bool, now_ms: int) -> int:
        """Record a connection of an address. Return the throttle time in ms, at most one window, or 0 within the limit.

        If ``is_taken_back``, a connection over the limit does not count in the rate of the address, because the caller
        refuses it.
        """
        host = canonical(host)
        limit = self.limits.of(host)
        if limit >= UNLIMITED_RATE:
            return 0
        source = self._entry(Tags("", host), now_ms)
        source.last_record_ms = now_ms
        wait_ms = self.record(source.rate, limit, now_ms=now_ms)
        if wait_ms and is_taken_back:
            source.rate.record(-1, now_ms=now_ms)
        if source.is_listed:
            source.holders += 1
            self._addresses.release(source, now_ms=now_ms)  # makes the address the last one to be evicted
        return wait_ms

    def _read(self, config: ProxyConfig) -> None:
        self._by_name = {listener.name: listener for listener in config.listeners}
        self._enforcement = config.enforcement
        self.limit = float(config.kafka.max_connection_creation_rate)

    def _entry(self, tags: Tags, now_ms: int) -> _AddressEntry:
        source = self._addresses.get(tags)
        if source is not None:
            return source
        if self._is_named(tags) or self._addresses.make_room(now_ms=now_ms):
            source = _AddressEntry(tags, self.new_rate(), now_ms)
            self._addresses.add(source)
            return source
        self.overflows += 1
        if self._shared is None:
            self._shared = _AddressEntry(_SHARED, self.new_rate(), now_ms)
        return self._shared

    def _is_named(self, tags: Tags) -> bool:
        return tags.client_id in self.limits

    def _owes_until_ms(self, source: _AddressEntry, now_ms: int) -> float:
        limit = self.limits.of(source.tags.client_id)
        if limit >= UNLIMITED_RATE:
            return 0.0
        # A connection above this number is refused, however long the window is.
        room = limit * (self._samples - 1) * self.window_ms / 1_000
        return float(source.rate.over_until_ms(room - 1, now_ms=now_ms))
