"""Finds out from Metadata responses which broker of which cluster the proxy reaches at a configured address.

Such an address is an ``upstream``. If there are several, two of them may lead to the same broker, whose clients must
not have each quota twice. So the proxy queries a broker whenever it becomes reachable. It also reads all Metadata
responses to clients. If the broker requires a login, only responses to clients are available, because the proxy has no
login of its own.

A response lists all brokers and does not say which of them has sent it. The sender is found in the first of these ways
that works:

* The configuration file gives the ``node_id`` of the broker.
* One broker advertises the address to which the proxy's connection leads.
* One broker advertises the address to which the clients connect, as it must if the proxy is its sidecar.
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
from kafka_quota_proxy.proxy.client_quotas.topic.own_address import own_bind
from kafka_quota_proxy.proxy.server.broker import Upstream
from kafka_quota_proxy.proxy.server.broker_identity import BrokerIdentity, node_at
from kafka_quota_proxy.proxy.server.broker_registry import BrokerRegistry
from kafka_quota_proxy.proxy.server.bypass import bypassed
from kafka_quota_proxy.proxy.server.cluster_query import describe_cluster
from kafka_quota_proxy.proxy.server.host_lookups import Lookups
from kafka_quota_proxy.proxy.server.route import Route

log = logging.getLogger(__name__)

_LATEST: Final = HIGHEST_VERSION[ApiKey.METADATA]

# The last response of an upstream: the cluster, its brokers, and where the connection led.
_Response = tuple[str | None, Mapping[int, Address], frozenset[Address]]
# What a response of an upstream advertises, and where the connection led.
_Advertised = tuple[Mapping[int, Address], frozenset[Address]]


class BrokerFinder:
    """Finds out which broker is at each configured address (upstream), and reports it to the ``BrokerRegistry``.

    It also finds out whether clients are sent past the proxy (``bypass``).

    ``node_ids`` contains, for each upstream's address, the node id that the configuration file gives, or None.
    ``source`` is the address of this machine to dial from, or None.
    """

    def __init__(self, brokers: BrokerRegistry, node_ids: Mapping[Address, int | None], source: str | None) -> None:
        self._brokers = brokers
        self._node_ids = node_ids
        self._source = source
        self._lookups = Lookups()
        self._binds: dict[Upstream, set[Address]] = {}  # the addresses by which clients reach it
        self._last: dict[Upstream, _Response] = {}
        self._judged: dict[Upstream, _Advertised] = {}
        self._unknown: set[Upstream] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, route: Route) -> None:
        """Read the Metadata responses that the broker of ``route`` sends to clients from now on."""
        upstream = route.upstream
        self._binds.setdefault(upstream, set()).add(route.listener.settings.bind)
        route.context.on_metadata = partial(self._read_response, upstream)

    def reached(self, upstream: Upstream, peer: Address | None, is_back: bool) -> None:
        """Record that a connection to the broker at ``upstream`` has reached the numeric address ``peer``.

        If ``is_back`` is True, the broker was unreachable before. It is then queried, because another broker may have
        replaced it.
        """
        self._brokers.reached(upstream, peer, is_back=is_back)
        # If there is only one upstream, no other one can lead to the same broker.
        if is_back and upstream in self._binds and len(self._brokers.upstreams) > 1:
            self._start(partial(self._ask, upstream))

    def close(self) -> None:
        """Cancel all queries to brokers and all lookups of host names."""
        for task in self._tasks:
            task.cancel()

    def _read_response(self, upstream: Upstream, data: bytes, position: int, api_version: int) -> None:
        if api_version > _LATEST:
            return
        with suppress(ProtocolError):  # a malformed response still goes on to the client
            found = metadata.find_brokers(data, position, api_version)
            if found is not None:
                brokers = {one.node_id: Address(host=one.host, port=one.port) for one in found.brokers}
                self._apply(upstream, metadata.find_cluster_id(data, position, found, api_version), brokers)

    async def _ask(self, upstream: Upstream) -> None:
        with suppress(OSError, ProtocolError):  # perhaps it requires a login; wait for a response to a client
            answer = await describe_cluster(upstream.address, self._source, upstream.tls)
            self._apply(upstream, answer.cluster_id, answer.brokers)

    def _apply(self, upstream: Upstream, cluster_id: str | None, brokers: Mapping[int, Address]) -> None:
        """Identify the broker that sent a Metadata response, if that has a cluster id, and look for a bypass."""
        advertised = brokers, upstream.location.places
        if self._judged.get(upstream) != advertised:
            self._judged[upstream] = advertised
            self._start(partial(self._look_for_bypass, upstream, advertised))
        response = cluster_id, brokers, upstream.location.places
        if cluster_id is None or self._last.get(upstream) == response:
            return
        self._last[upstream] = response
        given = self._node_ids.get(upstream.address)
        if given is not None:
            self._conclude(upstream, cluster_id, given if given in brokers else None)
        elif (node_id := node_at(brokers, upstream.location.places, {})) is not None:
            self._conclude(upstream, cluster_id, node_id)
        else:
            self._start(partial(self._look_up, upstream, cluster_id, response))

    async def _look_for_bypass(self, upstream: Upstream, advertised: _Advertised) -> None:
        places = {one: one.location.places for one in self._binds}
        binds = set().union(*self._binds.values())
        try:
            found = await bypassed(advertised[0].values(), places, binds, self._lookups)
        except BaseException:
            self._judged.pop(upstream, None)  # the next response is looked at again
            raise
        if self._judged.get(upstream) == advertised:
            for one in dict.fromkeys((upstream, *found)):
                one.advertises(found.get(one), self._binds[one])

    async def _look_up(self, upstream: Upstream, cluster_id: str, response: _Response) -> None:
        _, brokers, places = response
        ports, binds = {place.port for place in places}, self._binds.get(upstream, set())
        hosts = await self._lookups.find(address.host for address in brokers.values() if address.port in ports)
        advertised = {address for address in brokers.values() if await own_bind(address, binds) is not None}
        if self._last.get(upstream) == response:
            self._conclude(upstream, cluster_id, node_at(brokers, places | advertised, hosts))

    def _conclude(self, upstream: Upstream, cluster_id: str, node_id: int | None) -> None:
        known = upstream.identity
        if node_id is not None:
            self._brokers.identify(upstream, BrokerIdentity(cluster_id, node_id))
        elif known is not None and known.cluster_id != cluster_id:
            self._brokers.identify(upstream, None)
        elif known is None and upstream not in self._unknown and self._has_another(upstream, cluster_id):
            self._unknown.add(upstream)
            log.warning(
                "the broker of cluster %s at %s is unknown: no broker there advertises that address. If "
                "another listener leads to the same broker, its clients have each quota twice: give the node_id of "
                "the listener",
                cluster_id, upstream.address,
            )  # fmt: skip

    def _has_another(self, upstream: Upstream, cluster_id: str) -> bool:
        """Return whether another upstream is known that leads to a broker of this cluster, but has quotas of its own.

        If so, both upstreams may lead to the same broker, and its clients may have each quota twice.
        """
        return any(
            one.broker is not upstream.broker and one.identity is not None and one.identity.cluster_id == cluster_id
            for one in self._brokers.upstreams
        )

    def _start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        task = asyncio.get_running_loop().create_task(alone(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
