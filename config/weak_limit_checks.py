"""Warns of settings that make limits ineffective, such as trust in what clients claim.

Also checks the key ``testing``, which lets anybody who reaches the admin port throttle clients.
"""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.addresses import is_loopback
from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.principals import ANONYMOUS, UNKNOWN
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.security import ClientAuth


def _warn_of_trust(top: Part, _: Document) -> Iterator[Finding]:
    """Warn of listeners at which any client on another machine can pretend to be a broker, or to have any address."""
    for listener in top.parts("listeners"):
        bind, proxy_protocol = listener.get("bind"), listener.get("proxy_protocol")
        if bind is None or is_loopback(bind.host):
            continue
        client_auth = listener.find("client_tls", "client_auth")
        if listener.get("inter_broker") and client_auth is not ClientAuth.REQUIRED:
            message = f"every client that reaches {bind} may call itself a broker and fetch without a consumer's limit"
            message += "; bind to 127.0.0.1, ask for certificates (client_auth: required)"
            message += ", or name the brokers' users in principals.brokers instead"
            yield warning((*listener.at, "inter_broker"), message)
        if proxy_protocol is not None and not proxy_protocol.sources:
            message = f"every client that reaches {bind} may state any address as its own; write {{from: [10.0.0.0/8]}}"
            yield warning((*listener.at, "proxy_protocol"), f"{message} with the networks of your load balancers")


def _warn_of_users(top: Part, _: Document) -> Iterator[Finding]:
    for key in ("exempt", "brokers"):
        for index, name in enumerate(top.find("principals", key) or ()):
            if name in (ANONYMOUS, UNKNOWN):
                message = f"{name} is every client without a login that can be read: all of them escape limits"
                yield warning(("principals", key, index), f"{message}; name users that the broker authenticates")


def _check_testing(top: Part, _: Document) -> Iterator[Finding]:
    """Report ``testing: true`` without an admin port, and warn if other machines may reach that port."""
    if not top.get("testing"):
        return
    if "admin" not in top:
        yield error(("testing",), "needs the admin port; add the section admin with bind: 127.0.0.1:9644")
    bind = top.find("admin", "bind")
    if bind is not None and not is_loopback(bind.host):
        message = f"{bind} can be reached from other machines, and with testing: true anybody there can throttle"
        yield warning(("admin", "bind"), f"{message} your clients and replace their quotas; bind to 127.0.0.1")


CHECKS: Final = (
    _warn_of_trust,
    _warn_of_users,
    _check_testing,
)
