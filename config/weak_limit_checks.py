"""Warns of settings that make limits ineffective, such as trust in what clients claim, or ``enforcement: observe``.

Also checks the key ``testing``, which lets anybody who reaches the admin port throttle clients.
"""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.addresses import is_loopback
from kafka_quota_proxy.config.document import Document, Finding, Location, error, warning
from kafka_quota_proxy.config.model import Enforcement, KafkaSettings
from kafka_quota_proxy.config.principals import ANONYMOUS, UNKNOWN
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.security import ClientAuth

# The size of one of Kafka's windows, which is also the shortest maximum of the throttle time in Kafka.
_LEAST_THROTTLE_MS: Final = 1_000
# With a larger burst, a client could use more than twice its quota within a minute.
_MOST_BURST_MS: Final = 60_000
_DEFAULTS: Final = KafkaSettings()
_WINDOW_NUM: Final = "quota.window.num"
_WINDOW_SECONDS: Final = "quota.window.size.seconds"
_CLIENTS_OF: Final = {
    ANONYMOUS: "every client that does not log in",
    UNKNOWN: "every client whose login cannot be read",
}
_MAY: Final = {
    "exempt": "none of them has a limit",
    "brokers": "each of them may call itself a broker and fetch without a consumer's limit",
}


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
    for key, may in _MAY.items():
        for index, name in enumerate(top.find("principals", key) or ()):
            if name in _CLIENTS_OF:
                message = f"{name} is {_CLIENTS_OF[name]}: {may}; name users that the broker authenticates"
                yield warning(("principals", key, index), message)


def _warn_of_times(top: Part, _: Document) -> Iterator[Finding]:
    most_ms, burst_ms = top.get("max_throttle_time"), top.get("burst")
    if most_ms is not None and most_ms < _LEAST_THROTTLE_MS:
        message = "lets clients over their quota retry too soon; write 1s or more"
        yield warning(("max_throttle_time",), f"{message}, such as 25s")
    if burst_ms is not None and burst_ms > _MOST_BURST_MS:
        message = f"lets an idle client send {burst_ms / 1_000:g} s of its quota at once; write 60s or less, such as 1s"
        yield warning(("burst",), message)


def _warn_of_windows(top: Part, _: Document) -> Iterator[Finding]:
    kafka = top.find("kafka") or Part(())
    num = kafka.get(_WINDOW_NUM, _DEFAULTS.quota_window_num)
    size_seconds = kafka.get(_WINDOW_SECONDS, _DEFAULTS.quota_window_size_seconds)
    if num is None or size_seconds is None:
        return
    burst_seconds = (num - 1) * size_seconds
    if burst_seconds * 1_000 > _MOST_BURST_MS:
        message = f"with {num} windows of {size_seconds} s an idle client may send {burst_seconds} s of its quota at "
        message += "once; make that 60 s or less (Kafka's defaults: 11 windows of 1 s, which make it 10 s)"
        yield warning(("kafka", _WINDOW_SECONDS if _WINDOW_SECONDS in kafka else _WINDOW_NUM), message)


def _warn_of_observing(top: Part, _: Document) -> Iterator[Finding]:
    """Warn if every limit has ``enforcement: observe``, so that no client is ever slowed."""
    listeners, rules = top.parts("listeners"), top.parts("quotas")
    of_file = top.get("enforcement", Enforcement.RESPOND)
    of_listeners = [listener.get("enforcement", of_file) for listener in listeners]
    in_force: list[Enforcement | None] = []
    for rule in rules:
        if not rule.keys().isdisjoint(CLIENT_LIMIT_KEYS):
            in_force += [rule["enforcement"]] if "enforcement" in rule else of_listeners
    if {"quotas_from", "store"} & top.keys():
        in_force += of_listeners  # rules in other places may not set their enforcement
    if set(in_force) == {Enforcement.OBSERVE}:
        observed = (one.at for one in listeners + rules if one.get("enforcement") is Enforcement.OBSERVE)
        at: Location = () if of_file is Enforcement.OBSERVE else next(observed)
        message = "every limit is observed and none is enforced, so that no client is slowed; write respond to enforce"
        yield warning((*at, "enforcement"), f"{message} them")


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
    _warn_of_times,
    _warn_of_windows,
    _warn_of_observing,
    _check_testing,
)
