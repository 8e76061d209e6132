"""Warns of settings that make limits ineffective, such as trust in what clients claim, or ``enforcement: observe``."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from kafka_quota_proxy.config.document import Location
from kafka_quota_proxy.config.model import Enforcement, KafkaSettings
from kafka_quota_proxy.config.principals import ANONYMOUS, UNKNOWN
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS
from kafka_quota_proxy.config.security import ClientAuth
from kafka_quota_proxy.config.units import parse_duration_ms
from kafka_quota_proxy.config.unvalidated import UncheckedFile, address_of, parsed

# The size of one of Kafka's windows, which is also the shortest maximum of the throttle time in Kafka.
_LEAST_THROTTLE_MS: Final = 1_000
# With a larger burst, a client could use more than twice its quota within a minute.
_MOST_BURST_MS: Final = 60_000
_DEFAULTS: Final = KafkaSettings()
_WINDOW_NUM: Final = "quota.window.num"
_WINDOW_SECONDS: Final = "quota.window.size.seconds"
_OBSERVE: Final = Enforcement.OBSERVE.value
_CLIENTS_OF: Final = {
    ANONYMOUS: "every client that does not log in",
    UNKNOWN: "every client whose login cannot be read",
}
_MAY: Final = {
    "exempt": "none of them has a limit",
    "brokers": "each of them may call itself a broker and fetch without a consumer's limit",
}


def check_weak_limits(file: UncheckedFile) -> None:
    """Warn of every setting in the configuration file that makes limits on clients ineffective."""
    _warn_of_trust(file)
    for key, may in _MAY.items():
        for index, name in enumerate(file.list_at("principals", key)):
            if isinstance(name, str) and name in _CLIENTS_OF:
                message = f"{name} is {_CLIENTS_OF[name]}: {may}; name users that the broker authenticates"
                file.warn(("principals", key, index), message)
    _warn_of_times(file)
    _warn_of_windows(file)
    _warn_of_observing(file)


def _warn_of_trust(file: UncheckedFile) -> None:
    """Warn of listeners at which any client on another machine can pretend to be a broker, or to have any address."""
    for at, listener in file.elements("listeners"):
        bind = address_of(listener.get("bind"))
        if bind is None or _is_loopback(bind.host):
            continue
        if listener.get("inter_broker") is True and not _asks_for_certificates(listener):
            message = f"every client that reaches {bind} may call itself a broker and fetch without a consumer's limit"
            message += "; bind to 127.0.0.1, ask for certificates (client_auth: required)"
            file.warn((*at, "inter_broker"), f"{message}, or name the brokers' users in principals.brokers instead")
        if listener.get("proxy_protocol") is True:
            message = f"every client that reaches {bind} may state any address as its own; write {{from: [10.0.0.0/8]}}"
            file.warn((*at, "proxy_protocol"), f"{message} with the networks of your load balancers")


def _is_loopback(host: str) -> bool:
    address = parsed(ip_address, host)
    return host == "localhost" if address is None else address.is_loopback


def _asks_for_certificates(listener: Mapping[str, object]) -> bool:
    client_tls = listener.get("client_tls")
    return isinstance(client_tls, dict) and client_tls.get("client_auth") == ClientAuth.REQUIRED.value


def _warn_of_times(file: UncheckedFile) -> None:
    most_ms = parsed(parse_duration_ms, file.top.get("max_throttle_time"))
    burst_ms = parsed(parse_duration_ms, file.top.get("burst"))
    if most_ms is not None and 0 < most_ms < _LEAST_THROTTLE_MS:
        message = "lets clients over their quota retry too soon; write 1s or more"
        file.warn(("max_throttle_time",), f"{message}, such as 25s")
    if burst_ms is not None and burst_ms > _MOST_BURST_MS:
        message = f"lets an idle client send {burst_ms / 1_000:g} s of its quota at once; write 60s or less, such as 1s"
        file.warn(("burst",), message)


def _warn_of_windows(file: UncheckedFile) -> None:
    kafka = file.mapping_at("kafka") or {}
    num = kafka.get(_WINDOW_NUM, _DEFAULTS.quota_window_num)
    size_seconds = kafka.get(_WINDOW_SECONDS, _DEFAULTS.quota_window_size_seconds)
    if not isinstance(num, int) or not isinstance(size_seconds, int):
        return
    burst_seconds = (num - 1) * size_seconds
    if burst_seconds * 1_000 > _MOST_BURST_MS:
        message = f"with {num} windows of {size_seconds} s an idle client may send {burst_seconds} s of its quota at "
        message += "once; make that 60 s or less (Kafka's defaults: 11 windows of 1 s, which make it 10 s)"
        file.warn(("kafka", _WINDOW_SECONDS if _WINDOW_SECONDS in kafka else _WINDOW_NUM), message)


def _warn_of_observing(file: UncheckedFile) -> None:
    """Warn if every limit has ``enforcement: observe``, so that no client is ever slowed."""
    of_file = file.top.get("enforcement", Enforcement.RESPOND.value)
    of_listeners = [listener.get("enforcement", of_file) for _, listener in file.elements("listeners")]
    of_rules = [
        rule.get("enforcement") for _, rule in file.elements("quotas") if not rule.keys().isdisjoint(CLIENT_LIMIT_KEYS)
    ]
    if {"quotas_from", "store"} & file.top.keys():
        of_rules.append(None)  # rules in other places may not set their enforcement
    in_force = [listener if rule is None else rule for rule in of_rules for listener in of_listeners]
    if in_force and all(enforcement == _OBSERVE for enforcement in in_force):
        message = "every limit is observed and none is enforced, so that no client is slowed; write respond to enforce"
        file.warn(_first_observed(file, of_file), f"{message} them")


def _first_observed(file: UncheckedFile, of_file: object) -> Location:
    """Return the location of the first ``enforcement`` key with the value ``observe``."""
    places = (at for section in ("listeners", "quotas") for at, one in file.elements(section) if _observes(one))
    return ("enforcement",) if of_file == _OBSERVE else (*next(places, ()), "enforcement")


def _observes(element: Mapping[str, object]) -> bool:
    return element.get("enforcement") == _OBSERVE
