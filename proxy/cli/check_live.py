"""Asks the brokers that a configuration file names, for ``check --live``.

It finds brokers that cannot be reached, that are outside ``broker_ports``, or that send clients past the proxy. It uses
no login. Run it where the proxy runs, because names and addresses mean something else on other machines.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kafka_quota_proxy.config.document import Document, fault_at
from kafka_quota_proxy.config.errors import Fault, Severity
from kafka_quota_proxy.config.model import Address, Cluster, Listener, ProxyConfig
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.server.brokers.bypass import bypassed
from kafka_quota_proxy.proxy.server.brokers.cluster_query import ClusterDescription, describe_cluster
from kafka_quota_proxy.proxy.server.brokers.host_lookups import Lookups
from kafka_quota_proxy.proxy.server.brokers.probe import try_broker
from kafka_quota_proxy.proxy.server.tls.contexts import TlsContext

_UPSTREAM: Final = "upstream"
_SERVERS: Final = "bootstrap_servers"


class _Finding(NamedTuple):
    key: str
    message: str
    severity: Severity = Severity.ERROR


def live_faults(config: ProxyConfig, document: Document) -> list[Fault]:
    """Return the faults that the brokers of all listeners have, each with the line of the key that leads to them."""
    return asyncio.run(_live_faults(config, document))


async def _live_faults(config: ProxyConfig, document: Document) -> list[Fault]:
    binds = [listener.bind for listener in config.listeners]
    found = await asyncio.gather(*(_Live(one, config.upstream_bind, binds).findings() for one in config.listeners))
    return [
        fault_at(document, ("listeners", index, finding.key), finding.message, finding.severity)
        for index, findings in enumerate(found)
        for finding in findings
    ]


class _Live:
    """Asks the brokers of one listener. ``source`` is the address to dial from, or None; ``binds`` are the proxy's."""

    def __init__(self, listener: Listener, source: str | None, binds: Sequence[Address]) -> None:
        self._listener = listener
        self._source = source
        self._binds = binds
        self._tls = TlsContext(listener.upstream_tls) if listener.upstream_tls else None

    async def findings(self) -> list[_Finding]:
        """Return what is wrong with the brokers."""
        listener = self._listener
        if listener.cluster is not None:
            return await self._of_cluster(listener.cluster)
        return [] if listener.upstream is None else await self._of_upstream(listener.upstream)

    async def _of_upstream(self, upstream: Address) -> list[_Finding]:
        if away := await self._away(_UPSTREAM, [upstream]):
            return away
        answer = await self._describe(_UPSTREAM, upstream)
        if isinstance(answer, _Finding):
            return [answer]
        places = frozenset({upstream} if answer.peer is None else {upstream, answer.peer})
        found = await bypassed(answer.brokers.values(), {_UPSTREAM: places}, self._binds, Lookups())
        return [
            _Finding(
                _UPSTREAM,
                f"the broker advertises itself, {address}, so clients go past the proxy and no quota holds; let its "
                f"advertised.listeners name the proxy ({self._listener.bind}), or use bootstrap_servers in place of "
                "upstream",
            )
            for address in found.values()
        ]

    async def _of_cluster(self, cluster: Cluster) -> list[_Finding]:
        servers = cluster.bootstrap_servers
        found = await self._away(_SERVERS, servers)
        if len(found) == len(servers):
            return found
        for server in servers:
            answer = await self._describe(_SERVERS, server)
            if isinstance(answer, ClusterDescription):
                break
        if isinstance(answer, _Finding):
            return [*found, answer]
        others = [one for one in answer.brokers.values() if one not in servers]
        return [*found, *_outside(cluster, answer), *await self._away(_SERVERS, others)]

    async def _away(self, key: str, addresses: Sequence[Address]) -> list[_Finding]:
        tried = await asyncio.gather(*(try_broker(one, self._source, self._tls) for one in addresses))
        return [
            _Finding(key, f"the broker {address} cannot be reached: {fault.detail}")
            for address, (_, fault) in zip(addresses, tried, strict=True)
            if fault is not None
        ]

    async def _describe(self, key: str, address: Address) -> ClusterDescription | _Finding:
        try:
            return await describe_cluster(address, self._source, self._tls)
        except (OSError, ProtocolError) as error:
            message = f"what {address} advertises is not known, as it does not say it without a login: {error}"
            return _Finding(key, message, Severity.WARNING)


def _outside(cluster: Cluster, answer: ClusterDescription) -> Iterator[_Finding]:
    for node_id, address in answer.brokers.items():
        if cluster.port_of(node_id) is None:
            message = f"broker {node_id} ({address}) has no port here: the first port + node id is outside"
            yield _Finding("broker_ports", message)
