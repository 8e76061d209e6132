"""The table of all kinds of quota, which has one row for each kind, such as ``producer_byte_rate``.

A row says how limits of its kind are written, named and shown. To add a kind, add a row, and write a module that
charges clients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, Protocol

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.units import (
    INT32_MAX,
    UNLIMITED,
    described_size,
    parse_number,
    parse_rate,
    shown,
    written_number,
    written_rate,
)

# A second of one thread is 100 %.
_NS_PER_PERCENT: Final = 10_000_000


class KafkaType(Enum):
    """The type that Kafka declares for a quota key (``QuotaConfig``)."""

    LONG = "a LONG"
    INT = "an INT"
    DOUBLE = "a DOUBLE"


class HasLimits(Protocol):
    """The interface of a quota rule: ``QuotaRule`` for a user and client-id, and ``IpRule`` for an IP address."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits of the rule by key, such as ``producer_byte_rate``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUnit:
    """The unit of a limit: how an operator writes such a limit, and how this program prints it."""

    parse: Callable[[str | float], float]  # raises UnitError
    expected: str  # for error messages, such as "requests per second, such as 100"
    # Describes a limit or a rate in words. The second number is a limit, and the words use its kind of unit.
    described: Callable[[float, float], str]
    written: Callable[[float], str] = written_number  # writes a limit for the configuration file, without rounding
    most: int = INT32_MAX  # the largest limit in a record of the quota topic
    is_whole: bool = False  # whether a limit is a whole number


