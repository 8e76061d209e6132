"""Checks of ``replication``: keys that exclude or need each other, and settings without effect."""

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.document import Document, Location
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.security import SecurityProtocol
from kafka_quota_proxy.config.unvalidated import Report, addresses_of, elements, is_small, list_at, mapping_at, small

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_BOTH_SIDES: Final = "throttled.replicas"
_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_PATH_KEYS: Final = ("leader", "follower", "leader_rack", "follower_rack")
_SASL_KEYS: Final = ("sasl_mechanism", "sasl_username", "sasl_password_file")
_SSL_KEYS: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")
_MISSING: Final = {
    "sasl_mechanism": "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    "sasl_username": "the user to log in as",
    "sasl_password_file": "the path of a file whose first line is the password",
}
_AT: Final = ("replication",)


def check_replication(document: Document, report: Report, warn: Report) -> None:
    """Report faults that concern more than one key, ``node_id`` of listeners included."""
    _check_node_ids(document, report, warn)
    replication = mapping_at(document, *_AT)
    if replication is None:
        return
    _check_sources(replication, report, warn)
    _check_paths(document, report)
    _check_admin_client(document, report, warn)
    _check_who_is_asked(document, replication, report, warn)
    _warn_of_rates(document, replication, warn)
    _warn_of_nothing(document, replication, warn)
    _warn_of_part_of_a_follower(document, replication, warn)


def _check_sources(replication: Mapping[str, object], report: Report, warn: Report) -> None:
    """Report rates and lists that come from two places."""
    is_from_cluster = replication.get("from_cluster") is True
    for key in (*_RATES, _BOTH_SIDES, *_LISTS):
        if key not in replication:
            continue
        if is_from_cluster:
            report((*_AT, key), "cannot be given with from_cluster: true, which takes it from the cluster; remove one")
        elif key in _LISTS and _BOTH_SIDES in replication:
            report(
                (*_AT, key),
                f"cannot be given with {_BOTH_SIDES}, which is for both sides; give that, or a list per side",
            )
    if "lease" in replication and not is_from_cluster:
        warn((*_AT, "lease"), "has no effect without from_cluster: true; what this file says holds until it is changed")


def _check_paths(document: Document, report: Report) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for index, path in elements(document, *_AT, "paths"):
        ends = tuple(path.get(key) for key in _PATH_KEYS)
        if not all(isinstance(end, int | str | None) for end in ends) or not any(key in path for key in _PATH_KEYS):
            continue
        first = seen.setdefault(ends, index)
        if first != index:
            line = document.line((*_AT, "paths", first))
            report((*_AT, "paths", index), f"this path has a rate in line {line} already; keep one of them")


def _check_node_ids(document: Document, report: Report, warn: Report) -> None:
    """Report a broker with two node ids. Two addresses may be one broker, or have equal node ids in two clusters."""
    upstream_of: dict[int, tuple[frozenset[Address], int]] = {}
    node_id_of: dict[frozenset[Address], tuple[int, int]] = {}
    for index, listener in elements(document, "listeners"):
        node_id, location = listener.get("node_id"), ("listeners", index, "node_id")
        if "node_id" in listener and "bootstrap_servers" in listener:
            report(
                location, "belongs to upstream, which is one broker; those of a cluster tell their node ids themselves"
            )
            continue
        upstream = frozenset(addresses_of(listener.get("upstream")))
        if not isinstance(node_id, int) or isinstance(node_id, bool) or not upstream:
            continue
        line = document.line(location)
        other_upstream, first = upstream_of.setdefault(node_id, (upstream, line))
        if other_upstream != upstream:
            message = f"{node_id} is also the node id of the broker in line {first}, which has another address"
            warn(location, f"{message}: the two have one set of quotas if their cluster is one; else give each its own")
        other_node_id, first = node_id_of.setdefault(upstream, (node_id, line))
        if other_node_id != node_id:
            report(location, f"the same upstream has node id {other_node_id} in line {first}; a broker has one")


def _check_admin_client(document: Document, report: Report, warn: Report) -> None:
    location = (*_AT, "admin_client")
    settings = mapping_at(document, *location)
    if settings is None:
        if any(
            listener.get("inter_broker") is True and "upstream_tls" in listener for _, listener in _listeners(document)
        ):
            warn(location, "is missing, so the cluster is asked in plaintext, at brokers whose upstream_tls says TLS")
        return
    check_client(settings, location, report)


