"""The keys of the file and what may stand under them. pydantic checks the structure; ``config.model`` has the defaults.

A field has the name of the model's field, its alias is the key in the file. Values that YAML cannot be trusted with
(names, units, choices) come through functions of our own, so that each message can say what would be right.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from ipaddress import AddressValueError, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    create_model,
    model_validator,
)

from kafka_quota_proxy.config.addresses import parse_address, parse_addresses, parse_ip, parse_port_range
from kafka_quota_proxy.config.document import Odd
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.fair_call_queue import (
    INT32_MIN,
    INT64_MAX,
    MAX_LEVELS,
    parse_durations_ms,
    parse_identity_provider,
    parse_implementation,
    parse_max_in_flight,
    parse_names,
    parse_providers,
    parse_turns,
    parse_whole_numbers,
)
from kafka_quota_proxy.config.linear_regex import LinearRegexError, compile_linear, read_replacement
from kafka_quota_proxy.config.model import (
    DEFAULT,
    MAX_NAME_BYTES,
    Address,
    CallQueueImpl,
    CapacityRemainder,
    ClientAuth,
    CostProvider,
    DecayPause,
    Default,
    Enforcement,
    EntityName,
    FairCallQueueMode,
    LogFormat,
    ProxyProtocol,
    ResponseTimeAverage,
    SaslMechanism,
    SchedulerImpl,
    SecurityProtocol,
    Shaping,
    TlsVersion,
    WithinLevel,
)
from kafka_quota_proxy.config.principal_mapping import MappingRule, parse_rules
from kafka_quota_proxy.config.quota_kinds import (
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    IP_LIMIT_KEYS,
    KIND_OF_KEY,
    QuotaKind,
)
from kafka_quota_proxy.config.terms import Terms, check_terms, parse_expires_ms, parse_ramp, parse_schedule
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.config.throttled_replicas import parse as parse_replicas
from kafka_quota_proxy.config.units import UNLIMITED, parse_duration_ms, parse_number, parse_rate, parse_size, shown

_INT32_MAX: Final = 2**31 - 1
_LEAST_BUFFER_BYTES: Final = 16 * 1024 * 1024
_LEAST_POLL_MS: Final = 200
# What names files, and stands in every record.
_PROXY_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_LEAST_INTERVAL_MS: Final = 100
_MOST_INTERVAL_MS: Final = 3_600_000
_LEAST_SEGMENT_BYTES: Final = 1_024
_QUOTAS_FROM: Final = "kafka://HOST:PORT,HOST:PORT/TOPIC, such as kafka://broker1:9094/kafka-quota-store, or broker"
# Kafka's Topic.validate.
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_E = TypeVar("_E", bound=Enum)
_T = TypeVar("_T")


class TextWantedError(ValueError):
    """A number, a boolean or a date stands where text is wanted. YAML's doing, mostly: ``007``, ``off``, ``NO``."""

    def __init__(self, expected: str, *, quotable: bool) -> None:
        super().__init__(expected)
        self.expected = expected
        self.quotable = quotable  # whether any text would do, so that quoting is the cure


def _text(value: object, expected: str) -> str:
    if not isinstance(value, str):
        raise TextWantedError(expected, quotable=True)
    if not value:
        raise ValueError(f"must not be empty; write {expected}")
    return value


def _quantity(parse: Callable[[str | float], _T], expected: str) -> Callable[[object], _T]:
    def check(value: object) -> _T:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TextWantedError(expected, quotable=False)
        return parse(value)

    return check


def _address(value: object) -> Address:
    if not isinstance(value, str):
        raise TextWantedError("HOST:PORT, such as 127.0.0.1:9092", quotable=False)
    return parse_address(value)


def _ip_address(value: object) -> str:
    text = _text(value, "an IP address of this machine, such as 10.0.0.5")
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is no IP address; write one of this machine, such as 10.0.0.5") from None


def _choice(choices: type[_E]) -> Callable[[object], _E]:
    names = [str(choice.value) for choice in choices]
    return lambda value: choices(_one_of(value, names))


def _one_of(value: object, names: list[str]) -> str:
    expected = f"{', '.join(names[:-1])} or {names[-1]}"
    if not isinstance(value, str):
        raise TextWantedError(expected, quotable=False)
    if value not in names:
        raise ValueError(f"must be {expected}, not {value!r}")
    return value


def _log_level(value: object) -> str:
    return _one_of(value, ["debug", "info", "warning", "error"])


