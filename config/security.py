"""The TLS and SASL settings of listeners, and of the Kafka clients that the proxy itself runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_quota_proxy.config.principal_mapping import DEFAULT_RULES, MappingRule


class ClientAuth(Enum):
    """Whether a TLS client must present a certificate (Kafka's ``ssl.client.auth``)."""

    REQUIRED = "required"
    REQUESTED = "requested"  # a certificate is optional; without one, the user is ANONYMOUS
    NONE = "none"


class TlsVersion(Enum):
    """The oldest TLS version that a connection may use."""

    TLS_1_2 = "1.2"
    TLS_1_3 = "1.3"


class SecurityProtocol(Enum):
    """How the proxy's own Kafka clients connect to brokers (Kafka's ``security.protocol``)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether this security protocol encrypts connections with TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in with SASL under this security protocol."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class SaslMechanism(Enum):
    """How the proxy's own Kafka clients log in (Kafka's ``sasl.mechanism``)."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sasl:
    """The settings by which the proxy finds out the user when a client logs in with SASL through a listener."""

    oauthbearer_claim: str = "sub"  # the claim of a token that has the user; Kafka's sasl.oauthbearer.sub.claim.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """The TLS settings for connections from clients to a listener.

    The paths name PEM files, and are relative to the working directory.
    """

    certificate: str  # the listener's own certificate, then intermediate ones
    key: str  # the private key, not encrypted
    client_ca: str | None = None  # the authorities that sign client certificates; set unless client_auth is NONE
    client_auth: ClientAuth = ClientAuth.NONE
    principal_mapping_rules: tuple[MappingRule, ...] = DEFAULT_RULES  # the first that matches applies
    min_version: TlsVersion = TlsVersion.TLS_1_2


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTls:
    """The TLS settings for connections from the proxy to brokers.

    The paths name PEM files, and are relative to the working directory. ``certificate`` and ``key`` are those that the
    proxy presents to brokers. Either both are set, or both are None.
    """

    ca: str | None = None  # the authorities that sign broker certificates; None: those that the system trusts
    certificate: str | None = None
    key: str | None = None
    check_hostname: bool = True
    min_version: TlsVersion = TlsVersion.TLS_1_2
