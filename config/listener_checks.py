"""Checks ``listeners`` for names, addresses and ports that clash, and for TLS settings that do not fit together."""

import sys
from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.addresses import default_broker_ports, is_any, parse_port_range
from kafka_quota_proxy.config.document import Location
from kafka_quota_proxy.config.model import BROKER_PORTS, Address, RelayKind, Shaping
from kafka_quota_proxy.config.security import ClientAuth
from kafka_quota_proxy.config.unvalidated import (
    UncheckedFile,
    address_of,
    addresses_of,
    leads_to,
    parsed,
    share_host,
    upstreams_of,
)

_LAST_PORT: Final = 65_535
_ASKING: Final = (ClientAuth.REQUIRED.value, ClientAuth.REQUESTED.value)


def check_listeners(file: UncheckedFile) -> None:
    """Report every fault of ``listeners`` that concerns more than one key or more than one listener."""
    _check_names(file)
    _check_binds(file)
    for at, listener in file.elements("listeners"):
        _check_upstream(file, at, listener)
        if listener.get("relay") == RelayKind.NATIVE.value and sys.platform != "linux":
            file.error((*at, "relay"), "native needs Linux; leave it out, and the event loop moves the bytes")
    _check_broker_ports(file)
    _check_tls(file)
    _check_shared_upstreams(file)


def _check_names(file: UncheckedFile) -> None:
    lines: dict[str, int] = {}
    for at, listener in file.elements("listeners"):
        name, location = listener.get("name"), (*at, "name")
        if isinstance(name, str) and name in lines:
            message = f"{name!r} is also the name of the listener in line {lines[name]}; give each its own"
            file.error(location, message)
        elif isinstance(name, str):
            lines[name] = file.line(location)


def _check_binds(file: UncheckedFile) -> None:
    """Report addresses that are bound twice, and upstreams that are addresses of this proxy itself."""
    bound: list[tuple[Address, int]] = []
    for location, bind in _binds(file):
        # Port 0 clashes with nothing, because the system chooses a free port.
        clashes = (line for other, line in bound if bind.port == other.port != 0 and share_host(bind.host, other.host))
        line = next(clashes, None)
        if line is not None:
            file.error(location, f"{bind} is already bound in line {line}; give each listener its own address or port")
        bound.append((bind, file.line(location)))
    for at, listener in file.elements("listeners"):
        for key in ("upstream", "bootstrap_servers"):
            for upstream in addresses_of(listener.get(key)):
                line = next((line for bind, line in bound if leads_to(upstream, bind)), None)
                if line is not None:
                    message = f"{upstream} is bound by this proxy in line {line}; write the address of the broker"
                    file.error((*at, key), message)


def _binds(file: UncheckedFile) -> Iterator[tuple[Location, Address]]:
    """Yield the locations and bind addresses of all listeners and of the admin port."""
    admin = file.mapping_at("admin") or {}
    places: list[tuple[Location, object]] = [
        ((*at, "bind"), listener.get("bind")) for at, listener in file.elements("listeners")
    ]
    places += [(("admin", key), admin.get(key)) for key in ("bind", "metrics_bind")]
    for location, value in places:
        bind = address_of(value)
        if bind:
            yield location, bind


def _check_upstream(file: UncheckedFile, at: tuple[str | int, ...], listener: dict[str, object]) -> None:
    """Report a listener that has both or neither of the keys ``upstream`` and ``bootstrap_servers``.

    Also report other keys that a listener with one of these keys needs but lacks, or has but does not use.
    """
    if "bootstrap_servers" not in listener:
        if "upstream" not in listener:
            message = "is missing; write the address of the broker, such as 127.0.0.1:19092, or give bootstrap_servers"
            file.error((*at, "upstream"), message)
        for key in ("advertised_host", "broker_ports"):
            if key in listener:
                file.error((*at, key), "belongs to bootstrap_servers; behind upstream no address is rewritten")
        return
    if "upstream" in listener:
        message = "cannot be given with upstream; give one of them: a broker that advertises this proxy, or a cluster"
        file.error((*at, "bootstrap_servers"), message)
    bind = address_of(listener.get("bind"))
    if bind and is_any(bind.host) and "advertised_host" not in listener:
        message = f"is missing; clients cannot connect to {bind.host}: write the host that clients use"
        file.error((*at, "advertised_host"), message)
    if bind and bind.port == 0 and "broker_ports" not in listener:
        file.error((*at, "broker_ports"), "is missing; bind to port 0 gives no port to count from")


