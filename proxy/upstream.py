"""One broker: where it is, what its clients have used of their quotas, and whether it could be reached."""

from config.model import Address
from proxy.call_desk import CallDesk
from proxy.quota.broker import BrokerQuotas
from proxy.replication.throttle import Leader
from proxy.service_time import ServiceClock
from proxy.tls import TlsContext


class Upstream:
    """A broker behind the proxy. ``address`` changes where a broker of a cluster comes back on another one."""

    __slots__ = ("address", "calls", "failures", "is_reachable", "last_warning_s", "leader", "quotas", "service", "tls")

    def __init__(
        self, address: Address, quotas: BrokerQuotas, tls: TlsContext | None = None, leader: Leader | None = None
    ) -> None:
        self.address = address
        self.tls = tls  # None: plaintext
        self.quotas = quotas
        self.service = ServiceClock()
        self.leader = leader  # as which followers see it
        self.calls: CallDesk | None = None  # the queue in front of it, if there ever was one
        self.is_reachable = False
        self.failures = 0  # dials that failed since the last that did not
        self.last_warning_s = float("-inf")


def local_address(source: str | None) -> tuple[str, int] | None:
    """Return what ``create_connection`` takes as ``local_addr``; the port is the system's choice."""
    return None if source is None else (source, 0)
