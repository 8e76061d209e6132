"""Keeps all upstreams, and assigns one set of quotas and one queue to all upstreams of the same broker.

The upstreams are grouped by broker (``broker_identity``) again whenever an upstream is added, moved or identified, or a
connection reaches a new address. If two brokers turn out to be one, their usage is added up. If an upstream turns out
to lead to another broker, the usage stays with the broker for which it was counted.
"""

import logging
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Final

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.broker_identity import BrokerIdentity, group_by_broker

log = logging.getLogger(__name__)

_ADVICE: Final = (
    ". If they are two clusters that were made with one cluster id, such as the default of the image apache/kafka, run "
    "a proxy of its own for each, or make one of them anew with another CLUSTER_ID; if not, ignore this"
)


class BrokerRegistry:
    """Assigns a ``Broker`` to each upstream, which is an address at which the proxy reaches a broker.

    ``on_moved`` is called with each upstream that is assigned to a different ``Broker`` later, and ``on_added`` with
    each upstream after it was added.
    """

    def __init__(self, on_moved: Callable[[Upstream], None], on_added: Callable[[Upstream], None]) -> None:
        self._on_moved = on_moved
        self._on_added = on_added
        self._upstreams: list[Upstream] = []
        self._logged: set[str] = set()
        self._doubtful: set[str] = set()  # the ids of clusters for which the log has a warning

    def __iter__(self) -> Iterator[Broker]:
        """Iterate over the brokers, each once."""
        return iter(dict.fromkeys(upstream.broker for upstream in self._upstreams))

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All addresses at which brokers are reached, in the order in which they were added."""
        return tuple(self._upstreams)

    def first(self, broker: Broker) -> Upstream:
        """Return the upstream of ``broker`` that was added first."""
        return next(upstream for upstream in self._upstreams if upstream.broker is broker)

    def add(self, upstream: Upstream) -> Upstream:
        """Add an address at which a broker is reached, assign a ``Broker`` to it, and return ``upstream``."""
        self._upstreams.append(upstream)
        self._regroup()
        self._on_added(upstream)
        return upstream

    def move(self, upstream: Upstream, address: Address) -> None:
        """Change the address at which a broker is reached, because the cluster has reported a new address for it."""
        upstream.address = address
        self._regroup()

    def identify(self, upstream: Upstream, identity: BrokerIdentity | None) -> None:
        """Record which broker is reached at an address. ``identity`` is None if this is no longer known."""
        if upstream.identity != identity:
            upstream.identity = identity
            self._regroup()

    def reached(self, upstream: Upstream, peer: Address | None, *, is_back: bool = False) -> None:
        """Record the numeric address that a connection has reached; None if the connection is closed already.

        If ``is_back``, the broker was unreachable until now. Addresses recorded earlier are then forgotten, because
        another broker may have had them.
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
                taken.add(before)  # absorb a broker once, however many upstreams it had
                broker.absorb(before, now_ms=monotonic_ns() // 1_000_000)
            broker.quotas.renew(beyond=before.quotas.generation)
            before.quotas.lines.wake_all()  # the woken requests wait in the lines of the new broker now
            upstream.broker = broker
            self._log(upstream, self.first(broker))
        for upstream, _, _ in moved:
            self._on_moved(upstream)

    def _log(self, upstream: Upstream, first: Upstream) -> None:
        """Log, only once, that two addresses lead to one broker, or one leads to another broker than before.

        If only the ids say that two addresses are one broker, these may be brokers of two clusters with one id, which
        images and examples set. Nothing in Kafka's protocol tells them apart, so each such id gets a warning.
        """
        known = upstream.identity or first.identity
        level, advice = logging.INFO, ""
        if upstream is first:
            news = f"{upstream.address} leads to another broker than assumed, {known or 'not known which'}"
        elif upstream.address != first.address:
            which = f", {known}" if known else ""
            news = f"{first.address} and {upstream.address} are one broker{which}: they share its quotas"
            is_by_id = upstream.identity is not None and upstream.identity == first.identity
            if is_by_id and known and first.location.places.isdisjoint(upstream.location.places):
                if known.cluster_id not in self._doubtful:
                    level, advice = logging.WARNING, _ADVICE
                self._doubtful.add(known.cluster_id)
        else:
            return
        if news not in self._logged:
            self._logged.add(news)
            log.log(level, "%s%s", news, advice)


def _assignment_order(members: list[Upstream]) -> tuple[bool, bool]:
    """Return a sort key that puts groups with an identified upstream first, and groups of bootstrap servers last."""
    return all(one.is_bootstrap for one in members), all(one.identity is None for one in members)
