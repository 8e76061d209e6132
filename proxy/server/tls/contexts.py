"""Builds TLS contexts for clients and brokers from certificate and key files, and rebuilds them when the files change.

A handshake keeps the context with which it began. OpenSSL's defaults apply to session tickets, ciphers and groups, and
no ALPN is offered, as in Kafka. Files are polled with ``os.stat``, for the reasons that ``config_reloader`` gives.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.errors import TlsFileError
from kafka_quota_proxy.config.security import ClientAuth, ClientTls, TlsVersion, UpstreamTls
from kafka_quota_proxy.config.tls_files import check_expiry, expiry_of, load_ca, load_certificate
from kafka_quota_proxy.config.trust import BrokerSideContext
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.isolation import alone
from kafka_quota_proxy.proxy.server.file_state import FileState, file_state

log = logging.getLogger(__name__)

_VERSIONS: Final = {TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.NONE: ssl.CERT_NONE,
}
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH; X509_V_ERR_CERT_HAS_EXPIRED (openssl/x509_vfy.h).
_OTHER_NAME: Final = frozenset({62, 64})
_EXPIRED: Final = 10
_POLL_S: Final = 1.0
_CLIENT_FAULTS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls_no_certificate",
    "HTTP_REQUEST": "tls_plaintext",
    "WRONG_VERSION_NUMBER": "tls_plaintext",
    "UNSUPPORTED_PROTOCOL": "tls_version",
    "NO_SHARED_CIPHER": "tls_no_shared_cipher",
}


class SaidNothingError(ConnectionResetError):
    """The peer has disconnected during the TLS handshake without sending a byte, as health checks do."""


def client_side_context(tls: ClientTls) -> ssl.SSLContext:
    """Return a TLS context for connections from clients. Raises TlsFileError if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, certificate=tls.certificate, key=tls.key)
    context.minimum_version = _VERSIONS[tls.min_version]
    # A client could request one key exchange after another; Kafka's clients never do.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if tls.client_ca is not None:
        load_ca(context, key="client_ca", ca=tls.client_ca)
    context.verify_mode = _VERIFY_MODES[tls.client_auth]
    return context


def upstream_side_context(tls: UpstreamTls) -> ssl.SSLContext:
    """Return a TLS context for connections to brokers. Each must pass the broker's host as ``server_hostname``.

    Raises:
        TlsFileError: If one of the files in ``tls`` cannot be used.
    """
    context = BrokerSideContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.certificate is not None and tls.key is not None:
        load_certificate(context, certificate=tls.certificate, key=tls.key)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = tls.check_hostname
    if tls.ca is None:
        context.load_default_certs()
    else:
        load_ca(context, key="ca", ca=tls.ca)
    return context


class TlsContext:
    """Holds an ``SSLContext`` for clients or for brokers, and replaces it when its certificate or key files change."""

    def __init__(self, tls: ClientTls | UpstreamTls) -> None:
        """Build an ``SSLContext`` from the files that ``tls`` names. Raises TlsFileError if a file cannot be used."""
        self.settings = tls
        self.last_reload_successful = True
        self.expires_at: datetime | None = None  # of the proxy's certificate; None without one
        self._paths = _paths(tls)
        # Do this before the files are read, so that a write in between counts as a change.
        self._used_stat = self._last_stat = self._stat_all()
        self._hash = self._content_hash()
        self._build()

    @property
    def context(self) -> ssl.SSLContext:
        """The context in force, which the next handshake will use."""
        return self._context

    def have_files_changed(self) -> bool:
        """Return whether the certificate and key files have changed since they were last read. Call this regularly.

        The result is True only if the files have also stayed the same since the previous call, because a certificate
        and its key are replaced one after the other.
        """
        stat = self._stat_all()
        has_settled = stat == self._last_stat
        self._last_stat = stat
        return has_settled and stat != self._used_stat

    def rebuild(self, *, now: datetime) -> bool:
        """Build a new context if the contents of the files have changed, and return whether they have.

        Raises:
            TlsFileError: If a file cannot be used, or the certificate has expired. The old context then stays in force.
        """
        self._used_stat = self._last_stat = self._stat_all()
        content_hash = self._content_hash()
        if content_hash == self._hash:
            return False
        if self.settings.certificate is not None:
            check_expiry(self.settings.certificate, now=now)
        self._build()
        self._hash = content_hash
        return True

    def reload(self, *, now: datetime) -> None:
        """Rebuild the context, and log the outcome. Run this in a thread, because it reads files."""
        try:
            is_new = self.rebuild(now=now)
        except TlsFileError as error:
            self.last_reload_successful = False
            log.error("%s; the old certificates are used until a file changes again", error)  # noqa: TRY400
            return
        self.last_reload_successful = True
        if is_new:
            until = f", until {self.expires_at:%Y-%m-%d %H:%M:%S} UTC" if self.expires_at else ""
            log.info("%s: new connections use the changed certificates%s", ", ".join(self._paths), until)

    def _build(self) -> None:
        tls = self.settings
        context = client_side_context(tls) if isinstance(tls, ClientTls) else upstream_side_context(tls)
        self.expires_at = expiry_of(tls.certificate) if tls.certificate is not None else None
        self._context = context

    def _stat_all(self) -> tuple[FileState | None, ...]:
        return tuple(file_state(path) for path in self._paths)

    def _content_hash(self) -> bytes:
        """Return a hash of the contents of all files. A file that cannot be read counts as empty."""
        digest = hashlib.sha256()
        for path in self._paths:
            try:
                content = Path(path).read_bytes()
            except OSError:
                content = b""
            digest.update(len(content).to_bytes(8) + content)
        return digest.digest()


