"""Makes a TLS context trust the certificates in a file as a Java truststore does, even if several have the same name.

OpenSSL looks for the issuer of a certificate by name. If several trusted certificates have this name, and the
certificate has no identifier of its issuer's key, then OpenSSL takes the first and verifies the signature with its key
alone. A CA that is renewed with a new key keeps its name, so half of the peers would be refused. Java tries each.

OpenSSL stays the only judge here. Python's debugging hook for TLS messages shows the peer's certificates before OpenSSL
verifies them. If the issuer is ambiguous, each trusted certificate with its name is tried alone, in a handshake with
nobody, in which OpenSSL verifies the peer's certificates. The connection then goes on with a context that trusts only
the certificate that was right. So no peer is accepted that OpenSSL would refuse with this certificate alone in the
file. Certificates that have expired are refused, even trusted ones, which Java would accept.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.addresses import without_final_dot
from kafka_quota_proxy.config.certificate import CertificateError, certificates_of, comparable, issuer_of, subject_of
from kafka_quota_proxy.config.errors import TlsFileError

# Bounds for the work that one peer can cause: the certificates of its chain, and the trusted ones that are tried.
_MAX_CHAIN: Final = 10
_MAX_TRIED: Final = 16

_HANDSHAKE: Final = 22  # content type of a TLS record; the others are types of handshake messages (RFC 8446, B.3)
_SERVER_HELLO: Final = 2
_CERTIFICATE: Final = 11
_FINISHED: Final = 20
_RECORD_BYTES: Final = 16 * 1024
_ACCEPTED: Final = 0
_NOT_VERIFIED: Final = 1  # X509_V_ERR_UNSPECIFIED (openssl/x509_vfy.h)
# Also X509_V_ERR_CERT_SIGNATURE_FAILURE, and the errors that no issuer was found.
_OTHER_ISSUER: Final = frozenset({_NOT_VERIFIED, 7, 18, 19, 20, 21})


def trust(context: ssl.SSLContext, ca: str, bare: Callable[[], ssl.SSLContext]) -> None:
    """Make a context trust all certificates in the PEM file ``ca``, be they roots, intermediates or peers' own.

    ``bare`` returns a context for the same side of connections, with the same own certificate, which trusts nothing.

    Raises:
        OSError: The file cannot be read or used.
    """
    _trust(context, cafile=ca)
    with suppress(CertificateError):  # then OpenSSL has read something else in the file
        certificates = list(dict.fromkeys(certificates_of(Path(ca).read_bytes())))
        if len(certificates) > 1:
            choice = _IssuerChoice(ca, certificates, bare)
            context._msg_callback = choice.on_message  # type: ignore[attr-defined] # noqa: SLF001


def _trust(context: ssl.SSLContext, cafile: str | None = None, cadata: bytes | None = None) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cafile=cafile, cadata=cadata)


class _IssuerChoice:
    """Chooses the context whose trusted certificates OpenSSL uses for a peer."""

    def __init__(self, ca: str, trusted: list[bytes], bare: Callable[[], ssl.SSLContext]) -> None:
        self._trusted = [(comparable(subject_of(der)), der) for der in trusted]
        self._bare = bare
        self._all = self._context(cafile=ca)
        self._alone: dict[bytes, ssl.SSLContext] = {}

    def on_message(
        self,
        tls: ssl.SSLObject,
        direction: str,
        version: int,
        content_type: int,
        message_type: int,
        data: bytes,
    ) -> None:
        """Choose the context when the peer's certificates have come, or keep all if it has sent none.

        The chosen context has no such callback, so records after the handshake cost nothing.
        """
        if direction != "read" or content_type != _HANDSHAKE:
            return
        if message_type == _FINISHED:
            tls.context = self._all
        elif message_type == _CERTIFICATE:
            tls.context = self._all
            with suppress(CertificateError, OSError, TlsFileError):  # the files may be being replaced
                chain = list(_chain(data, is_tls_1_3=version == ssl.TLSVersion.TLSv1_3))
                tls.context = self._choose(chain, is_server=bool(tls.server_side))

    def _choose(self, chain: list[bytes], *, is_server: bool) -> ssl.SSLContext:
        """Return the first context with which OpenSSL accepts the chain, else the one that says best what is wrong."""
        chosen: ssl.SSLContext | None = None
        for context in self._candidates(chain):
            fault = _verify(context, chain, is_server=is_server)
            if fault == _ACCEPTED:
                return context
            if chosen is None and fault not in _OTHER_ISSUER:
                chosen = context
        return chosen or self._all

    def _candidates(self, chain: list[bytes]) -> Iterator[ssl.SSLContext]:
        """Yield the contexts to try. There are none if each issuer's name belongs to one certificate only."""
        names = {comparable(issuer_of(der)) for der in chain[:_MAX_CHAIN]}
        issuers = [(name, der) for name, der in self._trusted if name in names]
        sent = ((comparable(subject_of(der)), der) for der in chain[:_MAX_CHAIN])
        named = {*issuers, *((name, der) for name, der in sent if any(name == issuer for issuer, _ in issuers))}
        if len(named) == len({name for name, _ in named}):
            return
        yield self._all
        for _, der in issuers[:_MAX_TRIED]:
            if der not in self._alone:
                self._alone[der] = self._context(cadata=der)
            yield self._alone[der]

    def _context(self, cafile: str | None = None, cadata: bytes | None = None) -> ssl.SSLContext:
        """Return a context for trial handshakes. A connection may go on with it once its TLS version is agreed."""
        context = self._bare()
        context.check_hostname = False  # the connection keeps the name that it began with
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        _trust(context, cafile, cadata)
        return context


