"""``quotas_from``: keys that need each other."""

import socket
from collections.abc import Iterator
from typing import Final

from config.document import Document, Location
from config.model import Address
from config.raw import ANY_HOST, Say, address_of, addresses_of, elements, leads_to, mapping_at
from config.replication_checks import check_client

_AT: Final = ("quotas_from",)


def check_quotas_from(document: Document, say: Say, warn: Say) -> None:
    """Tell of every fault of the section that concerns more than one key, and of a topic behind this proxy."""
    _warn_of_own_address(document, warn)
    section = mapping_at(document, *_AT)
    if section is None:
        return
    if "kafka" not in section:
        say(_AT, "names no topic; give kafka, with bootstrap_servers and topic")
    topic, location = mapping_at(document, *_AT, "kafka"), (*_AT, "kafka")
    if topic is not None:
        if "bootstrap_servers" not in topic:
            say(
                (*location, "bootstrap_servers"),
                "is missing; write brokers of the topic's cluster: HOST:PORT,HOST:PORT",
            )
        check_client(topic, location, say)


def _warn_of_own_address(document: Document, warn: Say) -> None:
    """The topic is read before anybody is served, so it cannot be read through this proxy."""
    for location, server in _servers(document):
        for index, listener in elements(document, "listeners"):
            bind = address_of(listener.get("bind"))
            if bind is not None and _leads_here(server, bind, listener.get("advertised_host")):
                line = document.line(("listeners", index, "bind"))
                message = f"{server} is bound by this proxy in line {line}, which serves nobody before it has read the"
                warn(location, f"{message} topic; name a listener of the brokers that no proxy is in front of")
                break


def _servers(document: Document) -> Iterator[tuple[Location, Address]]:
    given = document.data.get(_AT[0]) if isinstance(document.data, dict) else None
    if isinstance(given, str):
        servers, _, _ = given.removeprefix("kafka://").partition("/")
        yield from ((_AT, server) for server in addresses_of(servers))
    topic = mapping_at(document, *_AT, "kafka") or {}
    location = (*_AT, "kafka", "bootstrap_servers")
    yield from ((location, server) for server in addresses_of(topic.get("bootstrap_servers")))


def _leads_here(server: Address, bind: Address, advertised_host: object) -> bool:
    if leads_to(server, bind):
        return True
    names = (advertised_host, socket.gethostname()) if bind.host in ANY_HOST else (advertised_host,)
    return server.port == bind.port and server.host in names
