"""Checks ``replication`` for keys that exclude or need each other, and for settings without effect."""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.sections import Part

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS: Final = "throttled.replicas"
_AT: Final = ("replication",)


def _check_node_ids(top: Part, document: Document) -> Iterator[Finding]:
    """Report an upstream with two node ids, and a cluster with one."""
    first: dict[Address, tuple[int, int]] = {}
    for listener in top.parts("listeners"):
        node_id, upstream, at = listener.get("node_id"), listener.get("upstream"), (*listener.at, "node_id")
        if "node_id" in listener and "bootstrap_servers" in listener:
            message = "belongs to upstream, which is one broker; the brokers of a cluster give their own node ids"
            yield error(at, message)
        elif node_id is not None and upstream is not None:
            other, line = first.setdefault(upstream, (node_id, document.line(at)))
            if other != node_id:
                yield error(at, f"the same upstream has node id {other} in line {line}; a broker has one")


def _check_replication(top: Part, document: Document) -> Iterator[Finding]:
    replication = top.find(*_AT)
    if replication is not None:
        # A listener with an invalid value counts, too, because the value may be meant to be true.
        inter_broker = [
            listener for listener in top.parts("listeners") if listener.get("inter_broker", False) is not False
        ]
        yield from _check_sources(replication)
        if not inter_broker:
            yield from _check_brokers_to_ask(replication)
        if not inter_broker and not top.find("principals", "brokers"):
            message = "nothing is throttled: replicas are recognised on listeners with inter_broker: true, and as one"
            yield warning(_AT, f"{message} of principals.brokers; the file has neither")
        if replication.keys().isdisjoint(RATES) and replication.get("from_cluster", False) is False:
            message = f"nothing is throttled, because there is no rate; give {RATES[0]} or from_cluster: true"
            yield warning(_AT, message)


def _check_sources(replication: Part) -> Iterator[Finding]:
    """Report rates and replicas that are given in two ways."""
    is_from_cluster = replication.get("from_cluster", False)
    for key in (*RATES, _REPLICAS):
        if key in replication and is_from_cluster:
            message = "cannot be given with from_cluster: true, which takes it from the cluster; remove one"
            yield error((*_AT, key), message)


def _check_brokers_to_ask(replication: Part) -> Iterator[Finding]:
    """Report settings that need information from a broker, if the file names no broker that the proxy could ask.

    The information is topic ids, or the cluster's dynamic configs.
    """
    if "bootstrap_servers" in (replication.find("admin_client") or ()):
        return
    cure = "give admin_client.bootstrap_servers, or inter_broker: true to the listener in front of a broker"
    if replication.get("from_cluster"):
        yield error((*_AT, "from_cluster"), f"there is no broker to ask; {cure}")
    if replication.get(_REPLICAS):
        message = "there is no broker to ask for topic ids: followers that use them are not throttled"
        yield warning((*_AT, _REPLICAS), f"{message}; {cure}")


CHECKS: Final = (_check_node_ids, _check_replication)