def _entity_name(value: object) -> EntityName:
    name = _text(value, "a name or <default>")
    size_bytes = len(name.encode("utf-8", "surrogatepass"))
    if size_bytes > MAX_NAME_BYTES:
        raise ValueError(f"has {size_bytes} bytes; names have {MAX_NAME_BYTES} at the most in Kafka's protocol")
    return DEFAULT if name == DEFAULT.value else name


def _ip(value: object) -> str | Default:
    text = _text(value, "an IP address such as 10.0.0.7, or <default>")
    return DEFAULT if text == DEFAULT.value else parse_ip(text)


def _principal_name(value: object) -> str:
    name = _text(value, "a user's name")
    if name == DEFAULT.value:
        raise ValueError("<default> is no user here; list each user by name")
    return name


def _upstream(value: object) -> Address:
    address = _address(value)
    if address.port == 0:
        raise ValueError("port 0 is out of range for an upstream; write the broker's port, 1 to 65535")
    return address


def _bootstrap_servers(value: object) -> tuple[Address, ...]:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    if not isinstance(value, str):
        raise TextWantedError("HOST:PORT,HOST:PORT, such as broker1:9092,broker2:9092", quotable=False)
    return parse_addresses(value)


def _port_range(value: object) -> tuple[int, int]:
    if not isinstance(value, str):
        raise TextWantedError("FIRST-LAST, such as 9193-9292", quotable=False)
    return parse_port_range(value)


def _host(value: object) -> str:
    host = _text(value, "the host name or IP address that clients reach this proxy at")
    try:
        return str(IPv6Address(host)) if ":" in host else parse_address(f"{host}:1").host
    except (UnitError, AddressValueError) as error:
        raise ValueError(f"{host!r} is not a host name or an IP address, without a port") from error


def _names_of_hosts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of host names, such as [proxy.example]")  # noqa: TRY004 - pydantic's
    return tuple(map(_host, value))


def _at_least(minimum: int, maximum: int, why: str = "") -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}{why}")
        return value

    return check


def _proxy_protocol(value: object) -> ProxyProtocol | None:
    if isinstance(value, bool):
        return ProxyProtocol() if value else None
    if not isinstance(value, dict) or list(value) != ["from"] or not isinstance(value["from"], list):
        raise ValueError("must be false, true (each connection begins with a header) or {from: [10.0.0.0/8]}")
    if not value["from"]:
        raise ValueError("from is empty, so that nobody could connect; list the networks of your load balancers")
    return ProxyProtocol(sources=tuple(_network(each) for each in value["from"]))


def _network(value: object) -> IPv4Network | IPv6Network:
    if not isinstance(value, str):
        raise TextWantedError("a network, such as 10.0.0.0/8", quotable=True)
    try:
        return ip_network(value)
    except ValueError as error:
        raise ValueError(f"{error}; write a network such as 10.0.0.0/8, or an address such as 10.0.0.7") from error


def _parse_frame_size(value: str | float) -> int:
    size_bytes = parse_size(value)
    if not 0 < size_bytes <= _INT32_MAX:
        raise ValueError(f"must be from 1 to {_INT32_MAX} bytes, the length of a Kafka frame is an int32")
    return size_bytes


def _parse_buffer_size(value: str | float) -> int:
    size_bytes = parse_size(value)
    if size_bytes < _LEAST_BUFFER_BYTES:
        raise ValueError("must be 16MiB or more; below it a few slow clients would be closed for nothing")
    return size_bytes


def _parse_positive_ms(value: str | float) -> int:
    duration_ms = parse_duration_ms(value)
    if not 0 < duration_ms <= _INT32_MAX:
        raise ValueError(f"must be above 0 and at most {_INT32_MAX}ms, an int32; write a duration such as 1s")
    return duration_ms


def _parse_max_throttle_ms(value: str | float) -> int:
    if parse_duration_ms(value) == 0:
        raise ValueError("0 would throttle nobody; write enforcement: observe for that, or null for no bound")
    return _parse_positive_ms(value)


def _parse_poll_ms(value: str | float) -> int:
    duration_ms = parse_duration_ms(value)
    if not _LEAST_POLL_MS <= duration_ms <= _INT32_MAX:
        raise ValueError(f"must be from {_LEAST_POLL_MS}ms to {_INT32_MAX}ms: each time all brokers are asked")
    return duration_ms


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
    name = _text(value, "a name for this proxy, such as p1")
    if not _PROXY_NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name files: 1 to 100 letters, digits, dots, underscores and hyphens")
    return name


def _or_null(check: Callable[[object], _T]) -> Callable[[object], _T | None]:
    return lambda value: None if value is None else check(value)


