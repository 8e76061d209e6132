"""Listeners that may lead to one broker under different names: their clients share its quotas.

The running proxy learns this from the brokers. This check warns earlier: it compares address texts, and the addresses
of host names that the caller has looked up.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.document import Document, Location
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.unvalidated import Report, addresses_of, elements

_LOOPBACK: Final = "this machine"
_OWN: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class _Way(NamedTuple):
    """The upstream of a listener."""

    number: int
    line: int
    key: str
    servers: tuple[Address, ...]


def check_one_broker(document: Document, warn: Report, *, hosts: Mapping[str, Collection[str]] | None = None) -> None:
    """Warn of each listener that may lead to a broker of one above it.

    Args:
        document: The file.
        warn: Called with the location and what is wrong there.
        hosts: The numeric addresses of host names. Only what these tell is said then; None: what the texts tell.
    """
    before: list[_Way] = []
    for way in _ways(document):
        for other in before:
            found = _shared(way, other, hosts)
            if found is not None:
                warn(*_said(way, other, *found))
                break
        before.append(way)


def hosts_to_find(document: Document) -> frozenset[str]:
    """Return the host names to look up: different names with the same port."""
    by_port: dict[int, set[str]] = {}
    for way in _ways(document):
        for server in way.servers:
            by_port.setdefault(server.port, set()).add(server.host)
    return frozenset(host for spellings in by_port.values() if len(spellings) > 1 for host in spellings)


def _ways(document: Document) -> list[_Way]:
    ways = []
    for index, listener in elements(document, "listeners"):
        for key in ("upstream", "bootstrap_servers"):
            servers = tuple(addresses_of(listener.get(key)))
            if servers:
                ways.append(_Way(index, document.line(("listeners", index)), key, servers))
    return ways


def _shared(way: _Way, other: _Way, hosts: Mapping[str, Collection[str]] | None) -> tuple[Address, Address] | None:
    """Return a server of each that may be the same broker; None if there is none, or both texts are equal."""
    if way.key == other.key and set(way.servers) == set(other.servers):
        return None
    pairs = [(one, another) for one in way.servers for another in other.servers if one.port == another.port]
    by_text = [pair for pair in pairs if _spellings(pair[0].host) & _spellings(pair[1].host)]
    if hosts is None:
        return by_text[0] if by_text else None
    found = (pair for pair in pairs if not set(hosts.get(pair[0].host, ())).isdisjoint(hosts.get(pair[1].host, ())))
    return None if by_text else next(found, None)


def _said(way: _Way, other: _Way, server: Address, same: Address) -> tuple[Location, str]:
    what = f"{server} may be the broker at {same}" if server != same else f"{server} stands"
    if way.key != other.key:
        advice = "if the log says that the broker is not known, give node_id with upstream"
    else:
        advice = "write it alike in both" if way.key == "upstream" else "write the same servers in both"
    message = f"{what} in line {other.line}: both listeners then share its quotas, and the shaping of that line holds"
    return ("listeners", way.number, way.key), f"{message}; {advice}"


def _spellings(host: str) -> set[str]:
    """Return a normal form of a host's name."""
    name = host.lower().rstrip(".")
    return {name, _LOOPBACK} if name in _OWN else {name}
