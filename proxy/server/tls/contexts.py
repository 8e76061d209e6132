"""TLS on both sides: contexts made of the files that the configuration names, and made anew when these change.

A handshake takes the context that is in force when it begins and keeps it; a new one holds for the handshakes after it.
Session tickets, ciphers and groups are OpenSSL's defaults, and no ALPN is offered, as in Kafka.

Files are polled with ``os.stat``, as the configuration's is, for the same reasons.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import TlsFileError
from kafka_quota_proxy.config.security import ClientAuth, ClientTls, TlsVersion, UpstreamTls
from kafka_quota_proxy.config.tls_files import check_expiry, expiry_of, load_ca, load_certificate
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.background.isolation import alone
from kafka_quota_proxy.proxy.server.tls.transport import SaidNothingError

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


def client_side_context(tls: ClientTls) -> ssl.SSLContext:
    """Return the context that serves clients.

    Raises:
        TlsFileError: One of its files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    # A client could ask for one key exchange after the other; Kafka's clients never do.
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_certificate(context, certificate=tls.certificate, key=tls.key)
    if tls.client_ca is not None:
        _trust(context, key="client_ca", ca=tls.client_ca)
    context.verify_mode = _VERIFY_MODES[tls.client_auth]
    return context


def upstream_side_context(tls: UpstreamTls) -> ssl.SSLContext:
    """Return the context that brokers are dialled with; the dial gives the host as ``server_hostname``.

    Raises:
        TlsFileError: One of its files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = tls.check_hostname
    if tls.ca is None:
        context.load_default_certs()
    else:
        _trust(context, key="ca", ca=tls.ca)
    if tls.certificate is not None and tls.key is not None:
        load_certificate(context, certificate=tls.certificate, key=tls.key)
    return context


def _trust(context: ssl.SSLContext, *, key: str, ca: str) -> None:
    # What an operator lists is trusted, be it a root, what a root has signed, or one broker's certificate: as in the
    # truststores of Java that these files replace.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    load_ca(context, key=key, ca=ca)


class _Seen(NamedTuple):
    """What tells one state of a file from another."""

    mtime_ns: int
    ctime_ns: int  # a file that could not be read can be readable without another change
    inode: int
    size_bytes: int


class TlsContext:
    """One side's context and the files that it was made of."""

    def __init__(self, tls: ClientTls | UpstreamTls) -> None:
        """Build the first one.

        Raises:
            TlsFileError: One of its files cannot be used.
        """
        self.settings = tls
        self.last_reload_successful = True
        self.expires_at: datetime | None = None  # of the certificate that is shown; None: none is
        self._paths = _paths(tls)
        # Before the files are read: what is written meanwhile is seen as a change.
        self._tried = self._looked = self._look()
        self._hash = self._content_hash()
        self._build()

    @property
    def context(self) -> ssl.SSLContext:
        """The context in force, for the next handshake."""
        return self._context

    def have_files_changed(self) -> bool:
        """Return whether ``rebuild`` would meet other files than it or the start did last. To be polled.

        A change is reported once it has been left alone from one call to the next: a certificate and its key are
        replaced one after the other, and the half of a file of CAs is valid as well. About 2 us a file.
        """
        looked = self._look()
        has_settled = looked == self._looked
        self._looked = looked
        return has_settled and looked != self._tried

    def rebuild(self, *, now: datetime) -> bool:
        """Make a context of the files as they are; return whether it differs from the one before.

        Raises:
            TlsFileError: One of the files cannot be used, or the certificate has expired. The context before stays in
                force, and the files count as unchanged until they change once more.
        """
        self._tried = self._looked = self._look()
        content_hash = self._content_hash()
        if content_hash == self._hash:
            return False
        if self.settings.certificate is not None:
            check_expiry(self.settings.certificate, now=now)
        self._build()
        self._hash = content_hash
        return True

    def reload(self, *, now: datetime) -> None:
        """Rebuild, and say what came of it. Reads files: not in the event loop's thread."""
        try:
            is_new = self.rebuild(now=now)
        except TlsFileError as error:
            self.last_reload_successful = False
            log.error("%s; what was in force before stays in force, and it is tried again when a file changes", error)  # noqa: TRY400
            return
        self.last_reload_successful = True
        if is_new:
            until = f", until {self.expires_at:%Y-%m-%d %H:%M:%S} UTC" if self.expires_at else ""
            log.info("%s: what has changed is in force for new connections%s", ", ".join(self._paths), until)

    def _build(self) -> None:
        tls = self.settings
        context = client_side_context(tls) if isinstance(tls, ClientTls) else upstream_side_context(tls)
        self.expires_at = expiry_of(tls.certificate) if tls.certificate is not None else None
        self._context = context

    def _look(self) -> tuple[_Seen | None, ...]:
        return tuple(_look(path) for path in self._paths)

    def _content_hash(self) -> bytes:
        """Hash what the files hold; one that cannot be read is for ``_build`` to complain of."""
        digest = hashlib.sha256()
        for path in self._paths:
            try:
                content = Path(path).read_bytes()
            except OSError:
                content = b""
            digest.update(len(content).to_bytes(8) + content)
        return digest.digest()


