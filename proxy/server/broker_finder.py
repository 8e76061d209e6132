"""Finds out which broker of which cluster an ``upstream`` is, from what the broker itself says of its cluster.

A broker says so where the proxy asks it, once whenever it is back, and in each answer to a client's Metadata request:
the one source where the broker wants a login, for the proxy has none. Only what comes from the broker on a connection
of this way counts; no client can put words into it.

An answer lists all brokers and does not say which of them gives it. It is the one whose address is where the connection
leads to, or where clients of the listener come to, for a broker behind a sidecar advertises the sidecar; or the one
whose ``node_id`` the file gives.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.protocol import metadata
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.background.isolation import alone
from kafka_quota_proxy.proxy.client_quotas.host_resolver import Lookups
from kafka_quota_proxy.proxy.client_quotas.topic.own_address import own_bind
from kafka_quota_proxy.proxy.server.broker import Upstream
from kafka_quota_proxy.proxy.server.broker_identity import BrokerIdentity, node_at
from kafka_quota_proxy.proxy.server.broker_registry import BrokerRegistry
from kafka_quota_proxy.proxy.server.cluster_query import describe_cluster
from kafka_quota_proxy.proxy.server.route import Route

log = logging.getLogger(__name__)

_LATEST: Final = HIGHEST_VERSION[ApiKey.METADATA]

# What was said of an upstream last: the cluster, its brokers, and where the connection led to.
_Said = tuple[str | None, Mapping[int, Address], frozenset[Address]]


class BrokerFinder:
    """Hears what brokers say, and tells ``brokers``.

    Args:
        brokers: What goes by it.
        node_ids: Of upstreams, as the file gives them; None: it does not.
        source: The address of this machine to ask from; None: the system's choice.
    """

    def __init__(self, brokers: BrokerRegistry, node_ids: Mapping[Address, int | None], source: str | None) -> None:
        self._brokers = brokers
        self._node_ids = node_ids
        self._source = source
        self._lookups = Lookups()
        self._binds: dict[Upstream, set[Address]] = {}  # of the listeners that lead there
        self._said: dict[Upstream, _Said] = {}
        self._unknown: set[Upstream] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, route: Route) -> None:
        """Hear what the broker behind ``route`` answers to its clients."""
        upstream = route.upstream
        self._binds.setdefault(upstream, set()).add(route.listener.settings.bind)
        route.context.hear = partial(self._hear, upstream)

    def reached(self, upstream: Upstream, peer: Address | None, *, is_back: bool) -> None:
        """Take it that a connection has led to ``peer``; ask the broker where it was away, or was never asked."""
        self._brokers.reached(upstream, peer, is_back=is_back)
        # Where there is no other way, no other can lead to this broker.
        if is_back and len(self._brokers.upstreams) > 1:
            self._start(partial(self._ask, upstream))

    def close(self) -> None:
        """Ask and look up nothing more."""
        for task in self._tasks:
            task.cancel()

    def _hear(self, upstream: Upstream, data: bytes, position: int, api_version: int) -> None:
        if api_version > _LATEST:
            return
        with suppress(ProtocolError):  # here the answer passes as it is, whatever it is
            found = metadata.find_brokers(data, position, api_version)
            if found is not None:
                brokers = {one.node_id: Address(host=one.host, port=one.port) for one in found.brokers}
                self._take(upstream, metadata.find_cluster_id(data, position, found, api_version), brokers)

    async def _ask(self, upstream: Upstream) -> None:
        with suppress(OSError, ProtocolError):  # it wants a login: then its answers to clients tell
            answer = await describe_cluster(upstream.address, self._source, upstream.tls)
            self._take(upstream, answer.cluster_id, answer.brokers)

    def _take(self, upstream: Upstream, cluster_id: str | None, brokers: Mapping[int, Address]) -> None:
        """Take up what a broker has said of its cluster; without an id nothing is known by that."""
        said = cluster_id, brokers, upstream.way.places
        if cluster_id is None or self._said.get(upstream) == said:
            return
        self._said[upstream] = said
        given = self._node_ids.get(upstream.address)
        if given is not None:
            self._conclude(upstream, cluster_id, given if given in brokers else None)
        elif (node_id := node_at(brokers, upstream.way.places, {})) is not None:
            self._conclude(upstream, cluster_id, node_id)
        else:
            self._start(partial(self._look_up, upstream, cluster_id, said))

    async def _look_up(self, upstream: Upstream, cluster_id: str, said: _Said) -> None:
        _, brokers, places = said
        ports, binds = {place.port for place in places}, self._binds.get(upstream, set())
        hosts = await self._lookups.find(address.host for address in brokers.values() if address.port in ports)
        come_to = {address for address in brokers.values() if await own_bind(address, binds) is not None}
        if self._said.get(upstream) == said:
            self._conclude(upstream, cluster_id, node_at(brokers, places | come_to, hosts))

    def _conclude(self, upstream: Upstream, cluster_id: str, node_id: int | None) -> None:
        known = upstream.identity
        if node_id is not None:
            self._brokers.identify(upstream, BrokerIdentity(cluster_id, node_id))
        elif known is not None and known.cluster_id != cluster_id:
            self._brokers.identify(upstream, None)
        elif known is None and upstream not in self._unknown and self._has_another(upstream, cluster_id):
            self._unknown.add(upstream)
            log.warning(
                "it is not known which broker of cluster %s is at %s: no broker there advertises that address. If "
                "another listener leads to the same broker, its clients have each quota twice: give the node_id of "
                "the listener",
                cluster_id, upstream.address,
            )  # fmt: skip

    def _has_another(self, upstream: Upstream, cluster_id: str) -> bool:
        """Whether another way leads to that cluster, and not to the same broker as far as is known."""
        return any(
            one.broker is not upstream.broker and one.identity is not None and one.identity.cluster_id == cluster_id
            for one in self._brokers.upstreams
        )

    def _start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        task = asyncio.get_running_loop().create_task(alone(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
