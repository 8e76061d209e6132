"""Keeps all upstreams, and assigns one set of quotas and one queue to all upstreams of the same broker.

An upstream gets its set before its first client is served, and keeps it for as long as the proxy runs. So no usage ever
moves from one set to another. What is learned later is logged.
"""

import logging
from collections.abc import Callable
from typing import Final

from kafka_quota_proxy.proxy.server.brokers.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.brokers.identity import BrokerIdentity

log = logging.getLogger(__name__)

_ADVICE: Final = (
    ". If they are two clusters that were made with one cluster id, such as the default of the image apache/kafka, run "
    "a proxy of its own for each, or make one of them anew with another CLUSTER_ID; if not, ignore this"
)


class BrokerRegistry:
    """Assigns a ``Broker`` to each upstream, which is an address at which the proxy reaches a broker.

    ``on_joined`` is called with each upstream that ``settle`` assigns to the ``Broker`` of another one, and
    ``on_added`` with each upstream after it was added.

    Attributes:
        brokers: The brokers, each once.
    """

    def __init__(self, on_joined: Callable[[Upstream], None], on_added: Callable[[Upstream], None]) -> None:
        self._on_joined = on_joined
        self._on_added = on_added
        self.brokers: list[Broker] = []
        self._upstreams: list[Upstream] = []
        self._logged: set[str] = set()
        self._doubtful: set[str] = set()  # the ids of clusters for which the log has a warning

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All addresses at which brokers are reached, in the order in which they were added."""
        return tuple(self._upstreams)

    def first(self, broker: Broker) -> Upstream:
        """Return the upstream of ``broker`` that was added first."""
        return next(upstream for upstream in self._upstreams if upstream.broker is broker)

    def add(self, upstream: Upstream) -> Upstream:
        """Add an address at which a broker is reached, and return ``upstream``. Serve no client there yet."""
        self._upstreams.append(upstream)
        self.brokers.append(upstream.broker)
        self._on_added(upstream)
        return upstream

    def settle(self, upstream: Upstream, identity: BrokerIdentity | None = None) -> None:
        """Decide with which other upstreams this one shares a ``Broker``. Later calls change nothing.

        ``identity`` is None if the broker has not said who it is. Then its address decides.
        """
        if upstream.is_settled:
            return
        other = self._same_broker(upstream, identity)
        upstream.is_settled = True
        if other is not None:
            unused, upstream.broker = upstream.broker, other.broker
            self.brokers.remove(unused)
            upstream.broker.join(unused)
            self._log_shared(upstream, other, identity)
            self._on_joined(upstream)
        if identity is not None:
            self.identify(upstream, identity)

    def _same_broker(self, upstream: Upstream, identity: BrokerIdentity | None) -> Upstream | None:
        settled = [one for one in self._upstreams if one.is_settled]
        if identity is not None:
            for one in settled:
                if one.broker.identity == identity:
                    return one
        # Different ids are never one broker, even at one address.
        return next(
            (
                one
                for one in settled
                if not one.places.isdisjoint(upstream.places) and (identity is None or one.broker.identity is None)
            ),
            None,
        )

    def identify(self, upstream: Upstream, identity: BrokerIdentity) -> None:
        """Record what a response of a broker says about who it is. Upstreams that are settled keep their sets."""
        broker = upstream.broker
        if broker.identity is None:
            broker.identity = identity
            other = next((one for one in self.brokers if one is not broker and one.identity == identity), None)
            if other is not None:
                self._log(
                    logging.WARNING,
                    f"{self.first(other).address} and {upstream.address} are one broker, {identity}, which became "
                    "known after clients were served: they keep separate quotas for as long as the proxy runs",
                )
        elif broker.identity != identity:
            self._log(
                logging.WARNING,
                f"{upstream.address} leads to {identity} now: its clients are still counted with those of "
                f"{broker.identity} for as long as the proxy runs",
            )

    def _log_shared(self, upstream: Upstream, other: Upstream, identity: BrokerIdentity | None) -> None:
        """Log that two addresses lead to one broker.

        If only the ids say that two addresses are one broker, these may be brokers of two clusters with one id, which
        images and examples set. Nothing in Kafka's protocol tells them apart, so each such id gets a warning.
        """
        first = self.first(other.broker)
        if first.address == upstream.address:
            return
        which = f", {identity}" if identity else ""
        level, advice = logging.INFO, ""
        if identity is not None and first.places.isdisjoint(upstream.places):
            if identity.cluster_id not in self._doubtful:
                level, advice = logging.WARNING, _ADVICE
            self._doubtful.add(identity.cluster_id)
        self._log(level, f"{first.address} and {upstream.address} are one broker{which}: they share its quotas{advice}")

    def _log(self, level: int, news: str) -> None:
        if news not in self._logged:
            self._logged.add(news)
            log.log(level, "%s", news)
