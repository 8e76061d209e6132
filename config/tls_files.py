"""Loads certificates and private keys from files into an ``SSLContext``, and reports faults of these files.

OpenSSL's errors do not name the file, so this module's errors do.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.certificate import CertificateError, first_certificate, validity_of
from kafka_quota_proxy.config.cluster_checks import clients_of
from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.errors import TlsFileError
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.trust import trust

_CLIENT_FILE_KEYS: Final = ("sasl_password_file", "ssl_cafile", "ssl_certfile", "ssl_keyfile")


def load_certificate(context: ssl.SSLContext, *, certificate: str, key: str) -> None:
    """Load a certificate and its private key into a context. Raises TlsFileError if one of the files cannot be used."""
    _read("certificate", certificate)
    _read("key", key)
    try:
        # Without a password, OpenSSL would prompt on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        message = (
            f"{certificate} with the key {key} cannot be used: {_reason(error)}; give two files in PEM that belong"
        )
        raise TlsFileError("certificate", f"{message} together, the key not encrypted") from error


def load_ca(context: ssl.SSLContext, *, key: str, ca: str) -> None:
    """Make a context trust all certificates in the file ``ca``. Raises TlsFileError if the file cannot be used.

    ``key`` is the configuration key that names the file, such as ``client_ca``. It appears in the error.
    """
    _read(key, ca)
    try:
        trust(context, ca)
    except ssl.SSLError as error:
        raise TlsFileError(key, f"{ca} cannot be used: {_reason(error)}; give certificates in PEM") from error


def expiry_of(certificate: str) -> datetime:
    """Return when the first certificate in a file expires. Raises TlsFileError if the certificate cannot be read."""
    try:
        return validity_of(first_certificate(_read("certificate", certificate)))[1]
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


def _read(key: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TlsFileError(key, f"{path} cannot be read: {error.strerror or error}; give a PEM file") from error
    except ValueError as error:  # a NUL in the name
        raise TlsFileError(key, f"{path!r} is not a path: {error}; give a PEM file") from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
