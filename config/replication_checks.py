"""Checks ``replication`` for keys that exclude or need each other, and for settings without effect."""

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.document import Location
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.security import SecurityProtocol
from kafka_quota_proxy.config.unvalidated import UncheckedFile, addresses_of, small_rate

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_BOTH_SIDES: Final = "throttled.replicas"
_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_PATH_KEYS: Final = ("leader", "follower", "leader_rack", "follower_rack")
_SASL_KEYS: Final = {
    "sasl_mechanism": "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    "sasl_username": "the user to log in as",
    "sasl_password_file": "the path of a file whose first line is the password",
}
_SSL_KEYS: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")
_KEY: Final = "replication"
_AT: Final = (_KEY,)


def check_replication(file: UncheckedFile) -> None:
    """Report faults of ``replication`` and of the listeners' ``node_id`` that concern more than one key."""
    _check_node_ids(file)
    replication = file.mapping_at(_KEY)
    if replication is not None:
        listeners = [listener for _, listener in file.elements("listeners")]
        inter_broker = [listener for listener in listeners if listener.get("inter_broker") is True]
        _check_sources(file, replication)
        _check_paths(file)
        _check_admin_client(file, inter_broker)
        if not inter_broker:
            _check_brokers_to_ask(file, replication, has_node_ids=all("node_id" in one for one in listeners))
        _warn_of_rates(file, replication)
        _warn_of_nothing(file, replication, inter_broker)
        _warn_of_part_of_a_follower(file, replication, inter_broker)


def _check_node_ids(file: UncheckedFile) -> None:
    """Report an upstream with two node ids, and warn of a node id with two upstreams."""
    upstream_of: dict[int, tuple[frozenset[Address], int]] = {}
    node_id_of: dict[frozenset[Address], tuple[int, int]] = {}
    for at, listener in file.elements("listeners"):
        node_id, location = listener.get("node_id"), (*at, "node_id")
        if "node_id" in listener and "bootstrap_servers" in listener:
            message = "belongs to upstream, which is one broker; the brokers of a cluster give their own node ids"
            file.error(location, message)
            continue
        upstream = frozenset(addresses_of(listener.get("upstream")))
        if not isinstance(node_id, int) or isinstance(node_id, bool) or not upstream:
            continue
        line = file.line(location)
        other_upstream, first = upstream_of.setdefault(node_id, (upstream, line))
        if other_upstream != upstream:
            message = f"{node_id} is also the node id of the broker in line {first}, which has another address: the two"
            file.warn(
                location,
                f"{message} share their quotas if they are in one cluster; otherwise give each its own node id",
            )
        other_node_id, first = node_id_of.setdefault(upstream, (node_id, line))
        if other_node_id != node_id:
            file.error(location, f"the same upstream has node id {other_node_id} in line {first}; a broker has one")


def _check_sources(file: UncheckedFile, replication: Mapping[str, object]) -> None:
    """Report rates and lists of replicas that are given in two ways, and a ``lease`` that has no effect."""
    is_from_cluster = replication.get("from_cluster") is True
    for key in (*_RATES, _BOTH_SIDES, *_LISTS):
        if key in replication and is_from_cluster:
            message = "cannot be given with from_cluster: true, which takes it from the cluster; remove one"
            file.error((_KEY, key), message)
        elif key in replication and key in _LISTS and _BOTH_SIDES in replication:
            message = f"cannot be given with {_BOTH_SIDES}, which is for both sides; give that, or a list per side"
            file.error((_KEY, key), message)
    if "lease" in replication and not is_from_cluster:
        message = "has no effect without from_cluster: true; what this file says holds until it is changed"
        file.warn((_KEY, "lease"), message)


def _check_paths(file: UncheckedFile) -> None:
    first_of: dict[tuple[object, ...], Location] = {}
    for at, path in file.elements(_KEY, "paths"):
        ends = tuple(path.get(key) for key in _PATH_KEYS)
        if not all(isinstance(end, int | str | None) for end in ends) or not any(key in path for key in _PATH_KEYS):
            continue
        first = first_of.setdefault(ends, at)
        if first != at:
            file.error(at, f"this path has a rate in line {file.line(first)} already; keep one of them")


def _check_admin_client(file: UncheckedFile, inter_broker: list[dict[str, object]]) -> None:
    if file.mapping_at(_KEY, "admin_client") is not None:
        check_client(file, _KEY, "admin_client")
    elif any("upstream_tls" in listener for listener in inter_broker):
        message = "is missing, so the cluster is asked in plaintext, at brokers whose upstream_tls says TLS"
        file.warn((_KEY, "admin_client"), message)


