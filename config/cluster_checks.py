"""Checks ``quotas_from``, ``store``, ``usage_log``, and the settings of the Kafka clients that the proxy itself runs.

These checks find keys that need or exclude each other, and administrators who could be anybody or can change nothing.
"""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.principals import ANONYMOUS, UNKNOWN
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.security import SecurityProtocol

_QUOTAS_FROM: Final = ("quotas_from",)
_STORE: Final = ("store",)
_ADMINS: Final = ("principals", "admins")
_TOKEN: Final = ("admin", "quotas_token_file")
_CLIENTS: Final = (
    ("quotas_from", "kafka"),
    ("quotas_from", "broker"),
    ("store", "kafka"),
    ("replication", "admin_client"),
    ("usage_log", "kafka"),
)
_SASL_KEYS: Final = {
    "sasl_mechanism": "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    "sasl_username": "the user to log in as",
    "sasl_password_file": "the path of a file whose first line is the password",
}
_SSL_KEYS: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")


def clients_of(top: Part) -> list[Part]:
    """Return each section with the settings of a Kafka client that the proxy itself runs."""
    return [client for path in _CLIENTS if (client := top.find(*path)) is not None]


def _check_clients(top: Part, _: Document) -> Iterator[Finding]:
    for client in clients_of(top):
        at = client.at
        if at[-1] == "kafka" and "bootstrap_servers" not in client:
            message = "is missing; write brokers of the topic's cluster: HOST:PORT,HOST:PORT"
            yield error((*at, "bootstrap_servers"), message)
        protocol = client.get("security_protocol", SecurityProtocol.PLAINTEXT)
        if protocol is None:
            continue
        for key, what in _SASL_KEYS.items():
            if protocol.has_sasl and key not in client:
                yield error((*at, key), f"is missing; security_protocol {protocol.value} needs it: write {what}")
        unused = [] if protocol.has_sasl else [(key, "SASL_SSL") for key in _SASL_KEYS]
        unused += [] if protocol.has_tls else [(key, "SSL") for key in _SSL_KEYS]
        for key, example in unused:
            if key in client:
                message = f"has no effect with security_protocol {protocol.value}; write {example}, or remove this"
                yield error((*at, key), message)
        if "ssl_keyfile" in client and "ssl_certfile" not in client:
            yield error((*at, "ssl_certfile"), "is missing; ssl_keyfile has no effect without it")


def _check_quotas_from(top: Part, _: Document) -> Iterator[Finding]:
    section = top.find(*_QUOTAS_FROM)
    if section is not None and "kafka" not in section and "broker" not in section:
        yield error(_QUOTAS_FROM, "names no topic; give kafka, with bootstrap_servers and topic, or broker")
    if section is not None and "kafka" in section and "broker" in section:
        yield error((*_QUOTAS_FROM, "broker"), "cannot be given with kafka; remove one of them")


def _check_admins(top: Part, document: Document) -> Iterator[Finding]:
    """Report administrators whose name any client can take, and administrators who can change nothing."""
    principals = top.find("principals") or Part(())
    for index, name in enumerate(principals.find("admins") or ()):
        at = (*_ADMINS, index)
        if name == UNKNOWN:
            message = f"{UNKNOWN} is every client whose login cannot be read; name users, and let them log in with"
            yield error(at, f"{message} SCRAM")
        elif name == ANONYMOUS:
            yield warning(at, f"{ANONYMOUS} is every client without a login: all of them may change quotas")
    if "quotas_from" in top and principals.find("admins"):
        why = "administrators would see the quotas of this file, but none of the topic"
        if "broker" in (top.find(*_QUOTAS_FROM) or ()):
            why = "requests about quotas go to the broker, which stores them and checks permissions"
        line = document.line(_QUOTAS_FROM)
        yield error(_ADMINS, f"cannot be given with quotas_from in line {line}; {why}; leave out one of them")


def _check_store(top: Part, _: Document) -> Iterator[Finding]:
    """Report faults of ``store`` that concern several keys, and a store that nobody may change."""
    has_token = _TOKEN[1] in (top.find("admin") or ())
    store = top.find(*_STORE)
    if store is None:
        if has_token:
            yield warning(_TOKEN, "is for changing quotas, but quotas cannot be changed without a store")
        return
    if store.keys().isdisjoint(("directory", "kafka")):
        message = "has no location; give directory, or for several proxies kafka with bootstrap_servers and topic"
        yield error(_STORE, message)
    elif "directory" in store and "kafka" in store:
        yield error((*_STORE, "directory"), "cannot be given with kafka; quotas are stored in one of them")
    if "quotas_from" in top:
        yield error(_STORE, "cannot be given with quotas_from; remove one of them")
    elif not top.find(*_ADMINS) and not has_token:
        message = "has no user who may change quotas; name users in principals.admins"
        yield warning(_STORE, f"{message}, or give admin.quotas_token_file")


def _check_usage_log(top: Part, _: Document) -> Iterator[Finding]:
    """Report keys of ``usage_log`` that require others, and warn if a field of its records would be null."""
    section = top.find("usage_log")
    if section is None:
        return
    if "directory" not in section and "kafka" not in section:
        yield error(section.at, "has no destination; give directory for files, or kafka for a topic")
    if "directory" in section and "kafka" in section:
        yield error((*section.at, "directory"), "cannot be given with kafka; the log is written to one of them")
    for key in ("rotate_size", "rotate_interval", "retention_size"):
        if key in section and "directory" not in section:
            yield error((*section.at, key), "applies to files; give their directory, or remove this")
    if top.find("replication") is None:  # without it, the proxy does not ask the cluster for node ids
        for listener in top.parts("listeners"):
            if "upstream" in listener and "node_id" not in listener:
                message = "is missing, so that broker is null in the usage log; write the node id of the broker there"
                yield warning((*listener.at, "node_id"), message)


CHECKS: Final = (
    _check_clients,
    _check_quotas_from,
    _check_admins,
    _check_store,
    _check_usage_log,
)
