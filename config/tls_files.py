"""Loads certificates and private keys from files into an ``SSLContext``, and reports faults of these files.

For a malformed file, OpenSSL's error often says no more than "PEM lib". So this module also reads the file itself, and
its errors name the file and the reason.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.certificate import CertificateError, certificates_of, validity_of
from kafka_quota_proxy.config.cluster_checks import clients_of
from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.errors import TlsFileError
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.trust import trust

_CLIENT_FILE_KEYS: Final = ("sasl_password_file", "ssl_cafile", "ssl_certfile", "ssl_keyfile")
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----")
_IS_ENCRYPTED: Final = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE)
_NO_PEM: Final = "; other forms, such as DER and Java's JKS and PKCS12, have to be converted"


def load_certificate(context: ssl.SSLContext, *, certificate: str, key: str) -> None:
    """Load a certificate and its private key into a context. Raises TlsFileError if one of the files cannot be used."""
    _certificates("certificate", certificate)
    content = _read("key", key)
    if _IS_ENCRYPTED.search(content):
        message = "is encrypted, and this program asks for no password"
        raise TlsFileError("key", f"{key} {message}; decrypt it (openssl pkey -in {key}) and guard the file")
    if not _PRIVATE_KEY.search(content):
        raise TlsFileError("key", f"{key} holds no private key in PEM (-----BEGIN PRIVATE KEY-----){_NO_PEM}")
    try:
        # Without a password, OpenSSL would prompt on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"{key} is not the key of the first certificate in {certificate}"
            raise TlsFileError("key", f"{message}; give the two that belong together") from error
        # Both files have the right form, so most likely the key is too weak. The fault is reported for the certificate,
        # which has the public key.
        raise TlsFileError("certificate", f"{certificate} with {key} cannot be used: {_reason(error)}") from error


def load_ca(context: ssl.SSLContext, *, key: str, ca: str) -> None:
    """Make a context trust all certificates in the file ``ca``. Raises TlsFileError if the file cannot be used.

    ``key`` is the configuration key that names the file, such as ``client_ca``. It appears in the error.
    """
    _certificates(key, ca)
    try:
        trust(context, ca)
    except ssl.SSLError as error:
        raise TlsFileError(key, f"{ca} cannot be used: {_reason(error)}") from error


def expiry_of(certificate: str) -> datetime:
    """Return when the first certificate in a file expires. Raises TlsFileError if the certificate cannot be read."""
    try:
        return validity_of(_certificates("certificate", certificate)[0])[1]
    except CertificateError as error:
        raise TlsFileError("certificate", f"{certificate} cannot be used: {error}") from error


def check_expiry(certificate: str, *, now: datetime) -> None:
    """Raise TlsFileError if the first certificate in a file has expired, or if it cannot be read."""
    not_after = expiry_of(certificate)
    if now > not_after:
        message = f"{certificate} has expired on {not_after:%Y-%m-%d %H:%M:%S} UTC, so that peers refuse it; renew it"
        raise TlsFileError("certificate", message)


def check_files(top: Part, _: Document) -> Iterator[Finding]:
    """Report faults of all TLS and password files that the configuration names."""
    for listener in top.parts("listeners"):
        for section in (listener.find("client_tls"), listener.find("upstream_tls")):
            if section is not None:
                yield from _check_section(section)
    for client in clients_of(top):
        for key in _CLIENT_FILE_KEYS:
            path = client.get(key)
            try:
                if path is not None:
                    Path(path).read_bytes()
            except (OSError, ValueError) as fault:  # ValueError: a NUL in the name
                reason = getattr(fault, "strerror", None) or fault
                yield error((*client.at, key), f"{path} cannot be read: {reason}")


def _check_section(section: Part) -> Iterator[Finding]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = section.get("certificate"), section.get("key")
    if certificate and key:
        is_usable = False
        try:
            load_certificate(context, certificate=certificate, key=key)
            is_usable = True
            check_expiry(certificate, now=datetime.now(UTC))
        except TlsFileError as fault:
            # A running proxy goes on with an expired certificate, so an expired certificate does not prevent a start
            # either.
            yield (warning if is_usable else error)((*section.at, fault.key), str(fault))
    for name in ("client_ca", "ca"):
        try:
            if ca := section.get(name):
                load_ca(context, key=name, ca=ca)
        except TlsFileError as fault:
            yield error((*section.at, name), str(fault))


def _certificates(key: str, path: str) -> list[bytes]:
    """Return the certificates in a PEM file, each in DER. Raises TlsFileError if the file contains none."""
    try:
        certificates = certificates_of(_read(key, path))
    except CertificateError as error:
        raise TlsFileError(key, f"{path} cannot be used: {error}") from error
    if not certificates:
        raise TlsFileError(key, f"{path} holds no certificate in PEM (-----BEGIN CERTIFICATE-----){_NO_PEM}")
    return certificates


def _read(key: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TlsFileError(key, f"{path} cannot be read: {error.strerror or error}; give a PEM file") from error
    except ValueError as error:  # a NUL in the name
        raise TlsFileError(key, f"{path!r} is not a path: {error}; give a PEM file") from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
