"""How fast connections may come: Kafka's quotas on their creation (KIP-612), for one broker.

Each connection is recorded for the broker and for its listener before anything else is asked of it. Where that goes
over a limit the listener's accepting pauses; the connection itself is served when the pause is over, and what comes
meanwhile waits in the system's backlog. Then it is recorded for its address. Where *that* goes over the limit the
connection is not wanted: it is taken back from all three, kept open unserved for a while, and closed.

Addresses are anybody's, so their number is bounded, as that of buckets is (``quota.bucket_table``): the one that has
been silent for the longest makes room, but for one from which the next connection would be refused, which stays until
its connections count no more. Where all places are taken by such, all addresses without one share one rate.

Source: ``ConnectionQuotas`` of kafka.network.SocketServer.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kafka_quota_proxy.config.model import Enforcement, Listener, ProxyConfig
from kafka_quota_proxy.proxy.quota.address_limits import UNLIMITED_RATE, AddressLimits, canonical
from kafka_quota_proxy.proxy.quota.bucket_table import BucketTable
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.rate import Average, Rate
from kafka_quota_proxy.proxy.quota.throttle import throttle_time_ms
from kafka_quota_proxy.proxy.quota.usage_totals import NO_USAGE, UsageTotals

EXPIRES_AFTER_MS: Final = 3_600_000
_EXPIRY_SLICE: Final = 1_000
_SHARED: Final = Tags("", "<shared>")


class _Source:
    """What came from one address. A entry of ``BucketTable``, which knows its name as a client-id's."""

    __slots__ = ("holders", "in_flight", "is_listed", "is_parked", "last_record_ms", "rate", "tags")

    def __init__(self, tags: Tags, rate: Rate, now_ms: int) -> None:
        self.tags = tags
        self.rate = rate
        self.last_record_ms = now_ms
        self.holders = 0
        self.in_flight = 0
        self.is_listed = False
        self.is_parked = False


