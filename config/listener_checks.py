"""Checks ``listeners`` for names, addresses and ports that clash, and for TLS settings that do not fit together."""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.addresses import default_broker_ports, is_any, leads_to, share_host
from kafka_quota_proxy.config.document import Document, Finding, Location, error
from kafka_quota_proxy.config.model import BROKER_PORTS, Address, Shaping
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.security import ClientAuth

_LAST_PORT: Final = 65_535


def servers_of(listener: Part) -> Iterator[tuple[Location, Address]]:
    """Yield each broker address of a listener, with the location of ``upstream`` or ``bootstrap_servers``."""
    if upstream := listener.get("upstream"):
        yield (*listener.at, "upstream"), upstream
    for server in listener.get("bootstrap_servers") or ():
        yield (*listener.at, "bootstrap_servers"), server


def upstreams_of(listener: Part) -> frozenset[Address]:
    """Return the broker addresses to which a listener leads. Listeners with the same ones share what is behind them."""
    return frozenset(server for _, server in servers_of(listener))


def _check_names(top: Part, document: Document) -> Iterator[Finding]:
    lines: dict[str, int] = {}
    for listener in top.parts("listeners"):
        name, at = listener.get("name"), (*listener.at, "name")
        if name in lines:
            yield error(at, f"{name!r} is also the name of the listener in line {lines[name]}; give each its own")
        elif name is not None:
            lines[name] = document.line(at)


def _check_binds(top: Part, document: Document) -> Iterator[Finding]:
    """Report addresses that are bound twice, and upstreams that are addresses of this proxy itself."""
    bound: list[tuple[Address, int]] = []
    for at, bind in _binds(top):
        # Port 0 clashes with nothing, because the system chooses a free port.
        clashes = (line for other, line in bound if bind.port == other.port != 0 and share_host(bind.host, other.host))
        line = next(clashes, None)
        if line is not None:
            yield error(at, f"{bind} is already bound in line {line}; give each listener its own address or port")
        bound.append((bind, document.line(at)))
    for listener in top.parts("listeners"):
        for at, upstream in servers_of(listener):
            line = next((line for bind, line in bound if leads_to(upstream, bind)), None)
            if line is not None:
                yield error(at, f"{upstream} is bound by this proxy in line {line}; write the address of the broker")


def _binds(top: Part) -> Iterator[tuple[Location, Address]]:
    """Yield the locations and bind addresses of all listeners and of the admin port."""
    places = [(listener, "bind") for listener in top.parts("listeners")]
    places += [(top.find("admin") or Part(()), key) for key in ("bind", "metrics_bind")]
    yield from (((*part.at, key), part[key]) for part, key in places if part.get(key) is not None)


def _check_upstreams(top: Part, _: Document) -> Iterator[Finding]:
    """Report a listener that has both or neither of the keys ``upstream`` and ``bootstrap_servers``.

    Also report other keys that a listener with one of these keys needs but lacks, or has but does not use.
    """
    for listener in top.parts("listeners"):
        at, bind = listener.at, listener.get("bind")
        if "bootstrap_servers" not in listener:
            if "upstream" not in listener:
                message = "is missing; write the address of the broker, such as 127.0.0.1:19092, or give"
                yield error((*at, "upstream"), f"{message} bootstrap_servers")
            for key in ("advertised_host", "broker_ports"):
                if key in listener:
                    message = "belongs to bootstrap_servers; behind upstream no address is rewritten"
                    yield error((*at, key), message)
            continue
        if "upstream" in listener:
            message = "cannot be given with upstream; give one of them: a broker that advertises this proxy, or a"
            yield error((*at, "bootstrap_servers"), f"{message} cluster")
        if bind and is_any(bind.host) and "advertised_host" not in listener:
            message = f"is missing; clients cannot connect to {bind.host}: write the host that clients use"
            yield error((*at, "advertised_host"), message)
        if bind and bind.port == 0 and "broker_ports" not in listener:
            yield error((*at, "broker_ports"), "is missing; bind to port 0 gives no port to count from")