_RATE: Final = _quantity(parse_rate, QuotaKind.PRODUCE.spec.unit.expected)
_SIZE: Final = _quantity(_parse_frame_size, "a size, such as 100MiB")
_BUFFER: Final = _quantity(_parse_buffer_size, "a size, such as 512MiB")
_DURATION: Final = _quantity(_parse_positive_ms, "a duration, such as 500ms or 1s")
_CHANGE_RATE: Final = _quantity(
    partial(parse_number, kind="a rate of changes", example="100"),
    "entities per second, such as 100, or null for no limit",
)
_MAX_THROTTLE: Final = _quantity(_parse_max_throttle_ms, "a duration such as 25s, or null for no bound")
_POLL: Final = _quantity(_parse_poll_ms, "a duration, such as 2s")
_INTERVAL: Final = _quantity(_parse_interval_ms, "a duration, such as 1s")
_SEGMENT: Final = _quantity(_parse_segment_size, "a size, such as 64MiB")
_RETENTION: Final = _quantity(_parse_segment_size, "a size such as 10GiB, or null for no bound")
_LEASE: Final = _quantity(_parse_positive_ms, "a duration such as 10m, or null for ever")
_TIMEOUT: Final = _quantity(_parse_positive_ms, "a duration such as 30s, or null for none")


def _static_default(value: object) -> int:
    # Kafka's key is an int64 and its largest value, which a float rounds up, means "no quota".
    return max(1, min(int(_RATE(value)), UNLIMITED))


def _regex(value: object) -> str:
    pattern = _text(value, "a regular expression")
    try:
        compile_linear(pattern)
    except LinearRegexError as error:
        raise ValueError(
            f"is not a regular expression of RE2 (look-around, back-references and possessive repetitions are not, for "
            f"a name could take them seconds): {error}"
        ) from error
    return pattern


def _pem_path(value: object) -> str:
    return _text(value, "the path of a PEM file")


def _tls_version(value: object) -> TlsVersion:
    # To YAML 1.2 is a number.
    return _choice(TlsVersion)(str(value) if isinstance(value, float) else value)


def _mapping_rules(value: object) -> tuple[MappingRule, ...]:
    """Read one element, in which several rules may stand as they do in a broker's file."""
    rules = parse_rules(_text(value, "a rule: DEFAULT or RULE:pattern/replacement/"))
    if not rules:
        raise ValueError("holds no rule; write DEFAULT or RULE:pattern/replacement/")
    return rules


def _topic(value: object) -> str:
    # The file's keys are text, whatever they look like.
    if not isinstance(value, str) or not _TOPIC_NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError(f"{value!r} is no name of a topic: 1 to 249 letters, digits, dots, underscores and hyphens")
    return value


def _replicas(value: object) -> ThrottledReplicas:
    if not isinstance(value, str):
        raise TextWantedError('"*" or PARTITION:BROKER,…, such as "0:101,1:102"', quotable=True)
    return parse_replicas(value)


