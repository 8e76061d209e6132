"""TLS and SASL: of the listeners, and of this program's own Kafka clients."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_quota_proxy.config.principal_mapping import DEFAULT_RULES, MappingRule


class ClientAuth(Enum):
    """Whether a TLS client must present a certificate (Kafka's ``ssl.client.auth``)."""

    REQUIRED = "required"
    REQUESTED = "requested"  # a certificate must be valid; without one the user is ANONYMOUS
    NONE = "none"


class TlsVersion(Enum):
    """The oldest version of TLS that is accepted."""

    TLS_1_2 = "1.2"
    TLS_1_3 = "1.3"


class SecurityProtocol(Enum):
    """How this program's own clients connect to brokers (Kafka's ``security.protocol``)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether the client logs in."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class SaslMechanism(Enum):
    """How this program's own clients log in (Kafka's ``sasl.mechanism``)."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """How the proxy reads logins that pass a listener."""

    oauthbearer_claim: str = "sub"  # the claim with the user; a broker's sasl.oauthbearer.sub.claim.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """TLS towards clients. Files are paths of PEM files; a relative path starts from the working directory."""

    certificate: str  # the listener's own, then intermediate ones
    key: str  # not encrypted
    client_ca: str | None = None  # signs the clients' certificates; set unless client_auth is NONE
    client_auth: ClientAuth = ClientAuth.NONE
    principal_mapping_rules: tuple[MappingRule, ...] = DEFAULT_RULES  # the first that matches counts
    min_version: TlsVersion = TlsVersion.TLS_1_2


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTls:
    """TLS towards brokers. Files as in ``ClientTls``; this proxy's own certificate and key are both set, or neither."""

    ca: str | None = None  # signs the brokers' certificates; None: the system's trusted authorities
    certificate: str | None = None
    key: str | None = None
    check_hostname: bool = True
    min_version: TlsVersion = TlsVersion.TLS_1_2
