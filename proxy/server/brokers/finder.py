"""Finds out from Metadata responses which broker of which cluster the proxy reaches at a configured address.

Such an address is an ``upstream``. If there are several, two of them may lead to the same broker, whose clients must
not have each quota twice. So the proxy asks a broker who it is before its first client is served. It also reads all
Metadata responses to clients. If the broker requires a login, only these are available, because the proxy has no login
of its own.

A response lists all brokers and does not say which of them has sent it. The sender is found in the first of these ways
that works:

* The configuration file gives the ``node_id`` of the broker.
* One broker advertises the address to which the proxy's connection leads.
* One broker advertises the address to which the clients connect, as it must if the proxy is its sidecar.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.protocol import metadata
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.kafka_client.own_address import own_bind
from kafka_quota_proxy.proxy.runtime.isolation import alone
from kafka_quota_proxy.proxy.server.brokers.broker import Upstream
from kafka_quota_proxy.proxy.server.brokers.bypass import bypassed
from kafka_quota_proxy.proxy.server.brokers.cluster_query import ClusterDescription, describe_cluster
from kafka_quota_proxy.proxy.server.brokers.host_lookups import Lookups
from kafka_quota_proxy.proxy.server.brokers.identity import BrokerIdentity, node_at
from kafka_quota_proxy.proxy.server.brokers.registry import BrokerRegistry
from kafka_quota_proxy.proxy.server.route import Route

log = logging.getLogger(__name__)

_LATEST: Final = HIGHEST_VERSION[ApiKey.METADATA]
# How long the first clients of a listener wait until its broker has said who it is.
ASK_S: Final = 2.0
# A broker that requires a login closes each connection on which it is asked, and a fault of the network only some.
_TRIES: Final = 3
_TRY_AGAIN_S: Final = 0.2

# The last response of an upstream: the cluster, its brokers, and where the connection led.
_Response = tuple[str | None, Mapping[int, Address], frozenset[Address]]


class _Ask:
    """A broker that is asked who it is before the first client of a listener is served."""

    __slots__ = ("has_answer", "is_reached", "upstream")

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.is_reached = self.has_answer = False

    def connected(self, peer: Address | None) -> None:
        """Record that a connection to the broker was made, to the numeric address ``peer``."""
        self.is_reached = True
        self.upstream.led_to(peer)


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
        self._asking: set[asyncio.Future[None]] = set()  # who is asked before a first client
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, route: Route) -> None:
        """Read the Metadata responses that the broker of ``route`` sends to clients from now on."""
        upstream = route.upstream
        self._binds.setdefault(upstream, set()).add(route.listener.settings.bind)
        route.context.on_metadata = partial(self._read_response, upstream)

    async def introduce(
        self,
        listener: str,
        upstreams: Sequence[Upstream],
        on_answer: Callable[[ClusterDescription], None] | None = None,
    ) -> bool:
        """Ask the brokers at ``upstreams`` who they are, and settle which quotas count the clients of ``listener``.

        Takes ``ASK_S`` at most. The address of a broker that has not said who it is counts, which is a warning. Return
        False, and settle nothing, if no broker can be reached: no client can be served then.

        ``on_answer`` is called with each answer if the upstreams are bootstrap servers of a cluster, each of which
        names all brokers.
        """
        unknown = [upstream for upstream in upstreams if not upstream.is_settled]
        if not unknown:
            return True
        until_s = asyncio.get_running_loop().time() + ASK_S
        asks = [_Ask(upstream) for upstream in unknown]
        running = [asyncio.ensure_future(alone(partial(self._ask_first, ask, on_answer))) for ask in asks]
        self._asking.update(running)
        try:
            await _wait_until(running, until_s)
            if not any(ask.is_reached for ask in asks):
                return False
            if not all(upstream.is_settled for upstream in unknown):
                # What others answer says who is at their addresses, and perhaps at this one.
                await _wait_until([one for one in self._asking if not one.done()], until_s)
        finally:
            self._asking.difference_update(running)
            for task in running:
                task.cancel()
        has_answer = any(ask.has_answer for ask in asks)
        for upstream, ask in zip(unknown, asks, strict=True):
            if not upstream.is_settled:
                self._brokers.settle(upstream)
                if upstream.broker.identity is None and (on_answer is None or not has_answer):
                    self._warn(listener, upstream, has_answered=ask.has_answer)
        return True

    async def _ask_first(self, ask: "_Ask", on_answer: Callable[[ClusterDescription], None] | None) -> None:
        upstream = ask.upstream
        for _ in range(_TRIES):
            with suppress(OSError, ProtocolError):
                answer = await describe_cluster(
                    upstream.address, self._source, upstream.tls, on_connected=ask.connected
                )
                ask.has_answer = True
                if on_answer is not None:
                    on_answer(answer)
                identity = await self._identity(upstream, answer.cluster_id, answer.brokers)
                if identity is not None:
                    self._brokers.settle(upstream, identity)
                return
            if not ask.is_reached:
                return
            await asyncio.sleep(_TRY_AGAIN_S)

    def _warn(self, listener: str, upstream: Upstream, *, has_answered: bool) -> None:
        why = (
            "its answer does not tell which of the cluster's brokers it is: give the node_id of the listener"
            if has_answered
            else f"it has not answered within {ASK_S:g} s, or requires a login"
        )
        log.warning(
            "listener %s: the broker at %s is unknown (%s), so its address counts: if another listener leads to this "
            "broker under another address, its clients have each quota twice for as long as the proxy runs",
            listener, upstream.address, why,
        )  # fmt: skip

    def close(self) -> None:
        """Cancel all queries to brokers and all lookups of host names."""
        for task in self._tasks:
            task.cancel()
        self._lookups.close()

    def _read_response(self, upstream: Upstream, data: bytes, position: int, api_version: int) -> None:
        if api_version > _LATEST:
            return
        with suppress(ProtocolError):  # a malformed response still goes on to the client
            found = metadata.find_brokers(data, position, api_version)
            if found is not None:
                brokers = {one.node_id: Address(host=one.host, port=one.port) for one in found.brokers}
                self._apply(upstream, metadata.find_cluster_id(data, position, found, api_version), brokers)

    def _apply(self, upstream: Upstream, cluster_id: str | None, brokers: Mapping[int, Address]) -> None:
        response = cluster_id, brokers, upstream.places
        if self._last.get(upstream) != response:
            self._last[upstream] = response
            task = asyncio.get_running_loop().create_task(alone(partial(self._judge, upstream, response)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _judge(self, upstream: Upstream, response: _Response) -> None:
        """Identify the broker that sent a Metadata response, if that has a cluster id, and look for a bypass."""
        cluster_id, brokers, _ = response
        places = {one: one.places for one in self._binds}
        binds = set().union(*self._binds.values())
        try:
            found = await bypassed(brokers.values(), places, binds, self._lookups)
            identity = await self._identity(upstream, cluster_id, brokers)
        except BaseException:
            self._last.pop(upstream, None)  # the next response is looked at again
            raise
        if self._last.get(upstream) == response:
            for one in dict.fromkeys((upstream, *found)):
                one.advertises(found.get(one), self._binds[one])
            if identity is not None:
                self._brokers.identify(upstream, identity)

    async def _identity(
        self, upstream: Upstream, cluster_id: str | None, brokers: Mapping[int, Address]
    ) -> BrokerIdentity | None:
        """Return which of the ``brokers`` in a Metadata response has sent it, or None if nothing says so."""
        if cluster_id is None:
            return None
        places = upstream.places
        node_id = self._node_ids.get(upstream.address)
        if node_id is None:
            node_id = node_at(brokers, places, {})
        if node_id is None:
            ports, binds = {place.port for place in places}, self._binds.get(upstream, set())
            hosts = await self._lookups.find(address.host for address in brokers.values() if address.port in ports)
            advertised = {address for address in brokers.values() if await own_bind(address, binds) is not None}
            node_id = node_at(brokers, places | advertised, hosts)
        return BrokerIdentity(cluster_id, node_id) if node_id is not None and node_id in brokers else None


async def _wait_until(tasks: Collection[asyncio.Future[None]], until_s: float) -> None:
    """Wait until all ``tasks`` are done, or until the time ``until_s`` of the event loop."""
    if tasks:
        await asyncio.wait(tasks, timeout=max(0.0, until_s - asyncio.get_running_loop().time()))
