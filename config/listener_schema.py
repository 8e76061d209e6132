"""The sections of a listener: its addresses, TLS, SASL and limits."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Final, cast

from pydantic import Field, PlainValidator, StrictBool

from kafka_quota_proxy.config.addresses import parse_port_range
from kafka_quota_proxy.config.fair_call_queue_schema import FairCallQueueOrFalse
from kafka_quota_proxy.config.model import Address, ProxyProtocol
from kafka_quota_proxy.config.principal_mapping import MappingRule, parse_rules
from kafka_quota_proxy.config.schema_fields import (
    CreationRate,
    EnforcementChoice,
    NodeId,
    PemPath,
    Section,
    ShapingChoice,
    TextWantedError,
    member_of,
    or_null,
    parse_positive_ms,
    quantity,
    valid_address,
    valid_bootstrap_servers,
    valid_host,
    valid_text,
    whole_number,
)
from kafka_quota_proxy.config.security import ClientAuth, TlsVersion
from kafka_quota_proxy.config.units import INT32_MAX, parse_size


def _upstream(value: object) -> Address:
    address = valid_address(value)
    if address.port == 0:
        raise ValueError("port 0 is out of range for an upstream; write the broker's port, 1 to 65535")
    return address


def _port_range(value: object) -> tuple[int, int]:
    if not isinstance(value, str):
        raise TextWantedError("FIRST-LAST, such as 9193-9292", quotable=False)
    return parse_port_range(value)


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


def _parse_frame_size(value: str | float) -> int:
    size_bytes = parse_size(value)
    if not 0 < size_bytes <= INT32_MAX:
        raise ValueError(f"must be from 1 to {INT32_MAX} bytes, the length of a Kafka frame is an int32")
    return size_bytes


_SIZE: Final = quantity(_parse_frame_size, "a size, such as 100MiB")
_TIMEOUT: Final = quantity(parse_positive_ms, "a duration such as 30s, or null for none")


def _tls_version(value: object) -> TlsVersion:
    # To YAML 1.2 is a number.
    return member_of(TlsVersion)(str(value) if isinstance(value, float) else value)


def _mapping_rules(value: object) -> tuple[MappingRule, ...]:
    """Read one element, which may have several rules, as in a broker's file."""
    rules = parse_rules(valid_text(value, "a rule: DEFAULT or RULE:pattern/replacement/"))
    if not rules:
        raise ValueError("holds no rule; write DEFAULT or RULE:pattern/replacement/")
    return rules


ConnectionLimit = Annotated[int | None, PlainValidator(or_null(whole_number(1, INT32_MAX, ", or null for no limit")))]
Timeout = Annotated[int | None, PlainValidator(or_null(_TIMEOUT))]


class SaslSection(Section):
    """``sasl`` of a listener."""

    oauthbearer_claim: Annotated[
        str, PlainValidator(lambda value: valid_text(value, "the name of a claim, such as sub"))
    ] = ""


class ClientTlsSection(Section):
    """``client_tls`` of a listener."""

    certificate: PemPath
    key: PemPath
    client_ca: PemPath = None
    client_auth: Annotated[ClientAuth, PlainValidator(member_of(ClientAuth))] = ClientAuth.NONE
    principal_mapping_rules: Annotated[
        list[Annotated[tuple[MappingRule, ...], PlainValidator(_mapping_rules)]], Field(min_length=1)
    ] = Field(default_factory=list)
    min_version: Annotated[TlsVersion, PlainValidator(_tls_version)] = TlsVersion.TLS_1_2


class UpstreamTlsSection(Section):
    """``upstream_tls`` of a listener."""

    ca: PemPath = None
    certificate: PemPath = None
    key: PemPath = None
    check_hostname: StrictBool = True
    min_version: Annotated[TlsVersion, PlainValidator(_tls_version)] = TlsVersion.TLS_1_2


class ListenerSection(Section):
    """One element of ``listeners``."""

    name: Annotated[str, PlainValidator(lambda value: valid_text(value, "a name"))]
    bind: Annotated[Address, PlainValidator(valid_address)]
    # None: checks.py sees to it that there is one of upstream and bootstrap_servers.
    upstream: Annotated[Any, PlainValidator(_upstream)] = None
    bootstrap_servers: Annotated[Any, PlainValidator(valid_bootstrap_servers)] = None
    advertised_host: Annotated[Any, PlainValidator(valid_host)] = None
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