def _chain(message: bytes, *, is_tls_1_3: bool) -> Iterator[bytes]:
    """Yield the certificates, in DER, of a Certificate message (RFC 5246, 7.4.2, and RFC 8446, 4.4.2)."""
    at = 4
    if is_tls_1_3:
        at += 1 + int.from_bytes(message[at : at + 1])  # certificate_request_context
    at += 3
    while at + 3 <= len(message):
        end = at + 3 + int.from_bytes(message[at : at + 3])
        yield message[at + 3 : end]
        at = end
        if is_tls_1_3:
            at += 2 + int.from_bytes(message[at : at + 2])  # extensions


def _verify(context: ssl.SSLContext, chain: list[bytes], *, is_server: bool) -> int:
    """Let OpenSSL verify a chain, and return the error (X509_V_ERR…) or ``_ACCEPTED``.

    In TLS 1.2 hellos and certificates are not encrypted, and OpenSSL verifies the certificates before it asks for more.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=is_server)
    listed = b"".join(len(der).to_bytes(3) + der for der in chain)
    certificates = _message(_CERTIFICATE, len(listed).to_bytes(3) + listed)
    try:
        if is_server:
            incoming.write(_client_hello())
        else:
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            incoming.write(_records(_message(_SERVER_HELLO, _SERVER_HELLO_BODY)))
        incoming.write(_records(certificates))
        tls.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_code
    except ssl.SSLWantReadError:
        return _ACCEPTED
    except ssl.SSLError as error:
        # Each cipher is for one type of key. OpenSSL compares the types after it has accepted the certificates.
        return _ACCEPTED if error.reason == "WRONG_CERTIFICATE_TYPE" else _NOT_VERIFIED
    return _NOT_VERIFIED


# TLS 1.2, a random, no session, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, no compression, renegotiation_info.
_SERVER_HELLO_BODY: Final = b"\x03\x03" + bytes(32) + b"\x00" + b"\xc0\x30" + b"\x00" + b"\x00\x05\xff\x01\x00\x01\x00"


@cache
def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def _message(message_type: int, body: bytes) -> bytes:
    return bytes((message_type,)) + len(body).to_bytes(3) + body


def _records(message: bytes) -> bytes:
    pieces = [message[at : at + _RECORD_BYTES] for at in range(0, len(message), _RECORD_BYTES)]
    return b"".join(bytes((_HANDSHAKE, 3, 3)) + len(piece).to_bytes(2) + piece for piece in pieces)


class BrokerSideContext(ssl.SSLContext):
    """A TLS context for connections to brokers, whose host names may end with a dot.

    The dot makes a name absolute for DNS. It is no part of the name in SNI (RFC 6066, 3) and in certificates.
    """

    def wrap_bio(  # type: ignore[override] # typeshed: the arguments that are not used here
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return the TLS object of a connection. All event loops call this, and so does ``TlsTransport``."""
        name = without_final_dot(server_hostname) if server_hostname else server_hostname
        return super().wrap_bio(incoming, outgoing, server_side, name, session)


def broker_side_context(ca: str | None, load_own: Callable[[ssl.SSLContext], None] | None = None) -> BrokerSideContext:
    """Return a context that trusts the certificates in the PEM file ``ca``, or those of the system if that is None.

    ``load_own`` loads the own certificate into a context. It may be called again later.

    Raises:
        OSError: The file cannot be read or used.
    """

    def bare() -> BrokerSideContext:
        context = BrokerSideContext(ssl.PROTOCOL_TLS_CLIENT)
        if load_own is not None:
            load_own(context)
        return context

    context = bare()
    if ca is None:
        context.load_default_certs()
    else:
        trust(context, ca, bare)
    return context
