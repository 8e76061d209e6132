"""Defines the keys of the configuration sections ``kafka``, ``quotas`` and ``principals``."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kafka_quota_proxy.config import model
from kafka_quota_proxy.config import value_readers as read
from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.document import Odd
from kafka_quota_proxy.config.linear_regex import LinearRegexError, Pattern, compile_linear, read_replacement
from kafka_quota_proxy.config.principals import Fold, Principals
from kafka_quota_proxy.config.quota_kinds import (
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    IP_LIMIT_KEYS,
    KIND_OF_KEY,
    QuotaKind,
)
from kafka_quota_proxy.config.sections import Key, ListOf, Section
from kafka_quota_proxy.config.term_values import parse_instant_ms, parse_ramp, parse_schedule
from kafka_quota_proxy.config.terms import Terms, check_terms
from kafka_quota_proxy.config.units import INT32_MAX, UNLIMITED


def _entity_name(value: object) -> model.EntityName:
    name = read.text("a name or <default>")(value)
    size_bytes = len(name.encode("utf-8", "surrogatepass"))
    if size_bytes > model.MAX_NAME_BYTES:
        raise ValueError(f"has {size_bytes} bytes; names have at most {model.MAX_NAME_BYTES} in Kafka's protocol")
    return model.DEFAULT if name == model.DEFAULT.value else name


def _ip(value: object) -> str | model.Default:
    name = read.text("an IP address such as 10.0.0.7, or <default>")(value)
    return model.DEFAULT if name == model.DEFAULT.value else parse_ip(name)


def _regex(value: object) -> Pattern:
    pattern = read.text("a regular expression")(value)
    try:
        return compile_linear(pattern)
    except LinearRegexError as error:
        message = "is not a regular expression of RE2 (look-around, back-references and possessive repetitions are not"
        raise ValueError(f"{message}, for a name could take them seconds): {error}") from error


def _fold(*, match: Pattern, to: str) -> Fold:
    try:
        read_replacement(to, match)
    except LinearRegexError as error:
        raise ValueError(f"the replacement {to!r} does not fit {match.pattern!r}: {error}") from error
    return Fold(match=match.pattern, to=to)


def _kafka(**given: Any) -> model.KafkaSettings:  # noqa: ANN401 - fields of the settings
    for field in {"quota_producer_default", "quota_consumer_default"} & given.keys():
        # The limit is an int64 in Kafka. Its largest value means "no quota", and a float rounds this value up, so cut
        # it off.
        given[field] = max(1, min(int(given[field]), UNLIMITED))
    return model.KafkaSettings(**given)


def _as_written(parse: Callable[[object], Any]) -> Callable[[object], Any]:
    """Return a reader that passes dates and hours to ``parse`` as text, exactly as the file spells them."""

    def written(value: object) -> object:
        if isinstance(value, dict):
            return {key: written(element) for key, element in value.items()}
        if isinstance(value, list):
            return [written(element) for element in value]
        return value.text if isinstance(value, Odd) else value

    return lambda value: parse(written(value))


def _rule(**given: Any) -> model.QuotaRule | model.IpRule:  # noqa: ANN401 - fields of the rule
    if given.keys().isdisjoint(("user", "client_id", "ip", CONNECTION_CREATION_RATE)):
        raise ValueError("names no entity; give a user, a client-id or both (<default> is for all others), or an ip")
    if "ip" in given and CONNECTION_CREATION_RATE not in given:
        raise ValueError(f"limits nothing; give {CONNECTION_CREATION_RATE}, the one limit that an ip has")
    if given.keys().isdisjoint(KIND_OF_KEY):
        raise ValueError(f"limits nothing; give {', '.join(CLIENT_LIMIT_KEYS[:-1])} or {CLIENT_LIMIT_KEYS[-1]}")
    terms = Terms(expires_ms=given.get("expires_ms"), schedule=given.get("schedule"), ramp=given.get("ramp"))
    check_terms(terms, limits=given, allowed=IP_LIMIT_KEYS if "ip" in given else CLIENT_LIMIT_KEYS)
    # Keys that belong to the other kind of rule are dropped, because quota_checks.py reports them.
    if "ip" in given:
        fields = model.IpRule.__dataclass_fields__
        return model.IpRule(**{name: value for name, value in given.items() if name in fields})
    return model.QuotaRule(**{name: value for name, value in given.items() if name not in IP_LIMIT_KEYS})


# Kafka's Rate.windowSize counts at least num - 1 whole windows. With num = 1, a window could be 1 ms long.
_WINDOW_NUM: Final = Key(
    read.whole_number(2, INT32_MAX, ": a single window can be 1 ms long, in which any record is over its quota")
)
_WINDOW_SECONDS: Final = Key(read.whole_number(1, INT32_MAX // 1_000))

# The settings of a Kafka broker, under the names that Kafka gives them.
KAFKA: Final = Section(
    _kafka,
    {
        "quota.window.num": _WINDOW_NUM,
        "quota.window.size.seconds": _WINDOW_SECONDS,
        "client.quota.metric.value.enable": Key(read.boolean),
        "quota.producer.default": Key(read.byte_rate),
        "quota.consumer.default": Key(read.byte_rate),
        "replication.quota.window.num": _WINDOW_NUM,
        "replication.quota.window.size.seconds": _WINDOW_SECONDS,
        "controller.quota.window.num": Key(read.at_least_one),
        "controller.quota.window.size.seconds": _WINDOW_SECONDS,
        "num.partitions": Key(read.at_least_one),
        "max.connection.creation.rate": Key(read.connections_per_second),
    },
)
QUOTA: Final = Section(
    _rule,
    {
        "user": Key(_entity_name),
        "client-id": Key(_entity_name),
        "ip": Key(_ip),
        **{kind.key: Key(read.quantity(kind.spec.unit.parse, kind.spec.unit.expected)) for kind in QuotaKind},
        "enforcement": Key(read.member_of(model.Enforcement)),
        "shaping": Key(read.member_of(model.Shaping)),
        "expires": Key(_as_written(partial(parse_instant_ms, at=("expires",))), "expires_ms"),
        "schedule": Key(_as_written(parse_schedule)),
        "ramp": Key(_as_written(parse_ramp)),
    },
    has_source=True,
)
_FOLD: Final = Section(
    _fold,
    {
        "match": Key(_regex, missing="write the regular expression that names must match"),
        "to": Key(read.text("the name to share"), missing="write the name that matching users share"),
    },
)
_USERS: Final = Key(ListOf(read.user_name, frozenset))
PRINCIPALS: Final = Section(
    Principals,
    {
        "fold": Key(ListOf(_FOLD)),
        "exempt": _USERS,
        "brokers": _USERS,
        "admins": _USERS,
        "forward_quota_requests": Key(read.boolean),
    },
)