def check_client(settings: Mapping[str, object], location: Location, report: Report) -> None:
    """Report keys of an ``admin_client``, or of a section like it, that need or exclude each other."""
    given = settings.get("security_protocol", SecurityProtocol.PLAINTEXT.value)
    if given not in [known.value for known in SecurityProtocol]:
        return
    protocol = SecurityProtocol(given)
    for key, what in _MISSING.items():
        if protocol.has_sasl and key not in settings:
            report((*location, key), f"is missing; security_protocol {given} needs it: write {what}")
    for keys, is_used, example in ((_SASL_KEYS, protocol.has_sasl, "SASL_SSL"), (_SSL_KEYS, protocol.has_tls, "SSL")):
        for key in keys:
            if key in settings and not is_used:
                report(
                    (*location, key), f"has no effect with security_protocol {given}; write {example}, or remove this"
                )
    if "ssl_keyfile" in settings and "ssl_certfile" not in settings:
        report((*location, "ssl_certfile"), "is missing; ssl_keyfile is of no use without it")


def check_topic(document: Document, at: tuple[str, ...], report: Report) -> None:
    """Report faults of a ``kafka:`` section: the topic's cluster, and the login there."""
    topic = mapping_at(document, *at, "kafka")
    if topic is None:
        return
    location = (*at, "kafka")
    if "bootstrap_servers" not in topic:
        message = "is missing; write brokers of the topic's cluster: HOST:PORT,HOST:PORT"
        report((*location, "bootstrap_servers"), message)
    check_client(topic, location, report)


def _check_who_is_asked(document: Document, replication: Mapping[str, object], report: Report, warn: Report) -> None:
    """Report settings that need a cluster to ask, if no broker is given."""
    settings = mapping_at(document, *_AT, "admin_client") or {}
    listeners = list(_listeners(document))
    if "bootstrap_servers" in settings or any(listener.get("inter_broker") is True for _, listener in listeners):
        return
    cure = "give admin_client.bootstrap_servers, or inter_broker: true to the listener in front of a broker"
    if replication.get("from_cluster") is True:
        report((*_AT, "from_cluster"), f"there is no broker to ask; {cure}")
    for key in (_BOTH_SIDES, *_LISTS):
        if replication.get(key):
            message = "there is no broker to ask for topic ids: followers that use them, from Kafka 3.1 on, go free"
            warn((*_AT, key), f"{message}; {cure}")
    has_node_ids = all("node_id" in listener for _, listener in listeners)
    for index, path in elements(document, *_AT, "paths"):
        for key in _PATH_KEYS:
            if key in path and ("rack" in key or (key == "leader" and not has_node_ids)):
                report(
                    (*_AT, "paths", index, key),
                    f"there is no broker to ask for {'racks' if 'rack' in key else 'node ids'}; {cure}",
                )


def _warn_of_rates(document: Document, replication: Mapping[str, object], warn: Report) -> None:
    places: list[tuple[Location, object]] = [((*_AT, key), replication.get(key)) for key in _RATES]
    places += [((*_AT, "paths", index, "rate"), path.get("rate")) for index, path in elements(document, *_AT, "paths")]
    for location, rate in places:
        if is_small(rate):
            warn(location, f"{small(rate)} Kafka advises 1MB and more, for a throttle is only as fine as a fetch")


def _warn_of_nothing(document: Document, replication: Mapping[str, object], warn: Report) -> None:
    is_believed = any(listener.get("inter_broker") is True for _, listener in _listeners(document))
    if not is_believed and not list_at(document, "principals", "brokers"):
        message = "nothing is throttled: replicas are recognised on listeners with "
        warn(_AT, f"{message}inter_broker: true, and as one of principals.brokers; there are neither")
    if not any(key in replication for key in (*_RATES, "paths")) and replication.get("from_cluster") is not True:
        warn(_AT, f"nothing is throttled, for there is no rate; give {_RATES[0]}, paths or from_cluster: true")


def _warn_of_part_of_a_follower(document: Document, replication: Mapping[str, object], warn: Report) -> None:
    """Warn that a follower rate covers only the fetches that pass this proxy."""
    believed = [listener for _, listener in _listeners(document) if listener.get("inter_broker") is True]
    upstreams = {address for listener in believed for address in addresses_of(listener.get("upstream"))}
    if _RATES[1] in replication and len(upstreams) == 1 and all("upstream" in listener for listener in believed):
        message = f"holds for what a follower fetches from {next(iter(upstreams))} alone, the one broker behind this "
        message += "proxy: from several leaders behind a proxy each, a follower may fetch that much from every one"
        warn((*_AT, _RATES[1]), f"{message}; let one proxy serve all brokers, or give each proxy its share of the rate")


def _listeners(document: Document) -> list[tuple[int, dict[str, object]]]:
    return list(elements(document, "listeners"))
