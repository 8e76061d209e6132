"""All ways to brokers, and which of them lead to one: that broker's quotas, queue and limits are there once.

News come one by one: a way is opened, a connection has led to an address, a broker has said of which cluster it is.
After each, the ways are put together anew (``same_broker``). What two sets of buckets have counted is added up
when they turn out to be one broker's, so that nobody has used less than before. A way that turns out to lead to another
broker leaves what was counted behind; the broker that it was taken for has it.
"""

import logging
from collections.abc import Callable, Iterator
from time import monotonic_ns

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.broker_identity import BrokerIdentity, group_by_broker

log = logging.getLogger(__name__)


class BrokerRegistry:
    """Finds the broker of each way.

    Args:
        on_moved: Told of each way whose broker is another object now.
    """

    def __init__(self, on_moved: Callable[[Upstream], None]) -> None:
        self._on_moved = on_moved
        self._upstreams: list[Upstream] = []
        self._said: set[str] = set()

    def __iter__(self) -> Iterator[Broker]:
        """Iterate over the brokers, each once."""
        return iter(dict.fromkeys(upstream.broker for upstream in self._upstreams))

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All ways, in the order in which they were added."""
        return tuple(self._upstreams)

    def first(self, broker: Broker) -> Upstream:
        """Return the way that was there first of those to a broker."""
        return next(upstream for upstream in self._upstreams if upstream.broker is broker)

    def add(self, upstream: Upstream) -> Upstream:
        """Take up a new way; return it."""
        self._upstreams.append(upstream)
        self._sort()
        return upstream

    def move(self, upstream: Upstream, address: Address) -> None:
        """Take it that the broker of this way is at another address."""
        upstream.address = address
        self._sort()

    def identify(self, upstream: Upstream, identity: BrokerIdentity | None) -> None:
        """Take it that this way leads to that broker; None: nobody knows any more."""
        if upstream.identity != identity:
            upstream.identity = identity
            self._sort()

    def reached(self, upstream: Upstream, peer: Address | None, *, is_back: bool = False) -> None:
        """Take it that a connection of this way has led to ``peer``.

        Args:
            upstream: The way.
            peer: The numeric address; None: the connection is gone already.
            is_back: The broker was away: what was there before may be another.
        """
        if peer is None:
            return
        peers = frozenset({peer}) if is_back else upstream.peers | {peer}
        if peers != upstream.peers:
            upstream.peers = peers
            self._sort()

    def _sort(self) -> None:
        upstreams, taken = self._upstreams, set[Broker]()
        found: list[tuple[Upstream, Broker]] = []
        together = [[upstreams[index] for index in group] for group in group_by_broker([one.way for one in upstreams])]
        for members in sorted(together, key=_comes_late):
            own = next((one.broker for one in members if one.broker not in taken), None)
            broker = members[0].make() if own is None else own
            taken.add(broker)
            found += ((one, broker) for one in members)
        moved = [(upstream, upstream.broker, broker) for upstream, broker in found if upstream.broker is not broker]
        for upstream, before, broker in moved:
            if before not in taken:
                taken.add(before)  # once, however many ways there were to it
                broker.absorb(before, now_ms=monotonic_ns() // 1_000_000)
            broker.quotas.renew(beyond=before.quotas.generation)
            before.quotas.lines.wake_all()  # to wait in the lines of the other
            upstream.broker = broker
            self._say(upstream, self.first(broker))
        for upstream, _, _ in moved:
            self._on_moved(upstream)

    def _say(self, upstream: Upstream, first: Upstream) -> None:
        """Say once which ways are one, and when one leads to another broker than was believed."""
        known = upstream.identity or first.identity
        if upstream is first:
            news = f"{upstream.address} leads to another broker than was believed, {known or 'not known which'}"
        elif upstream.address != first.address:
            which = f", {known}" if known else ""
            news = f"{first.address} and {upstream.address} are one broker{which}: each quota holds there once"
        else:
            return
        if news not in self._said:
            self._said.add(news)
            log.info("%s", news)


def _comes_late(members: list[Upstream]) -> tuple[bool, bool]:
    """Order those who part: who is known goes on with what was counted, and a bootstrap server does so last."""
    return all(one.is_bootstrap for one in members), all(one.identity is None for one in members)