def _counted(words: str) -> Callable[[float, float], str]:
    return lambda limit, _: f"{written_number(limit)} {words}"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter ``kafka_quota_proxy_NAME_total`` in ``/metrics``, which sums up what was charged for a kind of quota.

    ``recorded_per_unit`` converts the unit in which a bucket counts to the unit of the counter. For example, it is
    10**9 if the bucket counts nanoseconds and the counter counts seconds.
    """

    name: str
    help: str
    recorded_per_unit: int = 1


@dataclass(frozen=True, slots=True)
class KafkaMetrics:
    """The names under which ``/metrics`` shows a quota's rate and limit, as exporters name Kafka's JMX attributes.

    The metric of the rate is ``kafka_server_GROUP_RATE``, and the metric of the limit is ``kafka_server_GROUP_VALUE``.
    """

    group: str
    rate: str
    unit: str
    value: str | None  # None if Kafka has no metric of the limit
    has_tokens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaKindSpec:
    """A row of the table ``QuotaKind``, with all properties of one kind of quota."""

    key: str  # in the configuration file; Kafka's own name if Kafka has the quota
    label: str  # the name of the kind in metrics and in the usage log
    charges: str  # what counts towards the limit, for the documentation
    unit: LimitUnit
    kafka_type: KafkaType | None = None  # None if Kafka has no such key
    limits_ips: bool = False  # whether it limits addresses instead of users and client-ids
    has_buckets: bool = True  # whether requests are charged to a bucket
    recorded_per_unit: int = 1  # how much a bucket records for one unit of the limit
    recorded_per_logged: int = 1  # how much a bucket records for one unit of ``amount`` in the usage log
    logs_connections: bool = True  # whether the usage log has the number of connections that use a bucket
    is_always_shown: bool = False  # whether /metrics has the kind even if no rule limits it
    counter: Counter | None = None  # None if only the number of requests is counted
    kafka_metrics: KafkaMetrics | None = None
    static_default: str | None = None  # the broker's setting with the limit if the default client-id has no rule


def _parse_connections(value: str | float) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= INT32_MAX:
        raise UnitError(f"must be a whole number from 1 to {INT32_MAX}, open at once")
    return value


_BYTES: Final = Counter("bytes", "Bytes that were charged.")
_BYTE_RATE: Final = LimitUnit(
    parse=parse_rate,
    expected="bytes per second, such as 10MB or 10MiB",
    described=lambda rate, like: f"{described_size(rate, like=None if rate is like else like)} per second",
    written=written_rate,
    most=int(float(UNLIMITED)),
)


class QuotaKind(Enum):
    """The kinds of quota, in the order in which they are documented and printed."""

    PRODUCE = QuotaKindSpec(
        key="producer_byte_rate",
        label="produce",
        charges="bytes of Produce requests",
        unit=_BYTE_RATE,
        kafka_type=KafkaType.LONG,
        is_always_shown=True,
        counter=_BYTES,
        kafka_metrics=KafkaMetrics("produce", "byte_rate", "bytes per second", "byte_quota_value"),
        static_default="quota.producer.default",
    )
    FETCH = QuotaKindSpec(
        key="consumer_byte_rate",
        label="fetch",
        charges="bytes of Fetch responses",
        unit=_BYTE_RATE,
        kafka_type=KafkaType.LONG,
        is_always_shown=True,
        counter=_BYTES,
        kafka_metrics=KafkaMetrics("fetch", "byte_rate", "bytes per second", "byte_quota_value"),
        static_default="quota.consumer.default",
    )
    REQUEST = QuotaKindSpec(
        key="request_percentage",
        label="request",
        charges="the broker's time for requests",
        unit=LimitUnit(
            expected="a number such as 50, the per cent of one thread's time",
            parse=partial(parse_number, kind="a percentage", example="50 (100 is one thread's time; it may be more)"),
            described=_counted("% of a thread's time"),
        ),
        kafka_type=KafkaType.DOUBLE,
        recorded_per_unit=_NS_PER_PERCENT,
        recorded_per_logged=_NS_PER_PERCENT // 1_000,  # per cent of a thread times milliseconds
        counter=Counter("request_seconds", "Service time of brokers that was charged.", 1_000_000_000),
        kafka_metrics=KafkaMetrics("request", "request_time", "per cent of a thread's time", "request_quota_value"),
    )
    REQUEST_RATE = QuotaKindSpec(
        key="request_rate",
        label="request_rate",
        charges="requests",
        unit=LimitUnit(
            expected="requests per second, such as 100",
            parse=partial(parse_number, kind="a request rate", example="100"),
            described=_counted("requests per second"),
        ),
    )
    MUTATION = QuotaKindSpec(
        key="controller_mutation_rate",
        label="mutation",
        charges="partitions that are created or deleted",
        unit=LimitUnit(
            expected="partitions per second, such as 10",
            parse=partial(parse_number, kind="a mutation rate", example="10"),
            described=_counted("partitions per second, created or deleted"),
        ),
        kafka_type=KafkaType.DOUBLE,
        logs_connections=False,
        counter=Counter("mutations", "Partitions that were created or deleted, and charged."),
        kafka_metrics=KafkaMetrics(
            "controllermutation", "mutation_rate", "partitions per second", None, has_tokens=True
        ),
    )
    CONNECTIONS = QuotaKindSpec(
        key="connections",
        label="connections",
        charges="open connections",
        unit=LimitUnit(
            expected="a whole number such as 20, open at once",
            parse=_parse_connections,
            described=_counted("connections open at once"),
            is_whole=True,
        ),
        has_buckets=False,
    )
    CONNECTION_CREATION_RATE = QuotaKindSpec(
        key="connection_creation_rate",
        label="connection",
        charges="new connections from an address",
        unit=LimitUnit(
            expected="connections per second, such as 5",
            # A limit of 0 admits no connection, which is useful for a single address. Kafka's broker accepts 0 as well,
            # but its Admin API does not.
            parse=partial(parse_number, kind="a connection rate", example="5", allows_0=True),
            described=_counted("connections per second"),
        ),
        kafka_type=KafkaType.INT,
        limits_ips=True,
        has_buckets=False,
    )

    def __init__(self, spec: QuotaKindSpec) -> None:
        self.spec = spec
        self.key = spec.key
        self.label = spec.label
        self.per_unit = spec.recorded_per_unit

    def limit_of(self, rule: HasLimits) -> float | None:
        """Return the limit of this kind that a rule sets, in the unit of the key, or None if it sets none."""
        return rule.limits.get(self.key)


KIND_OF_KEY: Final[Mapping[str, QuotaKind]] = {kind.key: kind for kind in QuotaKind}
# The kinds of quota for which requests are charged to buckets.
BUCKET_KINDS: Final = tuple(kind for kind in QuotaKind if kind.spec.has_buckets)
# The keys of limits that a rule for users and client-ids may have, then the keys that a rule for an address may have.
CLIENT_LIMIT_KEYS: Final = tuple(kind.key for kind in QuotaKind if not kind.spec.limits_ips)
IP_LIMIT_KEYS: Final = tuple(kind.key for kind in QuotaKind if kind.spec.limits_ips)
CONNECTION_CREATION_RATE: Final = QuotaKind.CONNECTION_CREATION_RATE.key
BYTE_RATES: Final = tuple(kind.key for kind in QuotaKind if kind.spec.unit is _BYTE_RATE)
# The broker settings that give a default limit, each with the key of the quota that it is the default of.
STATIC_DEFAULTS: Final[Mapping[str, str]] = {
    kind.spec.static_default: kind.key for kind in QuotaKind if kind.spec.static_default is not None
}


def parse_limit(key: str, value: object) -> float:
    """Read a limit from a number or text, in the unit of its key. Raises UnitError if it is not valid."""
    unit = KIND_OF_KEY[key].spec.unit
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        suffix = "" if value is None else f", not {shown(value)}"
        raise UnitError(f"must be {unit.expected}{suffix}")
    return unit.parse(value)