def _look(path: str) -> _Seen | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # half the time of Path.stat
    except OSError:
        return None
    return _Seen(found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size)


def _paths(tls: ClientTls | UpstreamTls) -> tuple[str, ...]:
    ca = tls.client_ca if isinstance(tls, ClientTls) else tls.ca
    return tuple(path for path in (tls.certificate, tls.key, ca) if path is not None)


async def watch(contexts: Collection[TlsContext]) -> None:
    """Reload each whose files change, until cancelled."""
    while True:
        await asyncio.sleep(_POLL_S)
        for context in contexts:
            await alone(partial(_follow, context))


async def _follow(context: TlsContext) -> None:
    if context.have_files_changed():
        await asyncio.to_thread(context.reload, now=datetime.now(UTC))


def client_fault(error: Exception) -> str:
    """Return why a client's handshake failed, as the cause of its disconnect: one of a dozen words."""
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


def broker_fault(error: ssl.SSLError, context: TlsContext | None, host: str) -> str:
    """Return why a handshake with a broker failed, and what would help, for the operator.

    In TLS 1.3 a broker's refusal of our certificate comes after the handshake, with the first bytes that are read.
    """
    tls = context.settings if context else None
    if not isinstance(tls, UpstreamTls):
        return f"the TLS handshake with {host} failed: {error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, tls, host)
    match error.reason or "":
        case "WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE":
            return f"{host} does not speak TLS there; write its TLS port, or remove upstream_tls"
        case "UNSUPPORTED_PROTOCOL" | "TLSV1_ALERT_PROTOCOL_VERSION" | "NO_PROTOCOLS_AVAILABLE":
            return f"{host} speaks no version of TLS from {tls.min_version.value} on"
        case reason if "ALERT" in reason:
            return _refused(reason, tls, host)
    return f"the TLS handshake with {host} failed: {error}"


def _untrusted(error: ssl.SSLCertVerificationError, tls: UpstreamTls, host: str) -> str:
    trusted = tls.ca or "the system's certificates"
    if error.verify_code in _OTHER_NAME:
        return (
            f"the broker's certificate is not for {host}: {error.verify_message}; check_hostname: false would take it"
        )
    if error.verify_code == _EXPIRED:
        return f"the certificate of {host}, or one that it rests on, has expired"
    return f"the certificate of {host} rests on none in {trusted} (ca): {error.verify_message}"


def _refused(reason: str, tls: UpstreamTls, host: str) -> str:
    said = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if tls.certificate is None:
        return f"{host} refuses the handshake ({said}); if it asks for certificates, give certificate and key"
    try:
        check_expiry(tls.certificate, now=datetime.now(UTC))
    except TlsFileError as fault:
        return f"{host} refuses the handshake ({said}); {fault}"
    return f"{host} refuses the handshake ({said}); does it trust whoever has signed {tls.certificate}?"
