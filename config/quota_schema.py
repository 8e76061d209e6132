"""The sections ``kafka``, ``quotas`` and ``principals``."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, PlainValidator, StrictBool, create_model, model_validator

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.document import Odd
from kafka_quota_proxy.config.linear_regex import LinearRegexError, compile_linear, read_replacement
from kafka_quota_proxy.config.model import DEFAULT, MAX_NAME_BYTES, Default, EntityName
from kafka_quota_proxy.config.quota_kinds import (
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    IP_LIMIT_KEYS,
    KIND_OF_KEY,
    QuotaKind,
)
from kafka_quota_proxy.config.schema_fields import (
    AtLeastOne,
    CreationRate,
    EnforcementChoice,
    Section,
    ShapingChoice,
    UserName,
    quantity,
    valid_rate,
    valid_text,
    whole_number,
)
from kafka_quota_proxy.config.terms import Terms, check_terms, parse_expires_ms, parse_ramp, parse_schedule
from kafka_quota_proxy.config.units import INT32_MAX, UNLIMITED

_T = TypeVar("_T")


def _entity_name(value: object) -> EntityName:
    name = valid_text(value, "a name or <default>")
    size_bytes = len(name.encode("utf-8", "surrogatepass"))
    if size_bytes > MAX_NAME_BYTES:
        raise ValueError(f"has {size_bytes} bytes; names have {MAX_NAME_BYTES} at the most in Kafka's protocol")
    return DEFAULT if name == DEFAULT.value else name


def _ip(value: object) -> str | Default:
    text = valid_text(value, "an IP address such as 10.0.0.7, or <default>")
    return DEFAULT if text == DEFAULT.value else parse_ip(text)


def _static_default(value: object) -> int:
    # Kafka's key is an int64 and its largest value, which a float rounds up, means "no quota".
    return max(1, min(int(valid_rate(value)), UNLIMITED))


def _regex(value: object) -> str:
    pattern = valid_text(value, "a regular expression")
    try:
        compile_linear(pattern)
    except LinearRegexError as error:
        raise ValueError(
            f"is not a regular expression of RE2 (look-around, back-references and possessive repetitions are not, for "
            f"a name could take them seconds): {error}"
        ) from error
    return pattern


# Any, so that None as "not there" is the default, while null in the file is a fault.
Name = Annotated[Any, PlainValidator(_entity_name)]
# Rate.windowSize in Kafka counts num - 1 whole windows at least: with 1, a window can be 1 ms long.
WindowNum = Annotated[
    int,
    PlainValidator(
        whole_number(2, INT32_MAX, ": a single window can be 1 ms long, in which any record is over its quota")
    ),
]
WindowSeconds = Annotated[int, PlainValidator(whole_number(1, INT32_MAX // 1_000))]


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
    max_connection_creation_rate: CreationRate = Field(INT32_MAX, alias="max.connection.creation.rate")


def _in_terms(parse: Callable[[object], _T]) -> PlainValidator:
    """Return a validator of terms, which gets instants and hours as written: YAML reads them as dates and numbers."""
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
    return Annotated[Any, PlainValidator(quantity(unit.parse, unit.expected))]


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
            raise ValueError(
                "names no entity; give a user, a client-id or both (<default> is for all others), or an ip"
            )
        if "ip" in given and CONNECTION_CREATION_RATE not in given:
            raise ValueError(f"limits nothing; give {CONNECTION_CREATION_RATE}, the one limit that an ip has")
        if given.isdisjoint(KIND_OF_KEY):
            raise ValueError(f"limits nothing; give {', '.join(CLIENT_LIMIT_KEYS[:-1])} or {CLIENT_LIMIT_KEYS[-1]}")
        # quota_checks.py reports keys that a rule with an ip may not have.
        terms = Terms(expires_ms=self.expires_ms, schedule=self.schedule, ramp=self.ramp)
        check_terms(terms, limits=given, allowed=IP_LIMIT_KEYS if "ip" in given else CLIENT_LIMIT_KEYS)
        return self


class FoldSection(Section):
    """One element of ``principals.fold``."""

    match: Annotated[str, PlainValidator(_regex)]
    to: Annotated[str, PlainValidator(lambda value: valid_text(value, "the name to share"))]

    @model_validator(mode="after")
    def _refers_to_groups_that_exist(self) -> "FoldSection":
        try:
            read_replacement(self.to, compile_linear(self.match))
        except LinearRegexError as error:
            raise ValueError(f"the replacement {self.to!r} does not fit {self.match!r}: {error}") from error
        return self


class PrincipalsSection(Section):
    """``principals``."""

    fold: list[FoldSection] = Field(default_factory=list)
    exempt: list[UserName] = Field(default_factory=list)
    brokers: list[UserName] = Field(default_factory=list)
    admins: list[UserName] = Field(default_factory=list)
    forward_quota_requests: StrictBool = False
