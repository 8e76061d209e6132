"""Defines the keys of the configuration sections ``replication``, ``usage_log``, ``quotas_from`` and ``store``.

Each of these sections may contain the settings of a Kafka client, which the proxy runs for that section.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kafka_quota_proxy.config import model
from kafka_quota_proxy.config import value_readers as read
from kafka_quota_proxy.config.sections import Key, MappingOf, Section, TextWantedError
from kafka_quota_proxy.config.security import SaslMechanism, SecurityProtocol
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.config.throttled_replicas import parse as parse_replicas
from kafka_quota_proxy.config.units import parse_duration_ms, parse_number, parse_rate, parse_size

# The name of a proxy is part of file names and of every record of the usage log.
_PROXY_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_QUOTAS_FROM: Final = "broker, or a mapping such as {kafka: {bootstrap_servers: broker1:9094, topic: quotas}}"
_CHANGE_RATE: Final = read.quantity(
    partial(parse_number, kind="a rate of changes", example="100"),
    "entities per second, such as 100, or null for no limit",
)
# As in Kafka, a rate of 0 stops the throttled replicas.
_REPLICATION_RATE: Final = read.quantity(partial(parse_rate, allows_0=True), "bytes per second, such as 10MiB")
_INTERVAL: Final = read.quantity(
    parse_duration_ms,
    "a duration, such as 1s",
    least=100,
    most=3_600_000,
    otherwise="must be from 100ms to 1h; write a duration such as 1s",
)
_segment_size: Final = partial(
    read.quantity, parse_size, least=1_024, otherwise="must be 1KiB or more, some lines; write a size such as 64MiB"
)
_RETENTION: Final = "a size such as 10GiB, or null for no bound"


def _proxy_name(value: object) -> str:
    name = read.text("a name for this proxy, such as p1")(value)
    if not _PROXY_NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name files: 1 to 100 letters, digits, dots, underscores and hyphens")
    return name


def _replicas(value: object) -> ThrottledReplicas:
    if not isinstance(value, str):
        raise TextWantedError('"*" or PARTITION:BROKER,…, such as "0:101,1:102"', quotable=True)
    return parse_replicas(value)


def _replication(
    both_replicas: Mapping[str, ThrottledReplicas] | None = None,
    **given: Any,  # noqa: ANN401 - fields of model.Replication, as in the functions below
) -> model.Replication:
    return model.Replication(**given, leader_replicas=both_replicas, follower_replicas=both_replicas)


def _around_client(build: Callable[..., Any], own: str) -> Callable[..., Any]:
    """Return a function that calls ``build`` with the key ``own`` itself, and all other keys as an ``AdminClient``."""

    def make(**given: Any) -> Any:  # noqa: ANN401
        outer = {own: given.pop(own)} if own in given else {}
        return build(**outer, client=model.AdminClient(**given))

    return make


def _usage_log(kafka: model.UsageTopic | None = None, **given: Any) -> model.UsageLog | None:  # noqa: ANN401
    files = {name: given.pop(name) for name in model.UsageFiles.__dataclass_fields__ if name in given}
    to = kafka or (model.UsageFiles(**files) if "directory" in files else None)
    # A check reports a section without a destination.
    return None if to is None else model.UsageLog(**given, to=to)


def _quotas_from(
    kafka: model.QuotasFrom | None = None, broker: model.QuotasFromBroker | None = None
) -> model.QuotasFrom | model.QuotasFromBroker | None:
    return broker or kafka


def quotas_from_mapping(value: object) -> object:
    """Return the value of the setting ``quotas_from`` as a mapping. In the file it may be ``broker`` instead."""
    if value == "broker":
        return {"broker": {}}
    if not isinstance(value, dict):
        raise TextWantedError(_QUOTAS_FROM, quotable=False)
    return value


# The keys of a Kafka client's settings. They have the names of Kafka's client configs, with ``_`` for ``.``.
_CLIENT: Final = {
    "bootstrap_servers": Key(read.bootstrap_servers),
    "security_protocol": Key(read.member_of(SecurityProtocol)),
    "sasl_mechanism": Key(read.member_of(SaslMechanism)),
    "sasl_username": Key(read.text("a user's name")),
    "sasl_password_file": read.FILE_PATH,
    "ssl_cafile": read.PEM_PATH,
    "ssl_certfile": read.PEM_PATH,
    "ssl_keyfile": read.PEM_PATH,
    "ssl_check_hostname": Key(read.boolean),
}
_TOPIC: Final = {**_CLIENT, "topic": Key(read.topic_name)}
_BROKER: Final = {**_CLIENT, "every": Key(read.poll_interval_ms, "every_ms")}
_QUOTA_TOPIC: Final = Section(_around_client(model.QuotasFrom, "topic"), _TOPIC)
_REPLICAS: Final = MappingOf(read.topic_name, _replicas, "topics", '{orders: "0:101,1:102"}')

_ONE_LIST: Final = "no longer exists; write throttled.replicas, or from_cluster: true for a list of each side"
REPLICATION: Final = Section(
    _replication,
    {
        "leader.replication.throttled.rate": Key(_REPLICATION_RATE, "leader_rate"),
        "follower.replication.throttled.rate": Key(_REPLICATION_RATE, "follower_rate"),
        "throttled.replicas": Key(_REPLICAS, "both_replicas"),
        "from_cluster": Key(read.boolean),
        "poll_interval": Key(read.poll_interval_ms, "poll_interval_ms"),
        "admin_client": Key(Section(model.AdminClient, _CLIENT)),
    },
    removed={
        "paths": "no longer exists: rates are of each leader and of each follower; remove it",
        "lease": "no longer exists: the throttle of the cluster holds here as long as there; remove it",
        "leader.replication.throttled.replicas": _ONE_LIST,
        "follower.replication.throttled.replicas": _ONE_LIST,
    },
)
USAGE_LOG: Final = Section(
    _usage_log,
    {
        "interval": Key(_INTERVAL, "interval_ms"),
        "proxy": Key(_proxy_name),
        "directory": read.DIRECTORY,
        "rotate_size": Key(_segment_size("a size, such as 64MiB"), "rotate_size_bytes"),
        "rotate_interval": Key(read.duration_ms, "rotate_interval_ms"),
        "retention_size": Key(_segment_size(_RETENTION), "retention_size_bytes", or_null=True),
        "kafka": Key(Section(_around_client(model.UsageTopic, "topic"), _TOPIC)),
    },
)
QUOTAS_FROM: Final = Section(
    _quotas_from,
    {
        "kafka": Key(_QUOTA_TOPIC),
        "broker": Key(Section(_around_client(model.QuotasFromBroker, "every_ms"), _BROKER)),
    },
)
STORE: Final = Section(
    model.Store,
    {
        "directory": read.DIRECTORY,
        "kafka": Key(_QUOTA_TOPIC, "topic"),
        "changes_per_second": Key(_CHANGE_RATE, or_null=True),
        "audit_log": read.FILE_PATH,
    },
)
