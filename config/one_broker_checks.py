"""Warns of listeners that may lead to the same broker under different addresses.

Clients of such listeners share the quotas at that broker, which the operator may not expect. The running proxy learns
from the brokers whether two addresses belong to one broker, but this check warns before the start.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from kafka_quota_proxy.config.addresses import same_host
from kafka_quota_proxy.config.document import Document, Finding, Location, warning
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.sections import Part


class _Upstream(NamedTuple):
    """The servers to which a listener leads: the addresses under its key ``upstream`` or ``bootstrap_servers``."""

    at: Location  # of the listener
    key: str  # upstream or bootstrap_servers
    servers: tuple[Address, ...]


def check_one_broker(
    top: Part, document: Document, *, hosts: Mapping[str, Collection[str]] | None = None
) -> Iterator[Finding]:
    """Warn of each listener that may lead to the same broker as an earlier listener in the file.

    ``hosts`` maps host names to their IP addresses. If it is None, listeners with the same host name and port are
    warned of. Otherwise, listeners with different host names but a common IP address and port are warned of.
    """
    before: list[_Upstream] = []
    for upstream in _upstreams(top):
        for other in before:
            found = _shared(upstream, other, hosts)
            if found is not None:
                yield _shares(upstream, other, document.line(other.at), *found)
                break
        before.append(upstream)


def hosts_to_find(top: Part) -> frozenset[str]:
    """Return the host names whose IP addresses ``check_one_broker`` needs.

    A host name is needed if the same port also appears with another host name.
    """
    by_port: dict[int, set[str]] = {}
    for upstream in _upstreams(top):
        for server in upstream.servers:
            by_port.setdefault(server.port, set()).add(server.host)
    return frozenset(host for spellings in by_port.values() if len(spellings) > 1 for host in spellings)


def _upstreams(top: Part) -> Iterator[_Upstream]:
    for listener in top.parts("listeners"):
        if upstream := listener.get("upstream"):
            yield _Upstream(listener.at, "upstream", (upstream,))
        if servers := listener.get("bootstrap_servers"):
            yield _Upstream(listener.at, "bootstrap_servers", servers)


def _shared(
    one: _Upstream, other: _Upstream, hosts: Mapping[str, Collection[str]] | None
) -> tuple[Address, Address] | None:
    """Return two servers, one of each upstream, that may be the same broker, or None if there are none."""
    if one.key == other.key and set(one.servers) == set(other.servers):
        return None
    pairs = [(server, same) for server in one.servers for same in other.servers if server.port == same.port]
    by_text = [pair for pair in pairs if same_host(pair[0].host, pair[1].host)]
    if hosts is None:
        return by_text[0] if by_text else None
    found = (pair for pair in pairs if not set(hosts.get(pair[0].host, ())).isdisjoint(hosts.get(pair[1].host, ())))
    return None if by_text else next(found, None)


def _shares(one: _Upstream, other: _Upstream, line: int, server: Address, same: Address) -> Finding:
    what = f"{server} may be the broker at {same}" if server != same else f"{server} stands"
    if one.key != other.key:
        advice = "if the log says that the broker is not known, give node_id with upstream"
    else:
        advice = "write it alike in both" if one.key == "upstream" else "write the same servers in both"
    message = f"{what} in line {line}: both listeners then share its quotas, and the shaping of that line holds"
    return warning((*one.at, one.key), f"{message}; {advice}")
