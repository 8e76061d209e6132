"""The sections of features with a Kafka client of their own: replication, usage log, sources of quotas, store."""

import re
from functools import partial
from typing import Annotated, Any, Final, cast

from pydantic import Field, PlainValidator, StrictBool, model_validator

from kafka_quota_proxy.config.addresses import parse_addresses
from kafka_quota_proxy.config.schema_fields import (
    FilePath,
    NodeId,
    PemPath,
    Rate,
    Section,
    TextWantedError,
    member_of,
    or_null,
    parse_positive_ms,
    quantity,
    valid_bootstrap_servers,
    valid_duration_ms,
    valid_poll_ms,
    valid_rate,
    valid_text,
    valid_topic,
)
from kafka_quota_proxy.config.security import SaslMechanism, SecurityProtocol
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.config.throttled_replicas import parse as parse_replicas
from kafka_quota_proxy.config.units import parse_duration_ms, parse_number, parse_size, shown

# The name is part of file names and of every record.
_PROXY_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_LEAST_INTERVAL_MS: Final = 100
_MOST_INTERVAL_MS: Final = 3_600_000
_LEAST_SEGMENT_BYTES: Final = 1_024
_QUOTAS_FROM: Final = "kafka://HOST:PORT,HOST:PORT/TOPIC, such as kafka://broker1:9094/kafka-quota-store, or broker"


def _parse_interval_ms(value: str | float) -> int:
    duration_ms = parse_duration_ms(value)
    if not _LEAST_INTERVAL_MS <= duration_ms <= _MOST_INTERVAL_MS:
        raise ValueError(f"must be from {_LEAST_INTERVAL_MS}ms to 1h; write a duration such as 1s")
    return duration_ms


def _parse_segment_size(value: str | float) -> int:
    size_bytes = parse_size(value)
    if size_bytes < _LEAST_SEGMENT_BYTES:
        raise ValueError("must be 1KiB or more, some lines; write a size such as 64MiB")
    return size_bytes


def _proxy_name(value: object) -> str:
    name = valid_text(value, "a name for this proxy, such as p1")
    if not _PROXY_NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name files: 1 to 100 letters, digits, dots, underscores and hyphens")
    return name


_CHANGE_RATE: Final = quantity(
    partial(parse_number, kind="a rate of changes", example="100"),
    "entities per second, such as 100, or null for no limit",
)
_INTERVAL: Final = quantity(_parse_interval_ms, "a duration, such as 1s")
_SEGMENT: Final = quantity(_parse_segment_size, "a size, such as 64MiB")
_RETENTION: Final = quantity(_parse_segment_size, "a size such as 10GiB, or null for no bound")
_LEASE: Final = quantity(parse_positive_ms, "a duration such as 10m, or null for ever")


def _replicas(value: object) -> ThrottledReplicas:
    if not isinstance(value, str):
        raise TextWantedError('"*" or PARTITION:BROKER,…, such as "0:101,1:102"', quotable=True)
    return parse_replicas(value)


ReplicaLists = dict[
    Annotated[str, PlainValidator(valid_topic)], Annotated[ThrottledReplicas, PlainValidator(_replicas)]
]
Rack = Annotated[Any, PlainValidator(lambda value: valid_text(value, "the name of a rack"))]


class ReplicationPathSection(Section):
    """One element of ``replication.paths``."""

    leader: NodeId = None
    follower: NodeId = None
    leader_rack: Rack = None
    follower_rack: Rack = None
    rate: Annotated[float, PlainValidator(valid_rate)]

    @model_validator(mode="after")
    def _names_somebody(self) -> "ReplicationPathSection":
        if self.model_fields_set == {"rate"}:
            raise ValueError("names no path; give leader, follower, leader_rack, follower_rack or several of them")
        return self


class AdminClientSection(Section):
    """``replication.admin_client``. Its keys are those of Kafka's clients, with ``_`` for ``.``."""

    bootstrap_servers: Annotated[Any, PlainValidator(valid_bootstrap_servers)] = None
    security_protocol: Annotated[SecurityProtocol, PlainValidator(member_of(SecurityProtocol))] = (
        SecurityProtocol.PLAINTEXT
    )
    sasl_mechanism: Annotated[Any, PlainValidator(member_of(SaslMechanism))] = None
    sasl_username: Annotated[Any, PlainValidator(lambda value: valid_text(value, "a user's name"))] = None
    sasl_password_file: FilePath = None
    ssl_cafile: PemPath = None
    ssl_certfile: PemPath = None
    ssl_keyfile: PemPath = None
    ssl_check_hostname: StrictBool = True