# Any, so that None as "not there" is the default, while null in the file is a fault.
Name = Annotated[Any, PlainValidator(_entity_name)]
PemPath = Annotated[Any, PlainValidator(_pem_path)]
UserName = Annotated[str, PlainValidator(_principal_name)]
Rate = Annotated[Any, PlainValidator(_RATE)]
CreationRate = Annotated[
    Any, PlainValidator(_at_least(1, _INT32_MAX, ", connections per second; left out, there is no limit"))
]
EnforcementChoice = Annotated[Any, PlainValidator(_choice(Enforcement))]
ShapingChoice = Annotated[Any, PlainValidator(_choice(Shaping))]
# Rate.windowSize in Kafka counts num - 1 whole windows at least: with 1, a window can be 1 ms long.
WindowNum = Annotated[
    int,
    PlainValidator(
        _at_least(2, _INT32_MAX, ": a single window can be 1 ms long, in which any record is over its quota")
    ),
]
AtLeastOne = Annotated[int, PlainValidator(_at_least(1, _INT32_MAX))]
ConnectionLimit = Annotated[int | None, PlainValidator(_or_null(_at_least(1, _INT32_MAX, ", or null for no limit")))]
ReplicaLists = dict[Annotated[str, PlainValidator(_topic)], Annotated[ThrottledReplicas, PlainValidator(_replicas)]]
NodeId = Annotated[Any, PlainValidator(_at_least(0, _INT32_MAX, ", the node id of a broker"))]
Rack = Annotated[Any, PlainValidator(lambda value: _text(value, "the name of a rack"))]
FilePath = Annotated[Any, PlainValidator(lambda value: _text(value, "the path of a file"))]
Timeout = Annotated[int | None, PlainValidator(_or_null(_TIMEOUT))]
WindowSeconds = Annotated[int, PlainValidator(_at_least(1, _INT32_MAX // 1_000))]


class Section(BaseModel):
    """What all sections have in common: unknown keys are faults, nothing is converted in silence."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def given(self) -> dict[str, Any]:
        """Return the fields that the file sets, by the model's names."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class SaslSection(Section):
    """``sasl`` of a listener."""

    oauthbearer_claim: Annotated[
        str, PlainValidator(lambda value: _text(value, "the name of a claim, such as sub"))
    ] = ""


class ClientTlsSection(Section):
    """``client_tls`` of a listener."""

    certificate: PemPath
    key: PemPath
    client_ca: PemPath = None
    client_auth: Annotated[ClientAuth, PlainValidator(_choice(ClientAuth))] = ClientAuth.NONE
    principal_mapping_rules: Annotated[
        list[Annotated[tuple[MappingRule, ...], PlainValidator(_mapping_rules)]], Field(min_length=1)
    ] = []
    min_version: Annotated[TlsVersion, PlainValidator(_tls_version)] = TlsVersion.TLS_1_2


class UpstreamTlsSection(Section):
    """``upstream_tls`` of a listener."""

    ca: PemPath = None
    certificate: PemPath = None
    key: PemPath = None
    check_hostname: StrictBool = True
    min_version: Annotated[TlsVersion, PlainValidator(_tls_version)] = TlsVersion.TLS_1_2


def _implementation(choices: type[_E]) -> PlainValidator:
    return PlainValidator(partial(parse_implementation, choices=choices))


def _providers(choices: type[_E]) -> PlainValidator:
    return PlainValidator(partial(parse_providers, choices=choices))


def _number_between(low: float, high: float, *, is_open: bool) -> Callable[[object], float]:
    def check(value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= cast("float", value) <= high or (is_open and value in (low, high)):
            words = f"above {low:g} and below {high:g}" if is_open else f"from {low:g} to {high:g}"
            raise ValueError(f"must be a number {words}, such as 0.5")
        return float(cast("float", value))

    return check


def _nothing_for_false(value: object) -> object:
    if value is not False and not isinstance(value, dict):
        raise ValueError("must be a mapping of its settings, {} where all is left to the defaults, or false for none")
    return None if value is False else value


WholeNumber = Annotated[Any, PlainValidator(_at_least(1, _INT32_MAX))]
Levels = Annotated[Any, PlainValidator(_at_least(1, MAX_LEVELS, ", though Hadoop takes more"))]
Period = Annotated[Any, PlainValidator(_at_least(1, INT64_MAX))]
# Of a deprecated key 0 means that it is not set.
DeprecatedLevels = Annotated[Any, PlainValidator(_at_least(0, MAX_LEVELS, ", though Hadoop takes more"))]
DeprecatedPeriod = Annotated[Any, PlainValidator(_at_least(0, INT64_MAX))]
Weights = Annotated[Any, PlainValidator(parse_whole_numbers)]
Turns = Annotated[Any, PlainValidator(parse_turns)]
# Which of them make sense without mode: hadoop, fair_call_queue_checks.py says.
PerCents = Annotated[Any, PlainValidator(partial(parse_whole_numbers, minimum=INT32_MIN))]
_FACTOR: Final = _number_between(0, 1, is_open=True)
Factor = Annotated[Any, PlainValidator(_FACTOR)]
DeprecatedFactor = Annotated[Any, PlainValidator(lambda value: _FACTOR(value) if value != 0 else value)]
Weight = Annotated[Any, PlainValidator(_at_least(INT32_MIN, _INT32_MAX, ", the weight of this phase's time"))]


class FairCallQueueSection(Section):
    """``fair_call_queue``: Hadoop's keys without ``ipc.<port>.``, and ours beside them."""

    mode: Annotated[Any, PlainValidator(_choice(FairCallQueueMode))] = None
    callqueue_impl: Annotated[Any, _implementation(CallQueueImpl)] = Field(None, alias="callqueue.impl")
    capacity: WholeNumber = Field(None, alias="callqueue.capacity")
    capacity_weights: Weights = Field(None, alias="callqueue.capacity.weights")
    capacity_remainder: Annotated[Any, PlainValidator(_choice(CapacityRemainder))] = Field(
        None, alias="callqueue.capacity.remainder"
    )
    overflow_trigger_failover: StrictBool = Field(False, alias="callqueue.overflow.trigger.failover")
    within_level: Annotated[Any, PlainValidator(_choice(WithinLevel))] = Field(None, alias="callqueue.within-level")
    scheduler_impl: Annotated[Any, _implementation(SchedulerImpl)] = Field(None, alias="scheduler.impl")
    levels: Levels = Field(None, alias="scheduler.priority.levels")
    multiplexer_weights: Turns = Field(None, alias="faircallqueue.multiplexer.weights")
    backoff_enable: StrictBool = Field(False, alias="backoff.enable")
    identity_provider: Annotated[Any, PlainValidator(parse_identity_provider)] = Field(
        None, alias="identity-provider.impl"
    )
    max_identities: Annotated[Any, PlainValidator(_or_null(_at_least(1, _INT32_MAX, ", or null for any number")))] = (
        Field(None, alias="identities.max")
    )
    cost_provider: Annotated[Any, _providers(CostProvider)] = Field(None, alias="cost-provider.impl")
    weight_lockshared: Weight = Field(None, alias="weighted-cost.lockshared")
    weight_lockexclusive: Weight = Field(None, alias="weighted-cost.lockexclusive")
    weight_handler: Weight = Field(None, alias="weighted-cost.handler")
    weight_lockfree: Weight = Field(None, alias="weighted-cost.lockfree")
    weight_response: Weight = Field(None, alias="weighted-cost.response")
    weight_queue: Weight = Field(None, alias="weighted-cost.queue")
    weight_enqueue: Weight = Field(None, alias="weighted-cost.enqueue")
    weight_lockwait: Weight = Field(None, alias="weighted-cost.lockwait")
    weight_processing: Weight = Field(None, alias="weighted-cost.processing")
    period_ms: Period = Field(None, alias="decay-scheduler.period-ms")
    decay_factor: Factor = Field(None, alias="decay-scheduler.decay-factor")
    thresholds: PerCents = Field(None, alias="decay-scheduler.thresholds")
    pause: Annotated[Any, PlainValidator(_choice(DecayPause))] = Field(None, alias="decay-scheduler.pause")
    utilisation_floor: Annotated[Any, PlainValidator(_number_between(0, 1, is_open=False))] = Field(
        None, alias="decay-scheduler.utilisation-floor"
    )
    backoff_responsetime_enable: StrictBool = Field(False, alias="decay-scheduler.backoff.responsetime.enable")
    backoff_responsetime_thresholds_ms: Annotated[Any, PlainValidator(parse_durations_ms)] = Field(
        None, alias="decay-scheduler.backoff.responsetime.thresholds"
    )
    backoff_responsetime_inclusive: StrictBool = Field(False, alias="decay-scheduler.backoff.responsetime.inclusive")
    backoff_responsetime_min_calls: WholeNumber = Field(None, alias="decay-scheduler.backoff.responsetime.min-calls")
    average: Annotated[Any, PlainValidator(_choice(ResponseTimeAverage))] = Field(None, alias="decay-scheduler.average")
    top_user_count: WholeNumber = Field(None, alias="decay-scheduler.metrics.top.user.count")
    service_users: Annotated[Any, PlainValidator(parse_names)] = Field(None, alias="decay-scheduler.service-users")
    deprecated_levels: DeprecatedLevels = Field(None, alias="faircallqueue.priority-levels")
    deprecated_period_ms: DeprecatedPeriod = Field(None, alias="faircallqueue.decay-scheduler.period-ms")
    deprecated_decay_factor: DeprecatedFactor = Field(None, alias="faircallqueue.decay-scheduler.decay-factor")
    deprecated_thresholds: PerCents = Field(None, alias="faircallqueue.decay-scheduler.thresholds")
    max_in_flight: Annotated[Any, PlainValidator(parse_max_in_flight)] = None
    min_in_flight: WholeNumber = Field(None, alias="max_in_flight.min")
    most_in_flight: WholeNumber = Field(None, alias="max_in_flight.max")


# In the file null is a fault, see checks.py; False is None here.
FairCallQueueOrFalse = Annotated[FairCallQueueSection | None, BeforeValidator(_nothing_for_false)]


class ListenerSection(Section):
    """One element of ``listeners``."""

    name: Annotated[str, PlainValidator(lambda value: _text(value, "a name"))]
    bind: Annotated[Address, PlainValidator(_address)]
    # None: checks.py sees to it that there is one of upstream and bootstrap_servers.
    upstream: Annotated[Any, PlainValidator(_upstream)] = None
    bootstrap_servers: Annotated[Any, PlainValidator(_bootstrap_servers)] = None
    advertised_host: Annotated[Any, PlainValidator(_host)] = None
    broker_ports: Annotated[Any, PlainValidator(_port_range)] = None
    node_id: NodeId = None
    inter_broker: StrictBool = False
    proxy_protocol: Annotated[Any, PlainValidator(_proxy_protocol)] = None
    max_frame_size_bytes: Annotated[int, PlainValidator(_SIZE)] = Field(0, alias="max_frame_size")
    max_connections: ConnectionLimit = None
    max_connections_per_ip: ConnectionLimit = None
    login_timeout_ms: Timeout = Field(None, alias="login_timeout")
    idle_timeout_ms: Timeout = Field(None, alias="idle_timeout")
    max_connection_age_ms: Timeout = Field(None, alias="max_connection_age")
    max_connection_creation_rate: CreationRate = None
    enforcement: EnforcementChoice = None
    shaping: ShapingChoice = None
    sasl: SaslSection | None = None
    # Cast, so that null in the file is a fault here as well: it would mean plaintext.
    client_tls: ClientTlsSection = Field(cast("ClientTlsSection", None))
    upstream_tls: UpstreamTlsSection = Field(cast("UpstreamTlsSection", None))
    fair_call_queue: FairCallQueueOrFalse = None


class KafkaSection(Section):
    """``kafka``: a broker's own settings by their own names."""

    quota_window_num: WindowNum = Field(0, alias="quota.window.num")
    quota_window_size_seconds: WindowSeconds = Field(0, alias="quota.window.size.seconds")
    client_quota_metric_value_enable: StrictBool = Field(True, alias="client.quota.metric.value.enable")
    quota_producer_default: Annotated[int, PlainValidator(_static_default)] = Field(
        UNLIMITED, alias="quota.producer.default"
    )
    quota_consumer_default: Annotated[int, PlainValidator(_static_default)] = Field(
        UNLIMITED, alias="quota.consumer.default"
    )
    replication_quota_window_num: WindowNum = Field(0, alias="replication.quota.window.num")
    replication_quota_window_size_seconds: WindowSeconds = Field(0, alias="replication.quota.window.size.seconds")
    controller_quota_window_num: AtLeastOne = Field(0, alias="controller.quota.window.num")
    controller_quota_window_size_seconds: WindowSeconds = Field(0, alias="controller.quota.window.size.seconds")
    num_partitions: AtLeastOne = Field(0, alias="num.partitions")
    max_connection_creation_rate: CreationRate = Field(_INT32_MAX, alias="max.connection.creation.rate")


def _in_terms(parse: Callable[[object], _T]) -> PlainValidator:
    """Have terms read, in which YAML takes instants and hours for dates and numbers of its own."""
    return PlainValidator(lambda value: parse(_as_written(value)))


def _as_written(value: object) -> object:
    if isinstance(value, dict):
        return {key: _as_written(element) for key, element in value.items()}
    if isinstance(value, list):
        return [_as_written(element) for element in value]
    return value.text if isinstance(value, Odd) else value


class _EntitySection(Section):
    user: Name = None
    client_id: Name = Field(None, alias="client-id")
    # A rule of an address has one more key, see quota_checks.py.
    ip: Annotated[Any, PlainValidator(_ip)] = None


def _limit(kind: QuotaKind) -> Any:  # noqa: ANN401 - a type with its validator, as pydantic takes it
    unit = kind.spec.unit
    return Annotated[Any, PlainValidator(_quantity(unit.parse, unit.expected))]


# A field for each kind of quota.
_LIMITS: Final[dict[str, Any]] = {kind.key: (_limit(kind), None) for kind in QuotaKind}
_LimitsSection = create_model("_LimitsSection", __base__=_EntitySection, **_LIMITS)


class QuotaSection(_LimitsSection):
    """One element of ``quotas``."""

    enforcement: EnforcementChoice = None
    shaping: ShapingChoice = None
    expires_ms: Annotated[Any, _in_terms(parse_expires_ms)] = Field(None, alias="expires")
    schedule: Annotated[Any, _in_terms(parse_schedule)] = None
    ramp: Annotated[Any, _in_terms(parse_ramp)] = None

    @model_validator(mode="after")
    def _is_complete(self) -> "QuotaSection":
        given = self.model_fields_set
        if given.isdisjoint(("user", "client_id", "ip", CONNECTION_CREATION_RATE)):
            raise ValueError("names nobody; give a user, a client-id or both (<default> is for all others), or an ip")
        if "ip" in given and CONNECTION_CREATION_RATE not in given:
            raise ValueError(f"limits nothing; give {CONNECTION_CREATION_RATE}, the one limit that an ip has")
        if given.isdisjoint(KIND_OF_KEY):
            raise ValueError(f"limits nothing; give {', '.join(CLIENT_LIMIT_KEYS[:-1])} or {CLIENT_LIMIT_KEYS[-1]}")
        # Of what stands beside an ip and may not, quota_checks.py tells.
        terms = Terms(expires_ms=self.expires_ms, schedule=self.schedule, ramp=self.ramp)
        check_terms(terms, limits=given, allowed=IP_LIMIT_KEYS if "ip" in given else CLIENT_LIMIT_KEYS)
        return self


class FoldSection(Section):
    """One element of ``principals.fold``."""

    match: Annotated[str, PlainValidator(_regex)]
    to: Annotated[str, PlainValidator(lambda value: _text(value, "the name to share"))]

    @model_validator(mode="after")
    def _refers_to_groups_that_exist(self) -> "FoldSection":
        try:
            read_replacement(self.to, compile_linear(self.match))
        except LinearRegexError as error:
            raise ValueError(f"the replacement {self.to!r} does not fit {self.match!r}: {error}") from error
        return self


class PrincipalsSection(Section):
    """``principals``."""

    fold: list[FoldSection] = []
    exempt: list[UserName] = []
    brokers: list[UserName] = []
    admins: list[UserName] = []
    forward_quota_requests: StrictBool = False


class ReplicationPathSection(Section):
    """One element of ``replication.paths``."""

    leader: NodeId = None
    follower: NodeId = None
    leader_rack: Rack = None
    follower_rack: Rack = None
    rate: Annotated[float, PlainValidator(_RATE)]

    @model_validator(mode="after")
    def _names_somebody(self) -> "ReplicationPathSection":
        if self.model_fields_set == {"rate"}:
            raise ValueError("names no path; give leader, follower, leader_rack, follower_rack or several of them")
        return self


class AdminClientSection(Section):
    """``replication.admin_client``. Its keys are those of Kafka's clients, with ``_`` for ``.``."""

    bootstrap_servers: Annotated[Any, PlainValidator(_bootstrap_servers)] = None
    security_protocol: Annotated[SecurityProtocol, PlainValidator(_choice(SecurityProtocol))] = (
        SecurityProtocol.PLAINTEXT
    )
    sasl_mechanism: Annotated[Any, PlainValidator(_choice(SaslMechanism))] = None
    sasl_username: Annotated[Any, PlainValidator(lambda value: _text(value, "a user's name"))] = None
    sasl_password_file: FilePath = None
    ssl_cafile: PemPath = None
    ssl_certfile: PemPath = None
    ssl_keyfile: PemPath = None
    ssl_check_hostname: StrictBool = True


class ReplicationSection(Section):
    """``replication``: Kafka's own keys, and ours beside them."""

    leader_rate: Rate = Field(None, alias="leader.replication.throttled.rate")
    follower_rate: Rate = Field(None, alias="follower.replication.throttled.rate")
    both_replicas: ReplicaLists = Field({}, alias="throttled.replicas")
    leader_replicas: ReplicaLists = Field({}, alias="leader.replication.throttled.replicas")
    follower_replicas: ReplicaLists = Field({}, alias="follower.replication.throttled.replicas")
    paths: list[ReplicationPathSection] = []
    from_cluster: StrictBool = False
    poll_interval_ms: Annotated[int, PlainValidator(_POLL)] = Field(0, alias="poll_interval")
    lease_ms: Annotated[int | None, PlainValidator(_or_null(_LEASE))] = Field(None, alias="lease")
    admin_client: AdminClientSection = Field(cast("AdminClientSection", None))


def _directory(value: object) -> str:
    return _text(value, "the path of a directory")


class UsageTopicSection(AdminClientSection):
    """``usage_log.kafka``: a topic, and how its cluster is spoken to, as in ``replication.admin_client``."""

    topic: Annotated[str, PlainValidator(_topic)] = ""


class UsageLogSection(Section):
    """``usage_log``."""

    interval_ms: Annotated[int, PlainValidator(_INTERVAL)] = Field(0, alias="interval")
    proxy: Annotated[str, PlainValidator(_proxy_name)] = ""
    directory: Annotated[str, PlainValidator(_directory)] = ""
    rotate_size_bytes: Annotated[int, PlainValidator(_SEGMENT)] = Field(0, alias="rotate_size")
    rotate_interval_ms: Annotated[int, PlainValidator(_DURATION)] = Field(0, alias="rotate_interval")
    retention_size_bytes: Annotated[int | None, PlainValidator(_or_null(_RETENTION))] = Field(
        None, alias="retention_size"
    )
    kafka: UsageTopicSection = Field(cast("UsageTopicSection", None))


class QuotaTopicSection(AdminClientSection):
    """``quotas_from.kafka`` and ``store.kafka``: a topic with rules, and how its cluster is spoken to."""

    topic: Annotated[str, PlainValidator(_topic)] = ""


class QuotasFromBrokerSection(AdminClientSection):
    """``quotas_from.broker``: how often the brokers are asked for their quotas, and how they are spoken to."""

    every_ms: Annotated[int, PlainValidator(_POLL)] = Field(0, alias="every")


class QuotasFromSection(Section):
    """``quotas_from``: one of the two."""

    kafka: QuotaTopicSection = Field(cast("QuotaTopicSection", None))
    broker: QuotasFromBrokerSection = Field(cast("QuotasFromBrokerSection", None))


def _quotas_from(value: object) -> object:
    """Return the section that ``broker`` or ``kafka://HOST:PORT,HOST:PORT/TOPIC`` stands for; a mapping as it is."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise TextWantedError(f"{_QUOTAS_FROM}; or a mapping with one of the keys kafka and broker", quotable=False)
    if value == "broker":
        return {"broker": {}}
    servers, slash, topic = value.removeprefix("kafka://").partition("/")
    if not value.startswith("kafka://") or not slash:
        raise ValueError(f"{shown(value)} is no topic; write {_QUOTAS_FROM}")
    kafka = {"bootstrap_servers": servers, "topic": _topic(topic)}
    parse_addresses(servers)
    return {"kafka": kafka}


class StoreSection(Section):
    """``store``."""

    directory: Annotated[str, PlainValidator(_directory)] = ""
    kafka: QuotaTopicSection = Field(cast("QuotaTopicSection", None))
    changes_per_second: Annotated[float | None, PlainValidator(_or_null(_CHANGE_RATE))] = None
    audit_log: FilePath = None


class AdminSection(Section):
    """``admin``."""

    bind: Annotated[Address, PlainValidator(_address)]
    metrics_bind: Annotated[Any, PlainValidator(_address)] = None
    hosts: Annotated[Any, PlainValidator(_names_of_hosts)] = ()
    quotas_token_file: FilePath = None


class LogSection(Section):
    """``log``."""

    format: Annotated[LogFormat, PlainValidator(_choice(LogFormat))] = LogFormat.TEXT
    level: Annotated[str, PlainValidator(_log_level)] = "info"


class FileSection(Section):
    """The whole file."""

    listeners: Annotated[list[ListenerSection], Field(min_length=1)]
    upstream_bind: Annotated[str | None, PlainValidator(_ip_address)] = None
    enforcement: EnforcementChoice = Enforcement.RESPOND
    max_throttle_time_ms: Annotated[int | None, PlainValidator(_or_null(_MAX_THROTTLE))] = Field(
        None, alias="max_throttle_time"
    )
    shaping: ShapingChoice = Shaping.SAMPLED
    burst_ms: Annotated[int, PlainValidator(_DURATION)] = Field(0, alias="burst")
    request_time_scale: Annotated[float, PlainValidator(_number_between(0.1, 10, is_open=False))] = 0
    max_buckets: Annotated[int, PlainValidator(_at_least(1, _INT32_MAX))] = 0
    drain_timeout_ms: Annotated[int, PlainValidator(_DURATION)] = Field(0, alias="drain_timeout")
    max_buffered_bytes: Annotated[int, PlainValidator(_BUFFER)] = Field(0, alias="max_buffered")
    kafka: KafkaSection | None = None
    quotas: list[QuotaSection] = []
    principals: PrincipalsSection | None = None
    # Cast, for a section without a key in it is a slip here, not "none".
    replication: ReplicationSection = Field(cast("ReplicationSection", None))
    fair_call_queue: FairCallQueueOrFalse = None
    usage_log: UsageLogSection = Field(cast("UsageLogSection", None))
    quotas_from: Annotated[QuotasFromSection, BeforeValidator(_quotas_from)] = Field(cast("QuotasFromSection", None))
    store: StoreSection = Field(cast("StoreSection", None))
    admin: AdminSection | None = None
    log: LogSection | None = None


def known_keys(section: type[Section]) -> list[str]:
    """Return the keys that a section takes."""
    return [field.alias or name for name, field in section.model_fields.items()]


# Which section stands where, list indexes left out.
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
