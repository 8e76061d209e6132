"""One broker and the ways to it: what its clients have used of their quotas, where it is, and whether it answers."""

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
    """What all ways to one broker share: quotas, queue, service time, and the limit of its followers."""

    __slots__ = ("leader", "queue", "quotas", "service")

    def __init__(self, quotas: BrokerQuotas, leader: Leader | None = None) -> None:
        self.quotas = quotas
        self.service = ServiceClock()
        self.leader = leader  # as which followers see it
        self.queue: BrokerQueue | None = None  # the queue in front of it, if there ever was one

    def absorb(self, other: "Broker", *, now_ms: int) -> None:
        """Go on as both: ``other`` has turned out to be the same broker. Requests in flight there still end there."""
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
    """A way to a broker. ``address`` changes where a broker of a cluster comes back on another one.

    Args:
        address: As the file, or the cluster, writes it.
        make: Makes the broker at its end, for as long as no other way is known to lead there.
        tls: None: plaintext.
        shaping: Of the listener, where it has its own.
        is_bootstrap: It stands in for brokers that are not known yet.
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
        self.failures = 0  # dials that failed since the last that did not
        self.last_warning_s = float("-inf")

    @property
    def quotas(self) -> BrokerQuotas:
        """What the broker's clients have used of their quotas."""
        return self.broker.quotas

    @property
    def way(self) -> UpstreamLocation:
        """What is known of where it leads."""
        return UpstreamLocation(self.address, self.peers, self.identity)


def local_address(source: str | None) -> tuple[str, int] | None:
    """Return what ``create_connection`` takes as ``local_addr``; the port is the system's choice."""
    return None if source is None else (source, 0)


def numeric(name: tuple[object, ...] | None) -> Address | None:
    """Return the address that a socket has given for one of its ends; None: it has none any more."""
    return None if not name else Address(host=canonical(str(name[0])), port=int(str(name[1])))
