"""All upstreams, and which of them lead to the same broker: each broker has one set of quotas and one queue.

Facts arrive one by one: an upstream is added, a connection reaches an address, a broker names its cluster. After each,
the upstreams are grouped again (``broker_identity``). When two brokers turn out to be one, their usage is added up, so
that no client has used less than before. When an upstream turns out to lead to another broker, the usage stays with the
broker that it was counted for.
"""

import logging
from collections.abc import Callable, Iterator
from time import monotonic_ns

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.broker_identity import BrokerIdentity, group_by_broker

log = logging.getLogger(__name__)


class BrokerRegistry:
    """Assigns a ``Broker`` to each upstream, and calls ``on_moved`` with each upstream whose broker has changed."""

    def __init__(self, on_moved: Callable[[Upstream], None]) -> None:
        self._on_moved = on_moved
        self._upstreams: list[Upstream] = []
        self._logged: set[str] = set()

    def __iter__(self) -> Iterator[Broker]:
        """Iterate over the brokers, each once."""
        return iter(dict.fromkeys(upstream.broker for upstream in self._upstreams))

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All upstreams, in the order in which they were added."""
        return tuple(self._upstreams)

    def first(self, broker: Broker) -> Upstream:
        """Return the upstream of a broker that was added first."""
        return next(upstream for upstream in self._upstreams if upstream.broker is broker)

    def add(self, upstream: Upstream) -> Upstream:
        """Add an upstream; return it."""
        self._upstreams.append(upstream)
        self._regroup()
        return upstream

    def move(self, upstream: Upstream, address: Address) -> None:
        """Change the address of an upstream."""
        upstream.address = address
        self._regroup()

    def identify(self, upstream: Upstream, identity: BrokerIdentity | None) -> None:
        """Set which broker an upstream leads to; None: it is no longer known."""
        if upstream.identity != identity:
            upstream.identity = identity
            self._regroup()

    def reached(self, upstream: Upstream, peer: Address | None, *, is_back: bool = False) -> None:
        """Note that a connection of an upstream has reached ``peer``, None: it is closed already.

        ``is_back``: the broker was unreachable before, so the addresses known so far may be another broker's.
        """
        if peer is None:
            return
        peers = frozenset({peer}) if is_back else upstream.peers | {peer}
        if peers != upstream.peers:
            upstream.peers = peers
            self._regroup()

    def _regroup(self) -> None:
        upstreams, taken = self._upstreams, set[Broker]()
        found: list[tuple[Upstream, Broker]] = []
        together = [
            [upstreams[index] for index in group] for group in group_by_broker([one.location for one in upstreams])
        ]
        for members in sorted(together, key=_assignment_order):
            own = next((one.broker for one in members if one.broker not in taken), None)
            broker = members[0].make() if own is None else own
            taken.add(broker)
            found += ((one, broker) for one in members)
        moved = [(upstream, upstream.broker, broker) for upstream, broker in found if upstream.broker is not broker]
        for upstream, before, broker in moved:
            if before not in taken:
                taken.add(before)  # absorb it once, however many upstreams it had
                broker.absorb(before, now_ms=monotonic_ns() // 1_000_000)
            broker.quotas.renew(beyond=before.quotas.generation)
            before.quotas.lines.wake_all()  # they wait in the lines of the other broker now
            upstream.broker = broker
            self._log(upstream, self.first(broker))
        for upstream, _, _ in moved:
            self._on_moved(upstream)

    def _log(self, upstream: Upstream, first: Upstream) -> None:
        """Log once that two upstreams are one broker, or that one leads to another broker than was assumed."""
        known = upstream.identity or first.identity
        if upstream is first:
            news = f"{upstream.address} leads to another broker than was assumed, {known or 'not known which'}"
        elif upstream.address != first.address:
            which = f", {known}" if known else ""
            news = f"{first.address} and {upstream.address} are one broker{which}: each quota holds there once"
        else:
            return
        if news not in self._logged:
            self._logged.add(news)
            log.info("%s", news)


def _assignment_order(members: list[Upstream]) -> tuple[bool, bool]:
    """Return the order in which groups keep their broker: identified upstreams first, bootstrap servers last."""
    return all(one.is_bootstrap for one in members), all(one.identity is None for one in members)