def _check_broker_ports(top: Part, document: Document) -> Iterator[Finding]:
    """Report ports that a listener reserves for brokers although another listener or the admin port uses them."""
    taken = [(bind.host, bind.port, bind.port, document.line(at)) for at, bind in _binds(top)]
    for listener in top.parts("listeners"):
        bind, ports, at = listener.get("bind"), listener.get("broker_ports"), (*listener.at, "broker_ports")
        if bind and bind.port and "bootstrap_servers" in listener and "broker_ports" not in listener:
            ports = default_broker_ports(bind)
        if bind is None or ports is None:
            continue
        first, last = ports
        if last > _LAST_PORT:
            message = f"is missing; behind port {bind.port} there is no room for {BROKER_PORTS}: write FIRST-LAST"
            yield error(at, message)
        for host, low, high, line in taken:
            if first <= high and low <= last and share_host(host, bind.host):
                shared = f"{max(first, low)}" if low == high else f"{max(first, low)}-{min(last, high)}"
                yield error(at, f"{shared} is already bound in line {line}; give each its own ports")
        taken.append((bind.host, first, last, document.line(at)))


def _check_tls(top: Part, _: Document) -> Iterator[Finding]:
    """Report TLS keys of listeners that are missing or have no effect."""
    for listener in top.parts("listeners"):
        client, upstream = listener.find("client_tls"), listener.find("upstream_tls")
        if client is not None:
            yield from _check_client_auth(client)
        if upstream is not None and ("certificate" in upstream) != ("key" in upstream):
            missing, given = ("key", "certificate") if "certificate" in upstream else ("certificate", "key")
            message = f"is missing; {given} has no effect without it: give both, or neither"
            yield error((*upstream.at, missing), f"{message} for brokers that ask for none")


def _check_client_auth(client_tls: Part) -> Iterator[Finding]:
    client_auth = client_tls.get("client_auth", ClientAuth.NONE)
    if client_auth in (ClientAuth.REQUIRED, ClientAuth.REQUESTED) and "client_ca" not in client_tls:
        message = "is missing; without it no client's certificate can be verified: write the path of a PEM file with "
        yield error((*client_tls.at, "client_ca"), f"{message}the certificates of the authorities that sign them")
    if client_auth is ClientAuth.NONE:
        # These keys suggest that the operator wants clients to present certificates.
        for key in ("client_ca", "principal_mapping_rules"):
            if key in client_tls:
                message = "has no effect, since clients are not asked for certificates; add client_auth: required (or"
                yield error((*client_tls.at, key), f"{message} requested), or remove this")


def _check_shared_upstreams(top: Part, document: Document) -> Iterator[Finding]:
    """Report listeners in front of the same broker that have different shaping or ``upstream_tls``."""
    file_wide = top.get("shaping", Shaping.SAMPLED)
    first: dict[frozenset[Address], tuple[Part, int]] = {}
    for listener in top.parts("listeners"):
        upstream = upstreams_of(listener)
        if not upstream:
            continue
        other, line = first.setdefault(upstream, (listener, document.line(listener.at)))
        shaping, other_shaping = (one.get("shaping", file_wide) for one in (listener, other))
        if shaping and other_shaping and shaping is not other_shaping:
            message = f"the listener in line {line} has shaping {other_shaping.value} and the same upstream, whose"
            yield error((*listener.at, "shaping"), f"{message} buckets they share; give both the same")
        if other.get("upstream_tls") != listener.get("upstream_tls"):
            message = f"the listener in line {line} has another upstream_tls and the same upstream"
            yield error((*listener.at, "upstream_tls"), f"{message}; give both the same")


CHECKS: Final = (
    _check_names,
    _check_binds,
    _check_upstreams,
    _check_broker_ports,
    _check_tls,
    _check_shared_upstreams,
)
