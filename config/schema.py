"""Tables that define the keys at the top level of the configuration file, and the keys of a listener.

A table says how each key is read and checked. ``config.sections`` reads the file by these tables. The defaults are in
``config.model``.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import chain
from typing import Final

from kafka_quota_proxy.config import value_readers as read
from kafka_quota_proxy.config.addresses import is_group, parse_address, parse_port_range
from kafka_quota_proxy.config.cluster_schema import QUOTAS_FROM, REPLICATION, STORE, USAGE_LOG, quotas_from_mapping
from kafka_quota_proxy.config.fair_call_queue_schema import FAIR_CALL_QUEUE, none_for_false
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
from kafka_quota_proxy.config.otlp import EXAMPLE, Otlp, parse_endpoint
from kafka_quota_proxy.config.principal_mapping import MappingRule, parse_rules
from kafka_quota_proxy.config.quota_schema import KAFKA, PRINCIPALS, QUOTA
from kafka_quota_proxy.config.sections import Key, ListOf, Section, TextWantedError
from kafka_quota_proxy.config.security import ClientAuth, ClientTls, Sasl, TlsVersion, UpstreamTls
from kafka_quota_proxy.config.units import INT32_MAX, parse_duration_ms, parse_size

_ENFORCEMENT: Final = Key(read.member_of(Enforcement))
_SHAPING: Final = Key(read.member_of(Shaping))
_BIND: Final = Key(read.bind, missing="write the address to listen on, such as 0.0.0.0:9092")
# ``fair_call_queue: false`` becomes None. Null in the file is a fault.
_FAIR_CALL_QUEUE: Final = Key(FAIR_CALL_QUEUE, expand=none_for_false)
_CONNECTION_LIMIT: Final = Key(
    read.or_null(read.whole_number(1, INT32_MAX, ", or null for no limit")),
    null="a number such as 10000, or null for no limit",
)
_TIMEOUT: Final = read.or_null(read.positive_duration("a duration such as 30s, or null for none"))
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
_MAX_THROTTLE_TIME: Final = "a duration such as 25s, or null for no bound"
_OTLP_INTERVAL: Final = read.quantity(
    parse_duration_ms,
    "a duration, such as 60s",
    least=1_000,
    most=3_600_000,
    otherwise="must be from 1s to 1h, such as 60s",
)


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


def _relay(value: object) -> RelayKind:
    kind = read.member_of(RelayKind)(value)
    if kind is RelayKind.NATIVE and sys.platform != "linux":
        raise ValueError("native needs Linux; leave it out, and the event loop moves the bytes")
    return kind


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
    try:
        found = str(ip_address(name))
    except ValueError:
        found = None
    if found is None or is_group(found):
        raise ValueError(f"{name!r} is not an IP address of a machine; write one of this machine, such as 10.0.0.5")
    return found


def _max_throttle_ms(value: object) -> int | None:
    if isinstance(value, str) and parse_duration_ms(value) == 0:
        raise ValueError(
            "0 would throttle no client; write enforcement: observe to throttle none, or null for no bound"
        )
    return read.or_null(read.positive_duration(_MAX_THROTTLE_TIME))(value)


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
        "max_connections_per_ip": replace(_CONNECTION_LIMIT, null="a number such as 100, or null for no limit"),
        "login_timeout": Key(_TIMEOUT, "login_timeout_ms", null="a duration such as 30s, or null for no limit"),
        "idle_timeout": Key(_TIMEOUT, "idle_timeout_ms", null="a duration such as 10m, or null for no limit"),
        "max_connection_age": Key(
            _TIMEOUT, "max_connection_age_ms", null="a duration such as 1h, or null for no limit"
        ),
        "max_connection_creation_rate": Key(read.connections_per_second),
        "enforcement": _ENFORCEMENT,
        "shaping": _SHAPING,
        "sasl": Key(
            Section(Sasl, {"oauthbearer_claim": Key(read.text("the name of a claim, such as sub"))}), takes_null=True
        ),
        "client_tls": Key(_CLIENT_TLS),
        "upstream_tls": Key(_UPSTREAM_TLS),
        "fair_call_queue": _FAIR_CALL_QUEUE,
        "relay": Key(_relay),
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
_OTLP: Final = Section(
    Otlp,
    {
        "endpoint": Key(
            read.parsed(parse_endpoint, f"a URL, such as {EXAMPLE}"),
            missing=f"write the base URL of the receiver, such as {EXAMPLE}",
        ),
        "interval": Key(_OTLP_INTERVAL, "interval_ms"),
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
        "max_throttle_time": Key(_max_throttle_ms, "max_throttle_time_ms", null=_MAX_THROTTLE_TIME),
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
        "fair_call_queue": _FAIR_CALL_QUEUE,
        "usage_log": Key(USAGE_LOG),
        "quotas_from": Key(QUOTAS_FROM, expand=quotas_from_mapping),
        "store": Key(STORE),
        "admin": Key(_ADMIN, takes_null=True),
        "otlp": Key(_OTLP, takes_null=True),
        "testing": Key(read.boolean),
        "log": Key(_LOG, takes_null=True),
    },
)
