"""Checks of ``quotas_from`` and ``store``: keys that need each other, and topics behind this proxy."""

import socket
from collections.abc import Iterator, Mapping
from typing import Final

from kafka_quota_proxy.config.document import Document, Location
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.replication_checks import check_client, check_topic
from kafka_quota_proxy.config.unvalidated import (
    ANY_HOST,
    Report,
    address_of,
    addresses_of,
    elements,
    leads_to,
    mapping_at,
)

_AT: Final = ("quotas_from",)
_TOPICS: Final = (_AT, ("store",))


def check_quotas_from(document: Document, report: Report, warn: Report) -> None:
    """Report faults that concern more than one key, and addresses that lead back to this proxy."""
    _warn_of_own_address(document, warn)
    _warn_of_plaintext(document, warn)
    section = mapping_at(document, *_AT)
    if section is not None:
        _check_section(section, document, report)
    for at in _TOPICS:
        check_topic(document, at, report)


def _check_section(section: Mapping[str, object], document: Document, report: Report) -> None:
    if "kafka" not in section and "broker" not in section:
        report(_AT, "names no topic; give kafka, with bootstrap_servers and topic, or broker")
    if "kafka" in section and "broker" in section:
        report((*_AT, "broker"), "cannot be given with kafka; one of them has the quotas that are not in this file")
    broker = mapping_at(document, *_AT, "broker")
    if broker is not None:
        check_client(broker, (*_AT, "broker"), report)


def _warn_of_own_address(document: Document, warn: Report) -> None:
    """Both topics are read before clients are served, so they cannot be read through this proxy."""
    for location, server, what in _servers(document):
        for index, listener in elements(document, "listeners"):
            bind = address_of(listener.get("bind"))
            if bind is not None and _leads_here(server, bind, listener.get("advertised_host")):
                line = document.line(("listeners", index, "bind"))
                message = (
                    f"{server} is bound by this proxy in line {line}, which serves no client before it has read the"
                )
                warn(location, f"{message} {what}; name a listener of the brokers that no proxy is in front of")
                break


def _warn_of_plaintext(document: Document, warn: Report) -> None:
    """TLS settings of listeners do not apply to this client: each listener may have other files, and a login."""
    section = mapping_at(document, *_AT, "broker") or {}
    if not asks_broker(document) or {"bootstrap_servers", "security_protocol"} & section.keys():
        return
    for index, listener in elements(document, "listeners"):
        if "upstream_tls" in listener:
            line = document.line(("listeners", index, "upstream_tls"))
            message = f"the brokers are asked in plaintext, and upstream_tls in line {line} says that they speak TLS"
            warn(_AT, f"{message}; write broker: {{security_protocol: SSL, ssl_cafile: ...}}")
            break


def asks_broker(document: Document) -> bool:
    """Whether the brokers' own quotas are the rules."""
    given = document.data.get(_AT[0]) if isinstance(document.data, dict) else None
    return given == "broker" or (isinstance(given, dict) and "broker" in given)


def _servers(document: Document) -> Iterator[tuple[Location, Address, str]]:
    given = document.data.get(_AT[0]) if isinstance(document.data, dict) else None
    if isinstance(given, str):
        servers, _, _ = given.removeprefix("kafka://").partition("/")
        yield from ((_AT, server, "topic") for server in addresses_of(servers))
    for path, what in (((*_AT, "kafka"), "topic"), ((*_AT, "broker"), "quotas"), (("store", "kafka"), "topic")):
        section = mapping_at(document, *path) or {}
        location = (*path, "bootstrap_servers")
        yield from ((location, server, what) for server in addresses_of(section.get("bootstrap_servers")))


def _leads_here(server: Address, bind: Address, advertised_host: object) -> bool:
    if leads_to(server, bind):
        return True
    names = (advertised_host, socket.gethostname()) if bind.host in ANY_HOST else (advertised_host,)
    return server.port == bind.port and server.host in names
