"""The keys of the file and their values. pydantic checks the structure; ``config.model`` has the defaults.

A field has the name of the model's field; its alias is the key in the file. Names, units and choices, which YAML may
read as other types, have validators of our own, so that each message names the remedy.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Final, cast

from pydantic import BeforeValidator, Field, PlainValidator

from kafka_quota_proxy.config.cluster_schema import (
    AdminClientSection,
    QuotasFromBrokerSection,
    QuotasFromSection,
    QuotaTopicSection,
    ReplicationPathSection,
    ReplicationSection,
    StoreSection,
    UsageLogSection,
    UsageTopicSection,
    quotas_from_section,
)
from kafka_quota_proxy.config.fair_call_queue_schema import FairCallQueueOrFalse, FairCallQueueSection
from kafka_quota_proxy.config.listener_schema import ClientTlsSection, ListenerSection, SaslSection, UpstreamTlsSection
from kafka_quota_proxy.config.model import Address, Enforcement, LogFormat, Shaping
from kafka_quota_proxy.config.quota_schema import FoldSection, KafkaSection, PrincipalsSection, QuotaSection
from kafka_quota_proxy.config.schema_fields import (
    EnforcementChoice,
    FilePath,
    Section,
    ShapingChoice,
    member_of,
    number_between,
    one_of,
    or_null,
    parse_positive_ms,
    quantity,
    valid_address,
    valid_duration_ms,
    valid_host,
    valid_text,
    whole_number,
)
from kafka_quota_proxy.config.units import INT32_MAX, parse_duration_ms, parse_size

_LEAST_BUFFER_BYTES: Final = 16 * 1024 * 1024


def _ip_address(value: object) -> str:
    text = valid_text(value, "an IP address of this machine, such as 10.0.0.5")
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is no IP address; write one of this machine, such as 10.0.0.5") from None


def _log_level(value: object) -> str:
    return one_of(value, ["debug", "info", "warning", "error"])


def _names_of_hosts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of host names, such as [proxy.example]")  # noqa: TRY004 - pydantic's
    return tuple(map(valid_host, value))


def _parse_buffer_size(value: str | float) -> int:
    size_bytes = parse_size(value)
    if size_bytes < _LEAST_BUFFER_BYTES:
        raise ValueError("must be 16MiB or more; below it a few slow clients would be closed for nothing")
    return size_bytes


def _parse_max_throttle_ms(value: str | float) -> int:
    if parse_duration_ms(value) == 0:
        raise ValueError("0 would throttle no client; write enforcement: observe for that, or null for no bound")
    return parse_positive_ms(value)


_BUFFER: Final = quantity(_parse_buffer_size, "a size, such as 512MiB")
_MAX_THROTTLE: Final = quantity(_parse_max_throttle_ms, "a duration such as 25s, or null for no bound")


class AdminSection(Section):
    """``admin``."""

    bind: Annotated[Address, PlainValidator(valid_address)]
    metrics_bind: Annotated[Any, PlainValidator(valid_address)] = None
    hosts: Annotated[Any, PlainValidator(_names_of_hosts)] = ()
    quotas_token_file: FilePath = None


class LogSection(Section):
    """``log``."""

    format: Annotated[LogFormat, PlainValidator(member_of(LogFormat))] = LogFormat.TEXT
    level: Annotated[str, PlainValidator(_log_level)] = "info"


class FileSection(Section):
    """The whole file."""

    listeners: Annotated[list[ListenerSection], Field(min_length=1)]
    upstream_bind: Annotated[str | None, PlainValidator(_ip_address)] = None
    enforcement: EnforcementChoice = Enforcement.RESPOND
    max_throttle_time_ms: Annotated[int | None, PlainValidator(or_null(_MAX_THROTTLE))] = Field(
        None, alias="max_throttle_time"
    )
    shaping: ShapingChoice = Shaping.SAMPLED
    burst_ms: Annotated[int, PlainValidator(valid_duration_ms)] = Field(0, alias="burst")
    request_time_scale: Annotated[float, PlainValidator(number_between(0.1, 10, is_open=False))] = 0
    max_buckets: Annotated[int, PlainValidator(whole_number(1, INT32_MAX))] = 0
    drain_timeout_ms: Annotated[int, PlainValidator(valid_duration_ms)] = Field(0, alias="drain_timeout")
    max_buffered_bytes: Annotated[int, PlainValidator(_BUFFER)] = Field(0, alias="max_buffered")
    kafka: KafkaSection | None = None
    quotas: list[QuotaSection] = Field(default_factory=list)
    principals: PrincipalsSection | None = None
    # Cast, so that an empty section is an error, not None.
    replication: ReplicationSection = Field(cast("ReplicationSection", None))
    fair_call_queue: FairCallQueueOrFalse = None
    usage_log: UsageLogSection = Field(cast("UsageLogSection", None))
    quotas_from: Annotated[QuotasFromSection, BeforeValidator(quotas_from_section)] = Field(
        cast("QuotasFromSection", None)
    )
    store: StoreSection = Field(cast("StoreSection", None))
    admin: AdminSection | None = None
    log: LogSection | None = None


def known_keys(section: type[Section]) -> list[str]:
    """Return the keys that a section takes."""
    return [field.alias or name for name, field in section.model_fields.items()]


# The section at each path, without list indexes.
SECTIONS: Final[Mapping[tuple[str, ...], type[Section]]] = {
    (): FileSection,
    ("listeners",): ListenerSection,
    ("listeners", "sasl"): SaslSection,
    ("listeners", "client_tls"): ClientTlsSection,
    ("listeners", "upstream_tls"): UpstreamTlsSection,
    ("listeners", "fair_call_queue"): FairCallQueueSection,
    ("kafka",): KafkaSection,
    ("quotas",): QuotaSection,
    ("principals",): PrincipalsSection,
    ("principals", "fold"): FoldSection,
    ("replication",): ReplicationSection,
    ("replication", "paths"): ReplicationPathSection,
    ("replication", "admin_client"): AdminClientSection,
    ("fair_call_queue",): FairCallQueueSection,
    ("usage_log",): UsageLogSection,
    ("usage_log", "kafka"): UsageTopicSection,
    ("quotas_from",): QuotasFromSection,
    ("quotas_from", "kafka"): QuotaTopicSection,
    ("quotas_from", "broker"): QuotasFromBrokerSection,
    ("store",): StoreSection,
    ("store", "kafka"): QuotaTopicSection,
    ("admin",): AdminSection,
    ("log",): LogSection,
}