def check_client(file: UncheckedFile, *at: str) -> None:
    """Report keys of a Kafka client's settings, in the section at ``at``, that need or exclude each other."""
    settings = file.mapping_at(*at) or {}
    given = settings.get("security_protocol", SecurityProtocol.PLAINTEXT.value)
    if given not in [known.value for known in SecurityProtocol]:
        return
    protocol = SecurityProtocol(given)
    for key, what in _SASL_KEYS.items():
        if protocol.has_sasl and key not in settings:
            file.error((*at, key), f"is missing; security_protocol {given} needs it: write {what}")
    for keys, is_used, example in ((_SASL_KEYS, protocol.has_sasl, "SASL_SSL"), (_SSL_KEYS, protocol.has_tls, "SSL")):
        for key in keys:
            if key in settings and not is_used:
                message = f"has no effect with security_protocol {given}; write {example}, or remove this"
                file.error((*at, key), message)
    if "ssl_keyfile" in settings and "ssl_certfile" not in settings:
        file.error((*at, "ssl_certfile"), "is missing; ssl_keyfile has no effect without it")


def check_topic(file: UncheckedFile, section: str) -> None:
    """Report faults of a section's key ``kafka``, whose value is a topic with the settings of a Kafka client for it."""
    topic = file.mapping_at(section, "kafka")
    if topic is not None:
        if "bootstrap_servers" not in topic:
            message = "is missing; write brokers of the topic's cluster: HOST:PORT,HOST:PORT"
            file.error((section, "kafka", "bootstrap_servers"), message)
        check_client(file, section, "kafka")


def _check_brokers_to_ask(file: UncheckedFile, replication: Mapping[str, object], *, has_node_ids: bool) -> None:
    """Report settings that need information from a broker, if the file names no broker that the proxy could ask.

    The information is node ids, racks, topic ids, or the cluster's dynamic configs.
    """
    if "bootstrap_servers" in (file.mapping_at(_KEY, "admin_client") or {}):
        return
    cure = "give admin_client.bootstrap_servers, or inter_broker: true to the listener in front of a broker"
    if replication.get("from_cluster") is True:
        file.error((_KEY, "from_cluster"), f"there is no broker to ask; {cure}")
    for key in (_BOTH_SIDES, *_LISTS):
        if replication.get(key):
            message = "there is no broker to ask for topic ids: followers that use them are not throttled"
            file.warn((_KEY, key), f"{message}; {cure}")
    for at, path in file.elements(_KEY, "paths"):
        for key in _PATH_KEYS:
            what = "racks" if "rack" in key else "node ids"
            if key in path and ("rack" in key or (key == "leader" and not has_node_ids)):
                file.error((*at, key), f"there is no broker to ask for {what}; {cure}")


def _warn_of_rates(file: UncheckedFile, replication: Mapping[str, object]) -> None:
    places: list[tuple[Location, object]] = [((_KEY, key), replication.get(key)) for key in _RATES]
    places += [((*at, "rate"), path.get("rate")) for at, path in file.elements(_KEY, "paths")]
    for location, rate in places:
        if warning := small_rate(rate):
            file.warn(
                location, f"{warning} Kafka advises 1MB and more, because a throttle works in steps of whole fetches"
            )


def _warn_of_nothing(
    file: UncheckedFile, replication: Mapping[str, object], inter_broker: list[dict[str, object]]
) -> None:
    if not inter_broker and not file.list_at("principals", "brokers"):
        message = "nothing is throttled: replicas are recognised on listeners with inter_broker: true, and as one of"
        file.warn(_AT, f"{message} principals.brokers; the file has neither")
    if not any(key in replication for key in (*_RATES, "paths")) and replication.get("from_cluster") is not True:
        file.warn(_AT, f"nothing is throttled, because there is no rate; give {_RATES[0]}, paths or from_cluster: true")


def _warn_of_part_of_a_follower(
    file: UncheckedFile, replication: Mapping[str, object], inter_broker: list[dict[str, object]]
) -> None:
    """Warn if the rate limit for followers covers only what a follower fetches from one leader.

    If only one broker is behind this proxy, the proxy does not see what the follower fetches from other leaders.
    """
    upstreams = {address for listener in inter_broker for address in addresses_of(listener.get("upstream"))}
    if _RATES[1] in replication and len(upstreams) == 1 and all("upstream" in listener for listener in inter_broker):
        message = f"holds for what a follower fetches from {next(iter(upstreams))} alone, the one broker behind this "
        message += "proxy: from several leaders behind a proxy each, a follower may fetch that much from every one"
        message += "; let one proxy serve all brokers, or give each proxy its share of the rate"
        file.warn((_KEY, _RATES[1]), message)