def _check_broker_ports(file: UncheckedFile) -> None:
    """Report ports that a listener reserves for brokers although another listener or the admin port uses them."""
    taken = [(bind.host, bind.port, bind.port, file.line(location)) for location, bind in _binds(file)]
    for at, listener in file.elements("listeners"):
        bind, location = address_of(listener.get("bind")), (*at, "broker_ports")
        ports = _port_range(listener, bind)
        if bind is None or ports is None:
            continue
        first, last = ports
        if last > _LAST_PORT:
            message = f"is missing; behind port {bind.port} there is no room for {BROKER_PORTS}: write FIRST-LAST"
            file.error(location, message)
        for host, low, high, line in taken:
            if first <= high and low <= last and share_host(host, bind.host):
                shared = f"{max(first, low)}" if low == high else f"{max(first, low)}-{min(last, high)}"
                file.error(location, f"{shared} is already bound in line {line}; give each its own ports")
        taken.append((bind.host, first, last, file.line(location)))


def _port_range(listener: dict[str, object], bind: Address | None) -> tuple[int, int] | None:
    """Return the first and the last port that a listener has for brokers, or None if it has no valid ports."""
    given = listener.get("broker_ports")
    if given is None:
        return default_broker_ports(bind) if bind and bind.port and "bootstrap_servers" in listener else None
    return parsed(parse_port_range, given)


def _check_tls(file: UncheckedFile) -> None:
    """Report TLS keys of listeners that are missing or have no effect."""
    for at, listener in file.elements("listeners"):
        client, upstream = listener.get("client_tls"), listener.get("upstream_tls")
        if isinstance(client, dict):
            _check_client_auth(file, (*at, "client_tls"), client)
        if isinstance(upstream, dict) and ("certificate" in upstream) != ("key" in upstream):
            missing, given = ("key", "certificate") if "certificate" in upstream else ("certificate", "key")
            message = f"is missing; {given} has no effect without it: give both, or neither"
            file.error((*at, "upstream_tls", missing), f"{message} for brokers that ask for none")


def _check_client_auth(file: UncheckedFile, at: tuple[str | int, ...], client_tls: dict[str, object]) -> None:
    client_auth = client_tls.get("client_auth", ClientAuth.NONE.value)
    if client_auth in _ASKING and "client_ca" not in client_tls:
        message = "is missing; without it no client's certificate can be verified: write the path of a PEM file with "
        file.error((*at, "client_ca"), f"{message}the certificates of the authorities that sign them")
    if client_auth == ClientAuth.NONE.value:
        # These keys suggest that the operator wants clients to present certificates.
        for key in ("client_ca", "principal_mapping_rules"):
            if key in client_tls:
                message = "has no effect, since clients are not asked for certificates"
                file.error((*at, key), f"{message}; add client_auth: required (or requested), or remove this")


def _check_shared_upstreams(file: UncheckedFile) -> None:
    """Report listeners in front of the same broker that have different shaping or ``upstream_tls``."""
    file_wide = file.top.get("shaping", Shaping.SAMPLED.value)
    first: dict[frozenset[Address], tuple[object, object, int]] = {}
    for at, listener in file.elements("listeners"):
        upstream = upstreams_of(listener)
        if not upstream:
            continue
        shaping, tls = listener.get("shaping", file_wide), listener.get("upstream_tls")
        other_shaping, other_tls, line = first.setdefault(upstream, (shaping, tls, file.line(at)))
        if other_shaping != shaping:
            message = f"the listener in line {line} has shaping {other_shaping} and the same upstream, whose buckets"
            file.error((*at, "shaping"), f"{message} they share; give both the same")
        if other_tls != tls:
            message = f"the listener in line {line} has another upstream_tls and the same upstream"
            file.error((*at, "upstream_tls"), f"{message}; give both the same")