def _paths(tls: ClientTls | UpstreamTls) -> tuple[str, ...]:
    ca = tls.client_ca if isinstance(tls, ClientTls) else tls.ca
    return tuple(path for path in (tls.certificate, tls.key, ca) if path is not None)


async def watch(contexts: Collection[TlsContext]) -> None:
    """Check the files of all contexts every second, and reload contexts whose files have changed, until cancelled."""
    while True:
        await asyncio.sleep(_POLL_S)
        for context in contexts:
            await alone(partial(_reload_if_changed, context))


async def _reload_if_changed(context: TlsContext) -> None:
    if context.have_files_changed():
        await in_thread(partial(context.reload, now=datetime.now(UTC)), name="tls")


def client_fault(error: Exception) -> str:
    """Return the cause of a client's failed TLS handshake as metrics name it, for example ``tls_timeout``."""
    match error:
        case ProtocolError():
            return f"tls_{error.reason}"
        case SaidNothingError():
            return "client_closed"
        case TimeoutError():
            return "tls_timeout"
        case ssl.SSLCertVerificationError():
            return "tls_certificate_expired" if error.verify_code == _EXPIRED else "tls_certificate_untrusted"
        case ssl.SSLError():
            return _CLIENT_FAULTS.get(error.reason or "", "tls_refused" if "ALERT" in str(error) else "tls_malformed")
    return "tls_client_lost"


def broker_fault(error: ssl.SSLError, context: TlsContext | None, host: str) -> tuple[str, str]:
    """Return why the TLS handshake with a broker failed: a word for metrics, and a text that says what may help."""
    tls = context.settings if context else None
    if not isinstance(tls, UpstreamTls):
        return "tls_failed", f"the TLS handshake with {host} failed: {error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "tls_untrusted", _untrusted(error, tls, host)
    match error.reason or "":
        case "WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE":
            return "not_tls", f"{host} does not speak TLS there; use its TLS port, or remove upstream_tls"
        case "UNSUPPORTED_PROTOCOL" | "TLSV1_ALERT_PROTOCOL_VERSION" | "NO_PROTOCOLS_AVAILABLE":
            return "tls_version", f"{host} does not support TLS {tls.min_version.value} or later"
        case "SSLV3_ALERT_ILLEGAL_PARAMETER" | "TLSV1_UNRECOGNIZED_NAME":  # Java answers the first to an odd name
            text = f"{host} does not take {host} as its name (SNI); write the name that its certificate has"
            return "tls_refused", text
        case reason if "ALERT" in reason:
            return "tls_refused", _refused(reason, tls, host)
    return "tls_failed", f"the TLS handshake with {host} failed: {error}"


def _untrusted(error: ssl.SSLCertVerificationError, tls: UpstreamTls, host: str) -> str:
    trusted = tls.ca or "the system's certificates"
    if error.verify_code in _OTHER_NAME:
        return (
            f"the broker's certificate is not for {host}: {error.verify_message}; check_hostname: false would accept it"
        )
    if error.verify_code == _EXPIRED:
        return f"the certificate of {host}, or one in its chain, has expired"
    return f"the certificate of {host} is not signed by any certificate in {trusted} (ca): {error.verify_message}"


def _refused(reason: str, tls: UpstreamTls, host: str) -> str:
    said = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if tls.certificate is None:
        return f"{host} refuses the handshake ({said}); if it asks for certificates, give certificate and key"
    try:
        check_expiry(tls.certificate, now=datetime.now(UTC))
    except TlsFileError as fault:
        return f"{host} refuses the handshake ({said}); {fault}"
    return f"{host} refuses the handshake ({said}); does it trust the CA that signed {tls.certificate}?"
