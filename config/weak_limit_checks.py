"""Warnings about keys that weaken limits: listeners that trust every client, extreme times, limits only observed."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from kafka_quota_proxy.config.document import Document, Location
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import Enforcement, KafkaSettings
from kafka_quota_proxy.config.principals import ANONYMOUS, UNKNOWN
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS
from kafka_quota_proxy.config.security import ClientAuth
from kafka_quota_proxy.config.units import parse_duration_ms
from kafka_quota_proxy.config.unvalidated import Report, address_of, elements, list_at, mapping_at

# One of Kafka's windows, which is also Kafka's own shortest bound of a throttle time.
_LEAST_THROTTLE_MS: Final = 1_000
# With a larger burst, a client may use twice its quota over a minute.
_MOST_BURST_MS: Final = 60_000
_DEFAULTS: Final = KafkaSettings()
_WINDOW_NUM: Final = "quota.window.num"
_WINDOW_SECONDS: Final = "quota.window.size.seconds"
_OBSERVE: Final = Enforcement.OBSERVE.value
_WHO: Final = {
    ANONYMOUS: "every client that does not log in",
    UNKNOWN: "every client whose login cannot be read",
}
_MAY: Final = {
    "exempt": "none of them has a limit",
    "brokers": "each of them may call itself a broker and fetch without a consumer's limit",
}


def check_weak_limits(document: Document, warn: Report) -> None:
    """Warn of each key that takes away the effect of limits."""
    _warn_of_trust(document, warn)
    _warn_of_everybody(document, warn)
    _warn_of_times(document, warn)
    _warn_of_observing(document, warn)


def _warn_of_trust(document: Document, warn: Report) -> None:
    """Warn of listeners that trust what clients say, and that any client can reach."""
    for index, listener in elements(document, "listeners"):
        bind = address_of(listener.get("bind"))
        if bind is None or _is_loopback(bind.host):
            continue
        if listener.get("inter_broker") is True and not _asks_for_certificates(listener):
            message = (
                f"every client that reaches {bind} may call itself a broker and fetch without a consumer's limit; bind "
                "to 127.0.0.1, ask for certificates (client_auth: required), or name the brokers' users in "
                "principals.brokers instead"
            )
            warn(("listeners", index, "inter_broker"), message)
        if listener.get("proxy_protocol") is True:
            message = (
                f"every client that reaches {bind} may state any address as its own; write {{from: [10.0.0.0/8]}} with "
                "the networks of your load balancers"
            )
            warn(("listeners", index, "proxy_protocol"), message)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _asks_for_certificates(listener: Mapping[str, object]) -> bool:
    client_tls = listener.get("client_tls")
    return isinstance(client_tls, dict) and client_tls.get("client_auth") == ClientAuth.REQUIRED.value


def _warn_of_everybody(document: Document, warn: Report) -> None:
    for key, may in _MAY.items():
        for index, name in enumerate(list_at(document, "principals", key)):
            who = _WHO.get(name) if isinstance(name, str) else None
            if who:
                message = f"{name} is {who}: {may}; name users that the broker vouches for"
                warn(("principals", key, index), message)


def _warn_of_times(document: Document, warn: Report) -> None:
    top = document.data if isinstance(document.data, dict) else {}
    most_ms = _duration_ms(top.get("max_throttle_time"))
    if most_ms is not None and 0 < most_ms < _LEAST_THROTTLE_MS:
        message = (
            "has clients that are over their quota come back before there can be room; write 1s or more, such as 25s"
        )
        warn(("max_throttle_time",), message)
    burst_ms = _duration_ms(top.get("burst"))
    if burst_ms is not None and burst_ms > _MOST_BURST_MS:
        message = f"lets an idle client send {burst_ms / 1_000:g} s of its quota at once; write 60s or less, such as 1s"
        warn(("burst",), message)
    _warn_of_windows(mapping_at(document, "kafka") or {}, warn)


def _warn_of_windows(kafka: Mapping[str, object], warn: Report) -> None:
    num = kafka.get(_WINDOW_NUM, _DEFAULTS.quota_window_num)
    size_seconds = kafka.get(_WINDOW_SECONDS, _DEFAULTS.quota_window_size_seconds)
    if not isinstance(num, int) or not isinstance(size_seconds, int):
        return
    burst_seconds = (num - 1) * size_seconds
    if burst_seconds * 1_000 > _MOST_BURST_MS:
        message = (
            f"with {num} windows of {size_seconds} s an idle client may send {burst_seconds} s of its quota at once; "
        )
        message += "make that 60 s or less (Kafka's defaults: 11 windows of 1 s, which make it 10 s)"
        warn(("kafka", _WINDOW_SECONDS if _WINDOW_SECONDS in kafka else _WINDOW_NUM), message)


def _duration_ms(value: object) -> int | None:
    try:
        return parse_duration_ms(value) if isinstance(value, str) else None
    except UnitError:
        return None


def _warn_of_observing(document: Document, warn: Report) -> None:
    """Warn if no limit is enforced. The rule's own enforcement comes first, then the listener's, then the file's."""
    top = document.data if isinstance(document.data, dict) else {}
    of_file = top.get("enforcement", Enforcement.RESPOND.value)
    of_listeners = [listener.get("enforcement", of_file) for _, listener in elements(document, "listeners")]
    of_rules = [
        rule.get("enforcement")
        for _, rule in elements(document, "quotas")
        if not rule.keys().isdisjoint(CLIENT_LIMIT_KEYS)
    ]
    if {"quotas_from", "store"} & top.keys():
        of_rules.append(None)  # there are rules elsewhere, which may not set it
    in_force = [listener if rule is None else rule for rule in of_rules for listener in of_listeners]
    if in_force and all(enforcement == _OBSERVE for enforcement in in_force):
        message = (
            "every limit is observed and none is enforced, so that no client is slowed; write respond to enforce them"
        )
        warn(_where_observed(document, of_file), message)


def _where_observed(document: Document, of_file: object) -> Location:
    """Return the location of the first key that sets it."""
    if of_file == _OBSERVE:
        return ("enforcement",)
    for section in ("listeners", "quotas"):
        for index, element in elements(document, section):
            if element.get("enforcement") == _OBSERVE:
                return (section, index, "enforcement")
    return ("enforcement",)
