"""Recognises Kafka's own client metrics by the names that exporters give them. Does no I/O.

A broker has an MBean ``kafka.server:type=Produce,user=alice,client-id=etl`` for each client under a quota, with the
attributes ``byte-rate`` and ``throttle-time``. There is also one with ``type=Fetch``, and one with ``type=Request``,
whose rate is ``request-time``. Properties without a value are missing. Kafka writes the user percent-encoded, and an
MBean's name has quotes around a value with special characters. Prometheus' JMX exporter keeps both:

======================================  ===========================================================================
No rules, or only lower case            ``kafka_server_Produce_byte_rate{user, client_id}``
The rules of jmx-monitoring-stacks      ``kafka_server_produce_byte_rate{user, client_id}``
The exporter's example for Kafka        ``kafka_server_quota_byte_rate{resource="Produce", user, clientId}``
Older copies of this example            the same without ``user``, and with ``resource="Produce, user=alice"``
======================================  ===========================================================================
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

RATE: Final = "rate"
THROTTLE: Final = "throttle"

_KINDS: Final = ("produce", "fetch", "request")
_QUANTITIES: Final = {"byte_rate": RATE, "request_time": RATE, "throttle_time": THROTTLE}
_CLIENT_ID_LABELS: Final = ("client_id", "clientId", "clientid", "client")
_TYPE_LABELS: Final = ("resource", "type", "quota_type")
BROKER_LABELS: Final = ("broker", "broker_id", "brokerId", "node_id", "nodeId", "kafka_broker", "kafka_broker_id")
_INSTANCE: Final = "instance"
# Matches the name of a metric, here and as a matcher of Prometheus.
NAME_PATTERN: Final = "(?i:kafka_server_(?:quota_)?(?:(produce|fetch|request)_)?(byte_rate|request_time|throttle_time))"
_NAME: Final = re.compile(NAME_PATTERN)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class Measured(NamedTuple):
    """What a metric measures: the rate or the throttle time of one kind of quota."""

    kind: str
    quantity: str


class ClientMetric(NamedTuple):
    """A metric of one client at one broker. A name is "" if the MBean has no such property."""

    measured: Measured
    user: str
    client_id: str


# The names for --metric.
OPTIONS: Final = {
    f"{kind}_{name}": Measured(kind, quantity)
    for kind in _KINDS
    for name, quantity in (("time" if kind == "request" else RATE, RATE), (THROTTLE, THROTTLE))
}


def of_labels(labels: Mapping[str, str], own_names: Mapping[str, Measured]) -> ClientMetric | None:
    """Return the client metric that a series of Prometheus is, or None if it is something else.

    ``own_names`` contains metrics that a site named by its own rules.
    """
    kind, user = "", labels.get("user", "")
    name = labels.get("__name__", "")
    found = _NAME.fullmatch(name)
    if found is not None:
        kind = (found[1] or "").lower()
        if not kind:
            kind, user_of_type = _type_and_user(next((labels[key] for key in _TYPE_LABELS if key in labels), ""))
            user = user or user_of_type
    measured = own_names.get(name) or (found and _measured(kind, found[2].lower()))
    if not measured:
        return None
    client_id = next((labels[key] for key in _CLIENT_ID_LABELS if key in labels), "")
    return ClientMetric(measured, unquote(_unquoted(user)), _unquoted(client_id))


def is_throttle_time(name: str, own_names: Mapping[str, Measured]) -> bool:
    """Return whether the metric with this name is a throttle time, and no rate."""
    own = own_names.get(name)
    return name.lower().endswith("throttle_time") if own is None else own.quantity == THROTTLE


def instance_of(labels: Mapping[str, str]) -> str:
    """Return the scraped address, which names the broker's process."""
    return labels.get(_INSTANCE) or "(no instance)"


def other_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that name neither the metric, the client nor the instance."""
    client_id = next((key for key in _CLIENT_ID_LABELS if key in labels), "")
    own = {"__name__", "user", client_id, _INSTANCE, *_TYPE_LABELS}
    return {key: value for key, value in labels.items() if key not in own}


def broker_of(labels: Mapping[str, str]) -> int | None:
    """Return the node id that a label of the series contains, or None."""
    return next((int(labels[key]) for key in BROKER_LABELS if re.fullmatch(r"\d{1,9}", labels.get(key, ""))), None)


def _measured(kind: str, attribute: str) -> Measured | None:
    quantity = _QUANTITIES[attribute]
    is_own_rate = (attribute == "request_time") == (kind == "request")
    return Measured(kind, quantity) if kind in _KINDS and (quantity == THROTTLE or is_own_rate) else None


def _type_and_user(text: str) -> tuple[str, str]:
    """Split ``Produce, user=alice``, which a rule without ``user`` makes of the type and the user."""
    kind, _, user = text.partition(", user=")
    return kind.lower(), user


def _unquoted(value: str) -> str:
    """Undo ``ObjectName.quote`` of Java."""
    if len(value) < 2 or not (value[0] == value[-1] == '"'):
        return value
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value[1:-1])
