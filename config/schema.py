"""Tables that define the keys at the top level of the configuration file, and the keys of a listener.

A table says how each key is read and checked. ``config.sections`` reads the file by these tables. The defaults are in
``config.model``.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import chain
from typing import Any, Final

from kafka_quota_proxy.config import model
from kafka_quota_proxy.config import value_readers as read
from kafka_quota_proxy.config.addresses import not_an_ip, parse_address, parse_ip, parse_port_range, usual_ip
from kafka_quota_proxy.config.cluster_schema import QUOTAS_FROM, REPLICATION, STORE, USAGE_LOG, quotas_from_mapping
from kafka_quota_proxy.config.document import Odd
from kafka_quota_proxy.config.fair_call_queue_options import FAIR_CALL_QUEUE
from kafka_quota_proxy.config.linear_regex import LinearRegexError, Pattern, compile_linear, read_replacement
from kafka_quota_proxy.config.model import (
    Address,
    Admin,
    Enforcement,
    Log,
    LogFormat,
    ProxyProtocol,
    RelayKind,
    Shaping,
)
from kafka_quota_proxy.config.principal_mapping import MappingRule, parse_rules
from kafka_quota_proxy.config.principals import Fold, Principals
from kafka_quota_proxy.config.quota_kinds import (
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    IP_LIMIT_KEYS,
    KIND_OF_KEY,
    QuotaKind,
)
from kafka_quota_proxy.config.sections import Key, ListOf, Section, TextWantedError
from kafka_quota_proxy.config.security import ClientAuth, ClientTls, Sasl, TlsVersion, UpstreamTls
from kafka_quota_proxy.config.term_values import parse_instant_ms, parse_ramp, parse_schedule
from kafka_quota_proxy.config.terms import Terms, check_terms
from kafka_quota_proxy.config.units import INT32_MAX, UNLIMITED, parse_size


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
        "expires": Key(_as_written(parse_instant_ms), "expires_ms"),
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
    },
    removed={
        "forward_quota_requests": "no longer exists: requests of users that are not in admins are refused; remove it"
    },
)


_ENFORCEMENT: Final = Key(read.member_of(Enforcement))
_SHAPING: Final = Key(read.member_of(Shaping))
_BIND: Final = Key(read.bind, missing="write the address to listen on, such as 0.0.0.0:9092")
_CONNECTION_LIMIT: Final = Key(read.whole_number(1, INT32_MAX, ", or null for no limit"), or_null=True)
_TIMEOUT: Final = read.positive_duration("a duration such as 30s, or null for none")
_FRAME_SIZE: Final = read.quantity(
    parse_size,
    "a size, such as 100MiB",
    least=1,
    most=INT32_MAX,
    otherwise=f"must be from 1 to {INT32_MAX} bytes, the length of a Kafka frame is an int32",
)
_BUFFER: Final = read.quantity(
    parse_size,
    "a size, such as 512MiB",
    least=16 * 1024 * 1024,
    otherwise="must be 16MiB or more; below it a few slow clients would be closed without need",
)
_THROTTLE_TIME: Final = read.positive_duration("a duration such as 25s, or null for no bound")


def _upstream(value: str) -> Address:
    found = parse_address(value)
    if found.port == 0:
        raise ValueError("port 0 is out of range for an upstream; write the broker's port, 1 to 65535")
    return found


def _proxy_protocol(value: object) -> ProxyProtocol | None:
    if isinstance(value, bool):
        return ProxyProtocol() if value else None
    if not isinstance(value, dict) or list(value) != ["from"] or not isinstance(value["from"], list):
        raise ValueError("must be false, true (each connection begins with a header) or {from: [10.0.0.0/8]}")
    if not value["from"]:
        raise ValueError("from is empty, so no client could connect; list the networks of your load balancers")
    return ProxyProtocol(sources=tuple(_network(each) for each in value["from"]))


def _network(value: object) -> IPv4Network | IPv6Network:
    if not isinstance(value, str):
        raise TextWantedError("a network, such as 10.0.0.0/8", quotable=True)
    try:
        return ip_network(value)
    except ValueError as error:
        raise ValueError(f"{error}; write a network such as 10.0.0.0/8, or an address such as 10.0.0.7") from error


def _no_queue(value: object) -> None:
    if value is not False:
        raise ValueError("must be false, for no queue at this listener; its settings belong to the top of the file")


def _tls_version(value: object) -> TlsVersion:
    # YAML reads 1.2 as a number.
    return read.member_of(TlsVersion)(str(value) if isinstance(value, float) else value)


def _mapping_rules(value: object) -> tuple[MappingRule, ...]:
    """Read one element of ``principal_mapping_rules``, which may contain several rules, separated by commas."""
    rules = parse_rules(read.text("a rule: DEFAULT or RULE:pattern/replacement/")(value))
    if not rules:
        raise ValueError("holds no rule; write DEFAULT or RULE:pattern/replacement/")
    return rules


def _all_rules(lists: Iterable[tuple[MappingRule, ...]]) -> tuple[MappingRule, ...]:
    return tuple(chain.from_iterable(lists))


def _own_ip_address(value: object) -> str:
    name = read.text("an IP address of this machine, such as 10.0.0.5")(value)
    found = usual_ip(name)
    if found is None:
        raise ValueError(not_an_ip(name))
    return found


_CLIENT_TLS: Final = Section(
    ClientTls,
    {
        "certificate": replace(
            read.PEM_PATH, missing="write the path of a PEM file that begins with the listener's own certificate"
        ),
        "key": replace(read.PEM_PATH, missing="write the path of a PEM file with the certificate's private key"),
        "client_ca": read.PEM_PATH,
        "client_auth": Key(read.member_of(ClientAuth)),
        "principal_mapping_rules": Key(ListOf(_mapping_rules, _all_rules, needs_one=True)),
        "min_version": Key(_tls_version),
    },
)
_UPSTREAM_TLS: Final = Section(
    UpstreamTls,
    {
        "ca": read.PEM_PATH,
        "certificate": read.PEM_PATH,
        "key": read.PEM_PATH,
        "check_hostname": Key(read.boolean),
        "min_version": Key(_tls_version),
    },
)
# The section stays a dict. ``config.load`` makes the listener from it, because a listener has settings of other
# sections.
_LISTENER: Final = Section(
    dict,
    {
        "name": Key(read.text("a name"), missing="give the listener a name, it appears in logs and metrics"),
        "bind": _BIND,
        # listener_checks.py reports if both or neither of upstream and bootstrap_servers are given.
        "upstream": Key(read.parsed(_upstream, "HOST:PORT, such as 127.0.0.1:9092")),
        "bootstrap_servers": Key(read.bootstrap_servers),
        "advertised_host": Key(read.advertised_host),
        "broker_ports": Key(read.parsed(parse_port_range, "FIRST-LAST, such as 9193-9292")),
        "node_id": Key(read.node_id),
        "inter_broker": Key(read.boolean),
        "proxy_protocol": Key(_proxy_protocol),
        "max_frame_size": Key(_FRAME_SIZE, "max_frame_size_bytes"),
        "max_connections": _CONNECTION_LIMIT,
        "max_connections_per_ip": _CONNECTION_LIMIT,
        "login_timeout": Key(_TIMEOUT, "login_timeout_ms", or_null=True),
        "idle_timeout": Key(_TIMEOUT, "idle_timeout_ms", or_null=True),
        "max_connection_age": Key(_TIMEOUT, "max_connection_age_ms", or_null=True),
        "max_connection_creation_rate": Key(read.connections_per_second),
        "enforcement": _ENFORCEMENT,
        "shaping": _SHAPING,
        "sasl": Key(
            Section(Sasl, {"oauthbearer_claim": Key(read.text("the name of a claim, such as sub"))}), takes_null=True
        ),
        "client_tls": Key(_CLIENT_TLS),
        "upstream_tls": Key(_UPSTREAM_TLS),
        "fair_call_queue": Key(_no_queue),
        "relay": Key(read.member_of(RelayKind)),
    },
)
_ADMIN: Final = Section(
    Admin,
    {
        "bind": _BIND,
        "metrics_bind": Key(read.bind),
        "hosts": Key(ListOf(read.host)),
        "quotas_token_file": read.FILE_PATH,
    },
)
_LOG: Final = Section(
    Log, {"format": Key(read.member_of(LogFormat)), "level": Key(read.one_of("debug", "info", "warning", "error"))}
)

FILE: Final = Section(
    dict,
    {
        "listeners": Key(
            ListOf(_LISTENER, needs_one=True),
            missing="give at least one, with name, bind, and upstream or bootstrap_servers",
        ),
        "upstream_bind": Key(_own_ip_address),
        "enforcement": _ENFORCEMENT,
        "max_throttle_time": Key(_THROTTLE_TIME, "max_throttle_time_ms", or_null=True),
        "shaping": _SHAPING,
        "burst": Key(read.duration_ms, "burst_ms"),
        "request_time_scale": Key(read.number_between(0.1, 10, is_open=False)),
        "max_buckets": Key(read.at_least_one),
        "drain_timeout": Key(read.duration_ms, "drain_timeout_ms"),
        "max_buffered": Key(_BUFFER, "max_buffered_bytes"),
        "kafka": Key(KAFKA, takes_null=True),
        "quotas": Key(ListOf(QUOTA)),
        "principals": Key(PRINCIPALS, takes_null=True),
        "replication": Key(REPLICATION),
        "fair_call_queue": Key(FAIR_CALL_QUEUE),
        "usage_log": Key(USAGE_LOG),
        "quotas_from": Key(QUOTAS_FROM, expand=quotas_from_mapping),
        "store": Key(STORE),
        "admin": Key(_ADMIN, takes_null=True),
        "testing": Key(read.boolean),
        "log": Key(_LOG, takes_null=True),
    },
    removed={"otlp": "no longer exists: let a collector of OpenTelemetry scrape /metrics; remove it"},
)
