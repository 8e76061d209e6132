"""Tests how certificate and key files are read. A fault gives the file and the remedy."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kafka_quota_proxy.config.errors import ConfigError, TlsFileError
from kafka_quota_proxy.config.load import load, load_bytes
from kafka_quota_proxy.config.tls_files import check_expiry, expiry_of, load_ca, load_certificate
from tests.support.certificates import LAST_YEAR, Authority

NOW = datetime.now(UTC)
AUTHORITY = Authority("authority")
ISSUED = AUTHORITY.issue("proxy", hosts=["localhost"])
NO_X509 = b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    AUTHORITY.save(tmp_path, "ca")
    ISSUED.save(tmp_path, "proxy")
    return tmp_path


def context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def encrypted() -> bytes:
    key = serialization.load_pem_private_key(ISSUED.key, password=None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def test_a_pair_and_a_ca_are_loaded(directory: Path) -> None:
    loaded = context()

    load_certificate(loaded, certificate=str(directory / "proxy.pem"), key=str(directory / "proxy.key"))
    load_ca(loaded, key="ca", ca=str(directory / "ca.pem"))

    assert [dict(pair[0] for pair in ca["subject"])["commonName"] for ca in loaded.get_ca_certs()] == ["authority"]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("file", "content", "key", "message"),
    [
        ("proxy.pem", None, "certificate", "cannot be read: No such file or directory; give a PEM file"),
        ("proxy.pem", b"", "certificate", "cannot be used"),
        ("proxy.pem", ISSUED.der, "certificate", "cannot be used"),
        ("proxy.pem", NO_X509, "certificate", "cannot be used"),
        ("proxy.pem", AUTHORITY.pem, "certificate", "key values mismatch; give two files in PEM that belong together"),
        ("proxy.key", None, "key", "cannot be read"),
        ("proxy.key", ISSUED.certificate, "certificate", "cannot be used"),
        ("proxy.key", encrypted(), "certificate", "the key not encrypted"),
        ("proxy.key", AUTHORITY.issue("other").key, "certificate", "key values mismatch"),
    ],
)
def test_an_invalid_certificate_or_key_is_refused_with_its_path(
    directory: Path, file: str, content: bytes | None, key: str, message: str
) -> None:
    (directory / file).unlink()
    if content is not None:
        (directory / file).write_bytes(content)

    with pytest.raises(TlsFileError) as found:
        load_certificate(context(), certificate=str(directory / "proxy.pem"), key=str(directory / "proxy.key"))

    assert found.value.key == key
    assert str(found.value).startswith(str(directory))
    assert message in str(found.value)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"])
def test_an_invalid_ca_is_refused_with_its_path(directory: Path, content: bytes) -> None:
    (directory / "ca.pem").write_bytes(content)

    with pytest.raises(TlsFileError) as found:
        load_ca(context(), key="client_ca", ca=str(directory / "ca.pem"))

    assert found.value.key == "client_ca"


def test_the_expiry_of_a_certificate_is_read(directory: Path) -> None:
    path = str(directory / "proxy.pem")
    until = x509.load_pem_x509_certificate(ISSUED.certificate).not_valid_after_utc

    assert expiry_of(path) == until
    check_expiry(path, now=until)
    with pytest.raises(TlsFileError, match=r"has expired on .* UTC, so that peers refuse it; renew it"):
        check_expiry(path, now=until + timedelta(seconds=1))


# -- within a configuration --

CONFIG = """\
listeners:
  - name: clients
    bind: 127.0.0.1:9092
    upstream: 127.0.0.1:19092
    client_tls:
      certificate: {certificate}
      key: proxy.key
      client_ca: {ca}
      client_auth: required
    upstream_tls:
      ca: {ca}
"""


def write(directory: Path, *, certificate: str = "proxy.pem", ca: str = "ca.pem") -> Path:
    file = directory / "proxy.yaml"
    file.write_text(CONFIG.format(certificate=certificate, ca=ca))
    return file


def test_paths_start_from_the_configuration(directory: Path) -> None:
    (listener,) = load(write(directory)).config.listeners

    assert listener.client_tls is not None
    assert listener.upstream_tls is not None
    assert listener.client_tls.certificate == str(directory / "proxy.pem")
    assert listener.upstream_tls.ca == str(directory / "ca.pem")


def test_each_invalid_file_is_a_fault_with_its_line(directory: Path) -> None:
    with pytest.raises(ConfigError) as found:
        load(write(directory, certificate="nothing.pem", ca="nobody.pem"))

    assert [(fault.line, fault.key) for fault in found.value.faults] == [
        (6, "listeners[0].client_tls.certificate"),
        (8, "listeners[0].client_tls.client_ca"),
        (11, "listeners[0].upstream_tls.ca"),
    ]


def test_an_expired_certificate_is_a_warning(directory: Path) -> None:
    AUTHORITY.issue("late", not_before=LAST_YEAR, not_after=LAST_YEAR + timedelta(days=1)).save(directory, "proxy")

    (warning,) = load(write(directory)).warnings

    assert "has expired on" in str(warning)


def test_a_reload_does_not_read_the_files(directory: Path) -> None:
    """The files may be in the middle of a replacement, which only the reload of certificates can notice."""
    file = write(directory, certificate="nothing.pem")

    assert (
        load(file, reads_files=False).config.listeners == load_bytes(file.read_bytes(), file=str(file)).config.listeners
    )
