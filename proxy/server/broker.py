"""Defines a broker with the quotas of its clients, and an upstream: one address at which the proxy reaches a broker."""

from collections.abc import Callable

from kafka_quota_proxy.config.model import Address, Shaping
from kafka_quota_proxy.proxy.quota.address_limits import canonical
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.request_time import ServiceClock
from kafka_quota_proxy.proxy.replication.throttle import Leader
from kafka_quota_proxy.proxy.server.broker_identity import NOWHERE, BrokerIdentity, UpstreamLocation
from kafka_quota_proxy.proxy.server.broker_queue import BrokerQueue
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext


class Broker:
    """Holds what all upstreams of one broker share: quotas, fair call queue, service time, and replication limit."""

    __slots__ = ("leader", "queue", "quotas", "service")

    def __init__(self, quotas: BrokerQuotas, leader: Leader | None = None) -> None:
        self.quotas = quotas
        self.service = ServiceClock()
        self.leader = leader  # the limit on what followers fetch from this broker
        self.queue: BrokerQueue | None = None  # None if no listener has ever had a queue

    def absorb(self, other: "Broker", *, now_ms: int) -> None:
        """Add the usage that ``other`` has counted, which was found to represent the same broker."""
        self.quotas.absorb(other.quotas, now_ms=now_ms)
        if self.leader is None:
            self.leader = other.leader
        elif other.leader is not None:
            self.leader.absorb(other.leader, now_ms=now_ms)
        if self.queue is None:
            self.queue = other.queue
        elif other.queue is not None:
            self.queue.absorb(other.queue)


class Upstream:
    """An address that leads to a broker. The address may change, because a broker of a cluster may move.

    ``make`` creates a ``Broker``, which all upstreams of the same broker share. ``tls`` is the TLS context for
    connections to the broker, or None for plaintext. ``shaping`` is the method by which rates are measured, or None for
    the method that the configuration sets for all listeners. A bootstrap server (``is_bootstrap``) stands in for
    brokers that are not known yet.
    """

    __slots__ = (
        "address",
        "broker",
        "failures",
        "identity",
        "is_bootstrap",
        "is_reachable",
        "last_warning_s",
        "make",
        "peers",
        "shaping",
        "tls",
    )

    def __init__(
        self,
        address: Address,
        make: Callable[[], Broker],
        *,
        tls: TlsContext | None = None,
        shaping: Shaping | None = None,
        is_bootstrap: bool = False,
    ) -> None:
        self.address = address
        self.make = make
        self.tls = tls
        self.shaping = shaping
        self.is_bootstrap = is_bootstrap
        self.broker = make()
        self.identity: BrokerIdentity | None = None
        self.peers = NOWHERE
        self.is_reachable = False
        self.failures = 0
        self.last_warning_s = float("-inf")

    @property
    def quotas(self) -> BrokerQuotas:
        """The quotas of the broker's clients."""
        return self.broker.quotas

    @property
    def location(self) -> UpstreamLocation:
        """What is known about the broker: its identity, and the addresses at which it was reached."""
        return UpstreamLocation(self.address, self.peers, self.identity)


def local_address(source: str | None) -> tuple[str, int] | None:
    """Return the ``local_addr`` for asyncio to dial from ``source`` and any port; None if ``source`` is None."""
    return None if source is None else (source, 0)


def numeric(name: tuple[object, ...] | None) -> Address | None:
    """Return a socket name, such as from ``getpeername``, as an ``Address``; None if the socket is closed."""
    return None if not name else Address(host=canonical(str(name[0])), port=int(str(name[1])))
