"""TLS and SASL: of the listeners, and of this program's own Kafka clients."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_quota_proxy.config.principal_mapping import DEFAULT_RULES, MappingRule


class ClientAuth(Enum):
    """Whether a TLS client has to show a certificate (Kafka's ``ssl.client.auth``)."""

    REQUIRED = "required"
    REQUESTED = "requested"  # one that is shown has to be right; without one the user is ANONYMOUS
    NONE = "none"


class TlsVersion(Enum):
    """The oldest version of TLS that is spoken."""

    TLS_1_2 = "1.2"
    TLS_1_3 = "1.3"


class SecurityProtocol(Enum):
    """How this program's own clients speak to brokers (Kafka's ``security.protocol``)."""

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
    """How the logins that pass a listener are read."""

    oauthbearer_claim: str = "sub"  # of a web token: who it is; a broker's sasl.oauthbearer.sub.claim.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """TLS towards clients. Files are paths of PEM files; a relative one starts where the process does."""

    certificate: str  # the listener's own, then those between it and its root
    key: str  # not encrypted
    client_ca: str | None = None  # whoever signed the clients' certificates; given unless client_auth is NONE
    client_auth: ClientAuth = ClientAuth.NONE
    principal_mapping_rules: tuple[MappingRule, ...] = DEFAULT_RULES  # the first that matches counts
    min_version: TlsVersion = TlsVersion.TLS_1_2


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTls:
    """TLS towards brokers. Files as in ``ClientTls``; certificate and key, what this proxy shows, come together."""

    ca: str | None = None  # whoever signed the brokers' certificates; None: whom the system trusts
    certificate: str | None = None
    key: str | None = None
    check_hostname: bool = True
    min_version: TlsVersion = TlsVersion.TLS_1_2
