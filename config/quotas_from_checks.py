"""Checks ``quotas_from`` and ``store`` for keys that do not fit together, and for addresses that lead to this proxy."""

import socket
from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.addresses import is_any, without_final_dot
from kafka_quota_proxy.config.document import Location
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.replication_checks import check_client, check_topic
from kafka_quota_proxy.config.unvalidated import UncheckedFile, address_of, addresses_of, leads_to

_KEY: Final = "quotas_from"
_AT: Final = (_KEY,)


def check_quotas_from(file: UncheckedFile) -> None:
    """Report faults of ``quotas_from`` and ``store`` that concern more than one key, or listeners as well."""
    _warn_of_own_address(file)
    _warn_of_plaintext(file)
    section = file.mapping_at(_KEY)
    if section is not None:
        if "kafka" not in section and "broker" not in section:
            file.error(_AT, "names no topic; give kafka, with bootstrap_servers and topic, or broker")
        if "kafka" in section and "broker" in section:
            message = "cannot be given with kafka; remove one of them"
            file.error((_KEY, "broker"), message)
        check_client(file, _KEY, "broker")
    check_topic(file, _KEY)
    check_topic(file, "store")


def asks_broker(file: UncheckedFile) -> bool:
    """Whether the proxy takes its rules from the quotas in the Kafka cluster itself (``quotas_from: broker``)."""
    given = file.top.get(_KEY)
    return given == "broker" or (isinstance(given, dict) and "broker" in given)


def _warn_of_own_address(file: UncheckedFile) -> None:
    """Warn if the proxy would read quotas through itself, which fails, as it reads them before it serves clients."""
    for location, server, what in _servers(file):
        for at, listener in file.elements("listeners"):
            bind = address_of(listener.get("bind"))
            if bind is not None and _leads_here(server, bind, listener.get("advertised_host")):
                line = file.line((*at, "bind"))
                message = f"{server} is bound by this proxy in line {line}, which reads the {what} before it serves"
                file.warn(location, f"{message} a client; name a listener of the brokers that has no proxy in front")
                break


def _servers(file: UncheckedFile) -> Iterator[tuple[Location, Address, str]]:
    given = file.top.get(_KEY)
    if isinstance(given, str):
        servers, _, _ = given.removeprefix("kafka://").partition("/")
        yield from ((_AT, server, "topic") for server in addresses_of(servers))
    for path, what in (((_KEY, "kafka"), "topic"), ((_KEY, "broker"), "quotas"), (("store", "kafka"), "topic")):
        section = file.mapping_at(*path) or {}
        location = (*path, "bootstrap_servers")
        yield from ((location, server, what) for server in addresses_of(section.get("bootstrap_servers")))


def _leads_here(server: Address, bind: Address, advertised_host: object) -> bool:
    if leads_to(server, bind):
        return True
    names = (advertised_host, socket.gethostname()) if is_any(bind.host) else (advertised_host,)
    known = {without_final_dot(name) for name in names if isinstance(name, str)}
    return server.port == bind.port and without_final_dot(server.host) in known


def _warn_of_plaintext(file: UncheckedFile) -> None:
    """Warn if the proxy would ask brokers for quotas in plaintext, although a listener has ``upstream_tls``."""
    section = file.mapping_at(_KEY, "broker") or {}
    if not asks_broker(file) or {"bootstrap_servers", "security_protocol"} & section.keys():
        return
    at = next(((*at, "upstream_tls") for at, one in file.elements("listeners") if "upstream_tls" in one), None)
    if at is not None:
        message = f"the brokers are asked in plaintext, and upstream_tls in line {file.line(at)} says that they speak"
        file.warn(_AT, f"{message} TLS; write broker: {{security_protocol: SSL, ssl_cafile: ...}}")
