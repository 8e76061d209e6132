"""Checks ``replication`` for keys that exclude or need each other, and for settings without effect."""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.rule_reach_checks import small_rate
from kafka_quota_proxy.config.sections import Part

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_BOTH_SIDES: Final = "throttled.replicas"
_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_AT: Final = ("replication",)


def _check_node_ids(top: Part, document: Document) -> Iterator[Finding]:
    """Report an upstream with two node ids, and warn of a node id with two upstreams."""
    upstream_of: dict[int, tuple[Address, int]] = {}
    node_id_of: dict[Address, tuple[int, int]] = {}
    for listener in top.parts("listeners"):
        node_id, upstream, at = listener.get("node_id"), listener.get("upstream"), (*listener.at, "node_id")
        if "node_id" in listener and "bootstrap_servers" in listener:
            message = "belongs to upstream, which is one broker; the brokers of a cluster give their own node ids"
            yield error(at, message)
            continue
        if node_id is None or upstream is None:
            continue
        line = document.line(at)
        other_upstream, first = upstream_of.setdefault(node_id, (upstream, line))
        if other_upstream != upstream:
            message = f"{node_id} is also the node id of the broker in line {first}, which has another address: the two"
            message += " share their quotas if they are in one cluster; otherwise give each its own node id"
            yield warning(at, message)
        other_node_id, first = node_id_of.setdefault(upstream, (node_id, line))
        if other_node_id != node_id:
            yield error(at, f"the same upstream has node id {other_node_id} in line {first}; a broker has one")


def _check_replication(top: Part, document: Document) -> Iterator[Finding]:
    replication = top.find(*_AT)
    if replication is not None:
        # A listener with an invalid value counts, too, because the value may be meant to be true.
        inter_broker = [
            listener for listener in top.parts("listeners") if listener.get("inter_broker", False) is not False
        ]
        yield from _check_sources(replication)
        if "admin_client" not in replication and any(
            "upstream_tls" in one for one in inter_broker if one["inter_broker"]
        ):
            message = "is missing, so the cluster is asked in plaintext, at brokers whose upstream_tls says TLS"
            yield warning((*_AT, "admin_client"), message)
        if not inter_broker:
            yield from _check_brokers_to_ask(replication)
        yield from _warn_of_rates(replication)
        if not inter_broker and not top.find("principals", "brokers"):
            message = "nothing is throttled: replicas are recognised on listeners with inter_broker: true, and as one"
            yield warning(_AT, f"{message} of principals.brokers; the file has neither")
        if replication.keys().isdisjoint(_RATES) and replication.get("from_cluster", False) is False:
            message = f"nothing is throttled, because there is no rate; give {_RATES[0]} or from_cluster: true"
            yield warning(_AT, message)
        yield from _warn_of_part_of_a_follower(replication, inter_broker)


def _check_sources(replication: Part) -> Iterator[Finding]:
    """Report rates and lists of replicas that are given in two ways, and a ``lease`` that has no effect."""
    is_from_cluster = replication.get("from_cluster", False)
    for key in (*_RATES, _BOTH_SIDES, *_LISTS):
        if key in replication and is_from_cluster:
            message = "cannot be given with from_cluster: true, which takes it from the cluster; remove one"
            yield error((*_AT, key), message)
        elif key in replication and key in _LISTS and _BOTH_SIDES in replication:
            message = f"cannot be given with {_BOTH_SIDES}, which is for both sides; give that, or a list per side"
            yield error((*_AT, key), message)
    if "lease" in replication and is_from_cluster is False:
        message = "has no effect without from_cluster: true; what this file says holds until it is changed"
        yield warning((*_AT, "lease"), message)


def _check_brokers_to_ask(replication: Part) -> Iterator[Finding]:
    """Report settings that need information from a broker, if the file names no broker that the proxy could ask.

    The information is topic ids, or the cluster's dynamic configs.
    """
    if "bootstrap_servers" in (replication.find("admin_client") or ()):
        return
    cure = "give admin_client.bootstrap_servers, or inter_broker: true to the listener in front of a broker"
    if replication.get("from_cluster"):
        yield error((*_AT, "from_cluster"), f"there is no broker to ask; {cure}")
    for key in (_BOTH_SIDES, *_LISTS):
        if replication.get(key):
            message = "there is no broker to ask for topic ids: followers that use them are not throttled"
            yield warning((*_AT, key), f"{message}; {cure}")


def _warn_of_rates(replication: Part) -> Iterator[Finding]:
    for key in _RATES:
        if message := small_rate(replication.get(key)):
            message += " Kafka advises 1MB and more, because a throttle works in steps of whole fetches"
            yield warning((*_AT, key), message)


def _warn_of_part_of_a_follower(replication: Part, inter_broker: list[Part]) -> Iterator[Finding]:
    """Warn if the rate limit for followers covers only what a follower fetches from one leader.

    If only one broker is behind this proxy, the proxy does not see what the follower fetches from other leaders.
    """
    upstreams = {listener["inter_broker"] and listener.get("upstream") for listener in inter_broker}
    if _RATES[1] in replication and len(upstreams) == 1 and None not in upstreams:
        message = f"holds for what a follower fetches from {upstreams.pop()} alone, the one broker behind this "
        message += "proxy: from several leaders behind a proxy each, a follower may fetch that much from every one"
        message += "; let one proxy serve all brokers, or give each proxy its share of the rate"
        yield warning((*_AT, _RATES[1]), message)


CHECKS: Final = (_check_node_ids, _check_replication)
