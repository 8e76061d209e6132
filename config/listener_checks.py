"""``listeners``: names, addresses and ports that clash, and TLS settings that do not fit together."""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.addresses import default_broker_ports, parse_port_range
from kafka_quota_proxy.config.document import Document, Location
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import BROKER_PORTS, Address, Shaping
from kafka_quota_proxy.config.security import ClientAuth
from kafka_quota_proxy.config.unvalidated import ANY_HOST, Report, address_of, addresses_of, elements, leads_to

_DEFAULT_SHAPING: Final = Shaping.SAMPLED.value
_LAST_PORT: Final = 65_535
_ADMIN_BINDS: Final = ("bind", "metrics_bind")
_ASKING: Final = (ClientAuth.REQUIRED.value, ClientAuth.REQUESTED.value)


def check_listeners(document: Document, report: Report) -> None:
    """Report every fault of listeners that concerns more than one key."""
    _check_addresses(document, report)
    _check_broker_ports(document, report)
    _check_tls(document, report)
    _check_shared_upstreams(document, report)


def _check_addresses(document: Document, report: Report) -> None:
    """Report names and addresses that are used twice, and upstreams that are this proxy itself."""
    names: dict[object, int] = {}
    bound: list[tuple[Address, int]] = []
    for index, listener in elements(document, "listeners"):
        name = listener.get("name")
        if isinstance(name, str) and name in names:
            message = f"{name!r} is also the name of the listener in line {names[name]}; give each its own"
            report(("listeners", index, "name"), message)
        elif isinstance(name, str):
            names[name] = document.line(("listeners", index, "name"))
        _check_bind(address_of(listener.get("bind")), ("listeners", index, "bind"), bound, document, report)
        _check_upstream(listener, index, report)
    admin = document.data.get("admin") if isinstance(document.data, dict) else None
    if isinstance(admin, dict):
        for key in _ADMIN_BINDS:
            _check_bind(address_of(admin.get(key)), ("admin", key), bound, document, report)
    for index, listener in elements(document, "listeners"):
        for key in ("upstream", "bootstrap_servers"):
            for upstream in addresses_of(listener.get(key)):
                line = next((line for bind, line in bound if leads_to(upstream, bind)), None)
                if line is not None:
                    message = f"{upstream} is bound by this proxy in line {line}; write the address of the broker"
                    report(("listeners", index, key), message)


def _check_upstream(listener: dict[str, object], index: int, report: Report) -> None:
    """A listener has one upstream broker or one cluster."""
    has_upstream, has_cluster = "upstream" in listener, "bootstrap_servers" in listener
    if has_upstream and has_cluster:
        message = (
            "cannot be given with upstream; give one of them: a broker that advertises this proxy, or a whole cluster"
        )
        report(("listeners", index, "bootstrap_servers"), message)
    if not has_upstream and not has_cluster:
        message = "is missing; write the address of the broker, such as 127.0.0.1:19092, or give bootstrap_servers"
        report(("listeners", index, "upstream"), message)
    if has_cluster:
        bind = address_of(listener.get("bind"))
        if bind and bind.host in ANY_HOST and "advertised_host" not in listener:
            message = f"is missing; clients cannot connect to {bind.host}: write the host that they reach"
            report(("listeners", index, "advertised_host"), message)
        if bind and bind.port == 0 and "broker_ports" not in listener:
            report(("listeners", index, "broker_ports"), "is missing; with bind to port 0 there is none to count from")
        return
    for key in ("advertised_host", "broker_ports"):
        if key in listener:
            report(("listeners", index, key), "belongs to bootstrap_servers; behind upstream no address is rewritten")


def _check_broker_ports(document: Document, report: Report) -> None:
    """Report ports of brokers that a listener, another range or the admin port also uses."""
    taken = [(bind.host, bind.port, bind.port, document.line(location)) for location, bind in _binds(document)]
    for index, listener in elements(document, "listeners"):
        bind, location = address_of(listener.get("bind")), ("listeners", index, "broker_ports")
        ports = _port_range(listener, bind)
        if bind is None or ports is None:
            continue
        first, last = ports
        if last > _LAST_PORT:
            message = f"is missing; behind port {bind.port} there is no room for {BROKER_PORTS}: write FIRST-LAST"
            report(location, message)
        for host, low, high, line in taken:
            if first <= high and low <= last and (host == bind.host or not ANY_HOST.isdisjoint((host, bind.host))):
                shared = f"{max(first, low)}" if low == high else f"{max(first, low)}-{min(last, high)}"
                report(location, f"{shared} is already bound in line {line}; give each its own ports")
        taken.append((bind.host, first, last, document.line(location)))


