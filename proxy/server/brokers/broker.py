"""Defines a broker with the quotas of its clients, and an upstream: one address at which the proxy reaches a broker."""

import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from kafka_quota_proxy.config.addresses import canonical, same_spelling
from kafka_quota_proxy.config.model import Address, Shaping
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.request_time import ServiceClock
from kafka_quota_proxy.proxy.replication.throttle import Leader
from kafka_quota_proxy.proxy.server.brokers.faults import NOT_TRIED, Fault
from kafka_quota_proxy.proxy.server.brokers.identity import BrokerIdentity
from kafka_quota_proxy.proxy.server.brokers.queue import BrokerQueue
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext

log = logging.getLogger(__name__)

_WARN_EVERY_S: Final = 10.0


class Broker:
    """Holds what all upstreams of one broker share: quotas, fair call queue, service time, and replication limit."""

    __slots__ = ("identity", "leader", "queue", "quotas", "service")

    def __init__(self, quotas: BrokerQuotas, leader: Leader | None = None) -> None:
        self.quotas = quotas
        self.service = ServiceClock()
        self.leader = leader  # the limit on what followers fetch from this broker
        self.queue: BrokerQueue | None = None  # None if no listener has ever had a queue
        self.identity: BrokerIdentity | None = None  # None until a response of the broker has said who it is

    def join(self, unused: "Broker") -> None:
        """Also represent ``unused``, which turned out to be the same broker before any client was served."""
        if self.leader is None:
            self.leader = unused.leader
        elif unused.leader is not None:
            self.leader.join(unused.leader)


class Upstream:
    """An address that leads to a broker. The address may change, because a broker of a cluster may move.

    ``make`` creates a ``Broker``. ``tls`` is the TLS context for connections to the broker, or None for plaintext.
    ``shaping`` is the method by which rates are measured, or None for the method that the configuration sets for all
    listeners.

    ``broker`` is final once ``is_settled``, which is before the first client is served. ``peers`` contains the numeric
    addresses that connections have reached.

    ``fault`` says why the broker cannot be reached, and is None if it can. ``failures`` counts the attempts in a row
    that failed. ``bypass`` is the address of its own that the broker tells clients, or None.
    """

    __slots__ = (
        "_last_warning_s",
        "_logged",
        "address",
        "broker",
        "bypass",
        "failures",
        "fault",
        "is_settled",
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
    ) -> None:
        self.address = address
        self.tls = tls
        self.shaping = shaping
        self.broker = make()
        self.is_settled = False
        self.peers: frozenset[Address] = frozenset()
        self.fault: Fault | None = NOT_TRIED
        self.failures = 0
        self.bypass: Address | None = None
        self._last_warning_s = float("-inf")
        self._logged: set[str] = set()  # the reasons that the log has had since the broker was last reached

    @property
    def quotas(self) -> BrokerQuotas:
        """The quotas of the broker's clients."""
        return self.broker.quotas

    @property
    def is_reachable(self) -> bool:
        """Whether the last attempt to reach the broker succeeded."""
        return self.fault is None

    def reached(self) -> None:
        """Record that the broker answers."""
        self.failures = 0
        self.fault = None
        if self._logged:
            self._logged.clear()
            log.info("upstream %s can be reached again", self.address)

    def dialled(self) -> None:
        """Record that a client's connection to the broker was made, with TLS if it is configured."""
        self.failures = 0
        if self.fault is not None and not self.fault.is_behind_dial:
            self.reached()

    def failed(self, fault: Fault, *, is_probe: bool = False) -> None:
        """Record that the broker could not be reached, and log it once.

        A probe knows more than a client's dial, so what it has found stays until the next probe or success.
        """
        self.failures += 1
        if is_probe or self.fault is None or self.fault is NOT_TRIED:
            self.fault = fault
        reason, detail, _ = self.fault
        if reason not in self._logged and monotonic() - self._last_warning_s >= _WARN_EVERY_S:
            self._last_warning_s = monotonic()
            self._logged.add(reason)
            log.warning(
                "cannot reach upstream %s: %s", self.address, detail,
                extra={
                    "event": "upstream_unreachable", "upstream": str(self.address), "failures": self.failures,
                    "reason": reason, "detail": detail,
                },
            )  # fmt: skip

    def advertises(self, bypass: Address | None, binds: Iterable[Address]) -> None:
        """Record whether the broker sends clients past the proxy, and log it once. ``binds`` are the listeners' own."""
        if bypass is not None and bypass != self.bypass:
            log.warning(
                "clients are sent past the proxy, where no quota holds: the broker at %s advertises itself, %s. Let "
                "its advertised.listeners name the proxy (%s), or give the listener bootstrap_servers in place of "
                "upstream, so that the proxy rewrites addresses",
                self.address, bypass, ", ".join(sorted(map(str, binds))),
                extra={"event": "upstream_bypassed", "upstream": str(self.address), "advertises": str(bypass)},
            )  # fmt: skip
        self.bypass = bypass

    def move(self, address: Address) -> None:
        """Change the address, because the cluster has reported a new one for its broker."""
        self.address = address
        self.peers = frozenset()

    def led_to(self, peer: Address | None, *, is_back: bool = False) -> None:
        """Record the numeric address that a connection has reached; None if the connection is closed already.

        If ``is_back``, the broker was unreachable until now. Addresses recorded earlier are then forgotten, because
        another broker may have had them.
        """
        if peer is not None:
            self.peers = frozenset({peer}) if is_back else self.peers | {peer}

    @property
    def places(self) -> frozenset[Address]:
        """The configured address, and its numeric address if connections have reached only one."""
        written = same_spelling(self.address)
        return self.peers | {written} if len(self.peers) == 1 else frozenset({written})


def local_address(source: str | None) -> tuple[str, int] | None:
    """Return the ``local_addr`` for asyncio to dial from ``source`` and any port; None if ``source`` is None."""
    return None if source is None else (source, 0)


def numeric(name: tuple[object, ...] | None) -> Address | None:
    """Return a socket name, such as from ``getpeername``, as an ``Address``; None if the socket is closed."""
    return None if not name else Address(host=canonical(str(name[0])), port=int(str(name[1])))