class ReplicationSection(Section):
    """``replication``: Kafka's own keys, and ours."""

    leader_rate: Rate = Field(None, alias="leader.replication.throttled.rate")
    follower_rate: Rate = Field(None, alias="follower.replication.throttled.rate")
    both_replicas: ReplicaLists = Field(default_factory=dict, alias="throttled.replicas")
    leader_replicas: ReplicaLists = Field(default_factory=dict, alias="leader.replication.throttled.replicas")
    follower_replicas: ReplicaLists = Field(default_factory=dict, alias="follower.replication.throttled.replicas")
    paths: list[ReplicationPathSection] = Field(default_factory=list)
    from_cluster: StrictBool = False
    poll_interval_ms: Annotated[int, PlainValidator(valid_poll_ms)] = Field(0, alias="poll_interval")
    lease_ms: Annotated[int | None, PlainValidator(or_null(_LEASE))] = Field(None, alias="lease")
    admin_client: AdminClientSection = Field(cast("AdminClientSection", None))


def _directory(value: object) -> str:
    return valid_text(value, "the path of a directory")


class UsageTopicSection(AdminClientSection):
    """``usage_log.kafka``: a topic, and how its cluster is spoken to, as in ``replication.admin_client``."""

    topic: Annotated[str, PlainValidator(valid_topic)] = ""


class UsageLogSection(Section):
    """``usage_log``."""

    interval_ms: Annotated[int, PlainValidator(_INTERVAL)] = Field(0, alias="interval")
    proxy: Annotated[str, PlainValidator(_proxy_name)] = ""
    directory: Annotated[str, PlainValidator(_directory)] = ""
    rotate_size_bytes: Annotated[int, PlainValidator(_SEGMENT)] = Field(0, alias="rotate_size")
    rotate_interval_ms: Annotated[int, PlainValidator(valid_duration_ms)] = Field(0, alias="rotate_interval")
    retention_size_bytes: Annotated[int | None, PlainValidator(or_null(_RETENTION))] = Field(
        None, alias="retention_size"
    )
    kafka: UsageTopicSection = Field(cast("UsageTopicSection", None))


class QuotaTopicSection(AdminClientSection):
    """``quotas_from.kafka`` and ``store.kafka``: a topic with rules, and how its cluster is spoken to."""

    topic: Annotated[str, PlainValidator(valid_topic)] = ""


class QuotasFromBrokerSection(AdminClientSection):
    """``quotas_from.broker``: how often the brokers are asked for their quotas, and how they are spoken to."""

    every_ms: Annotated[int, PlainValidator(valid_poll_ms)] = Field(0, alias="every")


class QuotasFromSection(Section):
    """``quotas_from``: one of the two."""

    kafka: QuotaTopicSection = Field(cast("QuotaTopicSection", None))
    broker: QuotasFromBrokerSection = Field(cast("QuotasFromBrokerSection", None))


def quotas_from_section(value: object) -> object:
    """Expand ``broker`` or ``kafka://HOST:PORT,HOST:PORT/TOPIC`` to a section; a mapping stays as it is."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise TextWantedError(f"{_QUOTAS_FROM}; or a mapping with one of the keys kafka and broker", quotable=False)
    if value == "broker":
        return {"broker": {}}
    servers, slash, topic = value.removeprefix("kafka://").partition("/")
    if not value.startswith("kafka://") or not slash:
        raise ValueError(f"{shown(value)} is no topic; write {_QUOTAS_FROM}")
    kafka = {"bootstrap_servers": servers, "topic": valid_topic(topic)}
    parse_addresses(servers)
    return {"kafka": kafka}


class StoreSection(Section):
    """``store``."""

    directory: Annotated[str, PlainValidator(_directory)] = ""
    kafka: QuotaTopicSection = Field(cast("QuotaTopicSection", None))
    changes_per_second: Annotated[float | None, PlainValidator(or_null(_CHANGE_RATE))] = None
    audit_log: FilePath = None