def _binds(document: Document) -> Iterator[tuple[Location, Address]]:
    for index, listener in elements(document, "listeners"):
        bind = address_of(listener.get("bind"))
        if bind:
            yield ("listeners", index, "bind"), bind
    admin = document.data.get("admin") if isinstance(document.data, dict) else None
    for key in _ADMIN_BINDS:
        bind = address_of(admin.get(key)) if isinstance(admin, dict) else None
        if bind:
            yield ("admin", key), bind


def _port_range(listener: dict[str, object], bind: Address | None) -> tuple[int, int] | None:
    """Return the ports of a listener's brokers, from the file or by default."""
    given = listener.get("broker_ports")
    if given is None:
        return default_broker_ports(bind) if bind and bind.port and "bootstrap_servers" in listener else None
    try:
        return parse_port_range(given) if isinstance(given, str) else None
    except UnitError:
        return None


def _check_tls(document: Document, report: Report) -> None:
    """Report files and rules of TLS that are missing, or have no effect."""
    for index, listener in elements(document, "listeners"):
        client, upstream = listener.get("client_tls"), listener.get("upstream_tls")
        if isinstance(client, dict):
            _check_client_auth(client, ("listeners", index, "client_tls"), report)
        if isinstance(upstream, dict) and ("certificate" in upstream) != ("key" in upstream):
            missing, given = ("key", "certificate") if "certificate" in upstream else ("certificate", "key")
            message = (
                f"is missing; {given} is of no use without it: give both, or neither for brokers that ask for none"
            )
            report(("listeners", index, "upstream_tls", missing), message)


def _check_client_auth(client_tls: dict[str, object], location: Location, report: Report) -> None:
    client_auth = client_tls.get("client_auth", ClientAuth.NONE.value)
    if client_auth in _ASKING and "client_ca" not in client_tls:
        message = "is missing; without it no client's certificate can be right: write the path of a PEM file with "
        report((*location, "client_ca"), f"{message}the certificates of the authorities that sign them")
    if client_auth == ClientAuth.NONE.value:
        # These keys suggest that the operator wants client certificates.
        for key in ("client_ca", "principal_mapping_rules"):
            if key in client_tls:
                message = "has no effect, since clients are not asked for certificates"
                report((*location, key), f"{message}; add client_auth: required (or requested), or remove this")


def _check_shared_upstreams(document: Document, report: Report) -> None:
    """Listeners of one broker share its buckets and its probe, so their shaping and TLS must be equal."""
    file_wide = document.data.get("shaping", _DEFAULT_SHAPING) if isinstance(document.data, dict) else None
    first: dict[frozenset[Address], tuple[object, object, int]] = {}
    for index, listener in elements(document, "listeners"):
        upstream = frozenset(addresses_of(listener.get("upstream")) + addresses_of(listener.get("bootstrap_servers")))
        shaping, tls = listener.get("shaping", file_wide), listener.get("upstream_tls")
        if not upstream:
            continue
        line = document.line(("listeners", index))
        other_shaping, other_tls, line = first.setdefault(upstream, (shaping, tls, line))
        if other_shaping != shaping:
            message = f"the listener in line {line} has shaping {other_shaping} and the same upstream, whose buckets"
            report(("listeners", index, "shaping"), f"{message} they share; give both the same")
        if other_tls != tls:
            message = f"the listener in line {line} has another upstream_tls and the same upstream"
            report(("listeners", index, "upstream_tls"), f"{message}; give both the same")


def _check_bind(
    bind: Address | None, location: Location, bound: list[tuple[Address, int]], document: Document, report: Report
) -> None:
    if bind is None:
        return
    line = next((line for other, line in bound if _collide(bind, other)), None)
    if line is not None:
        report(location, f"{bind} is already bound in line {line}; give each its own address or port")
    bound.append((bind, document.line(location)))


def _collide(one: Address, other: Address) -> bool:
    # Port 0 is a free port each time.
    same_port = one.port == other.port != 0
    return same_port and (one.host == other.host or not ANY_HOST.isdisjoint((one.host, other.host)))