class ListenerQuota:
    """The connections of one listener to one broker: what the listener, the broker and each address may have."""

    __slots__ = (
        "_broker",
        "address_throttle_time",
        "came",
        "limit",
        "logged",
        "name",
        "observed",
        "observes",
        "pause_time",
        "pause_time_ms",
        "paused",
        "protected",
        "rate",
        "refused",
    )

    def __init__(self, name: str, broker: "ConnectionQuotas") -> None:
        self.name = name
        self._broker = broker
        self.rate = broker.new_rate()
        self.limit: float = UNLIMITED_RATE  # connections per second
        self.protected = False  # the broker's own rate is not for it
        self.observes = False
        # What was counted since the start, and Kafka's averages of the last minute.
        self.came = 0
        self.paused = 0
        self.pause_time_ms = 0
        self.pause_time = Average()
        self.refused = 0
        self.address_throttle_time = Average()
        self.observed = 0  # what would have been one of the two
        self.logged = NO_USAGE  # for ``proxy.usage``

    @property
    def usage(self) -> UsageTotals:
        """What was counted since the start; the amount is without those that were refused."""
        return UsageTotals(
            amount=self.came - self.refused,
            requests=self.came,
            throttled_requests=self.paused + self.refused,
            throttle_time_ms=self.pause_time_ms,
            observed_throttled_requests=self.observed,
        )

    def absorb(self, other: "ListenerQuota", *, now_ms: int) -> None:
        """Count what ``other`` has counted, too: it has turned out to be this listener's, at the same broker."""
        self.rate.absorb(other.rate, now_ms=now_ms)
        for name in ("came", "paused", "pause_time_ms", "refused", "observed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.logged = self.logged.plus(other.logged)

    def come_to(self, broker: "ConnectionQuotas") -> None:
        """Belong to that broker from now on."""
        self._broker = broker

    def put_under(self, listener: Listener | None, enforcement: Enforcement) -> None:
        """Take limit and policy of a listener; None: of one that a new file no longer has."""
        own = listener.max_connection_creation_rate if listener else None
        self.limit = UNLIMITED_RATE if own is None else own
        self.protected = listener is not None and listener.inter_broker
        self.observes = ((listener.enforcement if listener else None) or enforcement) is Enforcement.OBSERVE

    def record(self, *, now_ms: int) -> int:
        """Record a connection; return for how long accepting is to pause, in ms; 0: not at all.

        Source: ``recordConnectionAndGetThrottleTimeMs``.
        """
        broker = self._broker
        self.came += 1
        pause_ms = broker.record(self.rate, self.limit, now_ms=now_ms)
        if not self.protected:
            pause_ms = max(pause_ms, broker.record(broker.rate, broker.limit, now_ms=now_ms))
        if not pause_ms:
            return 0
        if self.observes:
            self.observed += 1
            return 0
        self.paused += 1
        self.pause_time_ms += pause_ms
        self.pause_time.record(pause_ms, now_ms=now_ms)
        return pause_ms

    def record_address(self, host: str, *, came_ms: int, now_ms: int) -> int:
        """Record a connection for its address; return how long it is to be kept unserved, in ms; 0: it is welcome.

        Args:
            host: where it comes from.
            came_ms: when it was recorded for listener and broker. What is older than a window is not taken back there:
                it would be a credit for longer than it counts.
            now_ms: the time.

        Source: ``recordIpConnectionMaybeThrottle``.
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
        if now_ms - came_ms < broker.window_ms:
            self.rate.record(-1, now_ms=now_ms)
            if not self.protected:
                broker.rate.record(-1, now_ms=now_ms)
        self.refused += 1
        self.address_throttle_time.record(keep_ms, now_ms=now_ms)
        return keep_ms


class ConnectionQuotas:
    """All listeners in front of one broker, and the addresses that connect to it.

    Limits change under the rates: samples stay, so a lower one holds at once and a higher one at the next connection.
    ``limits`` may be those of other brokers, too; if left out, they are those of ``config``, and this broker's own.
    """

    def __init__(self, config: ProxyConfig, limits: AddressLimits | None = None) -> None:
        self._samples = config.kafka.quota_window_num
        self.window_ms = config.kafka.quota_window_size_seconds * 1_000
        self.rate = self.new_rate()
        self.limit: float = UNLIMITED_RATE
        self._listeners: dict[str, ListenerQuota] = {}
        self._addresses = BucketTable[_Source](
            config.max_buckets, owes_until_ms=self._owes_until_ms, is_named=self._is_named, on_removed=lambda _: None
        )
        self._shared: _Source | None = None
        self.overflows = 0  # connections of addresses that found no place
        self.limits: Final = AddressLimits(config.ip_quotas) if limits is None else limits
        self._take(config)

    @property
    def listeners(self) -> tuple[ListenerQuota, ...]:
        """The listeners that have been asked for."""
        return tuple(self._listeners.values())

    @property
    def addresses(self) -> int:
        """How many addresses are remembered."""
        return len(self._addresses)

    @property
    def evicted(self) -> int:
        """How many addresses made room for others."""
        return self._addresses.evicted

    @property
    def limits_addresses(self) -> bool:
        """Whether any address has a limit."""
        return self.limits.has_any

    def follow(self, config: ProxyConfig) -> None:
        """Put the limits of ``config`` in force, but for those of addresses."""
        self._take(config)
        self._addresses.max_buckets = config.max_buckets
        for listener in self._listeners.values():
            listener.put_under(self._by_name.get(listener.name), config.enforcement)

    def follow_addresses(self, named: Mapping[str, bool] | None) -> None:
        """Take it that the limits of addresses have changed.

        Args:
            named: The addresses that a rule names now and did not, with True, and those that it names no longer, with
                False; None: any may be.
        """
        if named is None:
            self._addresses.recount_named(Tags("", host) for host in self.limits)
            return
        for host, is_named in named.items():
            self._addresses.count_named(Tags("", host), is_named=is_named)

    def absorb(self, other: "ConnectionQuotas", *, now_ms: int) -> None:
        """Go on as both: ``other`` has turned out to be the same broker's. It is not to be asked any more."""
        self.rate.absorb(other.rate, now_ms=now_ms)
        for listener in other.listeners:
            listener.come_to(self)  # an acceptor that has just asked for it is still to record its connection
            own = self._listeners.setdefault(listener.name, listener)
            if own is not listener:
                own.absorb(listener, now_ms=now_ms)
        for theirs in other._addresses:  # noqa: SLF001 - another one of the same class
            source = self._source(theirs.tags, now_ms)
            source.rate.absorb(theirs.rate, now_ms=now_ms)
            source.last_record_ms = max(source.last_record_ms, theirs.last_record_ms)
        shared = other._shared  # noqa: SLF001 - another one of the same class
        if self._shared is None:
            self._shared = shared
        elif shared is not None:
            self._shared.rate.absorb(shared.rate, now_ms=now_ms)
        self._addresses.evicted += other.evicted
        self.overflows += other.overflows

    def listener(self, name: str) -> ListenerQuota:
        """Return the quota of a listener at this broker."""
        listener = self._listeners.get(name)
        if listener is None:
            listener = self._listeners[name] = ListenerQuota(name, self)
            listener.put_under(self._by_name.get(name), self._enforcement)
        return listener

    def limit_of(self, host: str) -> float:
        """Return what an address may create, connections per second; ``UNLIMITED_RATE``: any number."""
        return self.limits.of(canonical(host))

    def rate_of(self, host: str, *, now_ms: int) -> float:
        """Return the rate of an address, connections per second. A pure read."""
        source = self._addresses.get(Tags("", canonical(host)))
        return 0.0 if source is None else source.rate.peek(now_ms=now_ms)

    def expire_slices(self, *, now_ms: int) -> Iterator[None]:
        """Forget addresses that were silent for an hour, a slice at a time."""
        sources = list(self._addresses)
        for start in range(0, len(sources), _EXPIRY_SLICE):
            for source in sources[start : start + _EXPIRY_SLICE]:
                if now_ms - source.last_record_ms > EXPIRES_AFTER_MS and source.is_listed:
                    self._addresses.remove(source)
            self._addresses.recheck_parked(now_ms=now_ms, most=_EXPIRY_SLICE)
            yield

    # -- of listeners --

    def new_rate(self) -> Rate:
        """Return a rate over Kafka's windows."""
        return Rate(samples=self._samples, window_ms=self.window_ms)

    def record(self, rate: Rate, limit: float, *, now_ms: int) -> int:
        """Record a connection in ``rate``; return how long it is over its limit, in ms, at most a window."""
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
        """Likewise for an address; what goes over the limit is taken back if so asked."""
        host = canonical(host)
        limit = self.limits.of(host)
        if limit >= UNLIMITED_RATE:
            return 0
        source = self._source(Tags("", host), now_ms)
        source.last_record_ms = now_ms
        wait_ms = self.record(source.rate, limit, now_ms=now_ms)
        if wait_ms and is_taken_back:
            source.rate.record(-1, now_ms=now_ms)
        if source.is_listed:
            source.holders += 1
            self._addresses.release(source, now_ms=now_ms)  # it was the last to be used
        return wait_ms

    # -- of addresses --

    def _take(self, config: ProxyConfig) -> None:
        self._by_name = {listener.name: listener for listener in config.listeners}
        self._enforcement = config.enforcement
        self.limit = config.kafka.max_connection_creation_rate

    def _source(self, tags: Tags, now_ms: int) -> _Source:
        source = self._addresses.get(tags)
        if source is not None:
            return source
        if self._is_named(tags) or self._addresses.make_room(now_ms=now_ms):
            source = _Source(tags, self.new_rate(), now_ms)
            self._addresses.add(source)
            return source
        self.overflows += 1
        if self._shared is None:
            self._shared = _Source(_SHARED, self.new_rate(), now_ms)
        return self._shared

    def _is_named(self, tags: Tags) -> bool:
        return tags.client_id in self.limits

    def _owes_until_ms(self, source: _Source, now_ms: int) -> float:
        limit = self.limits.of(source.tags.client_id)
        if limit >= UNLIMITED_RATE:
            return 0
        # One more than this is refused, whatever the window.
        room = limit * (self._samples - 1) * self.window_ms / 1_000
        return source.rate.over_until_ms(room - 1, now_ms=now_ms)
