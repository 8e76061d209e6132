"""Tests the TLS contexts of a listener, which are built again when certificate files change."""

import asyncio
import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from kafka_quota_proxy.config.security import ClientAuth, ClientTls, TlsVersion, UpstreamTls
from kafka_quota_proxy.proxy.server.tls import contexts as tls_module
from kafka_quota_proxy.proxy.server.tls.contexts import (
    TlsContext,
    broker_fault,
    client_side_context,
    upstream_side_context,
    watch,
)
from tests.support.certificates import LAST_YEAR, Authority, Issued
from tests.support.handshakes import shake

NOW = datetime.now(UTC)
AUTHORITY, OTHER = Authority("one"), Authority("other")


@pytest.fixture
def settings(tmp_path: Path) -> ClientTls:
    certificate, key = AUTHORITY.issue("proxy", hosts=["proxy.example"]).save(tmp_path, "proxy")
    ca = AUTHORITY.save(tmp_path, "ca")
    return ClientTls(certificate=certificate, key=key, client_ca=ca, client_auth=ClientAuth.REQUIRED)


def client_of(directory: Path, issued: Issued | None, *, ca: str | None = None) -> ssl.SSLContext:
    certificate, key = issued.save(directory, "client") if issued else (None, None)
    return upstream_side_context(UpstreamTls(ca=ca or str(directory / "ca.pem"), certificate=certificate, key=key))


def serial_shown(context: ssl.SSLContext, client: ssl.SSLContext) -> int:
    _, its = shake(context, client)
    shown = its.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


@pytest.mark.parametrize(
    ("client_auth", "issuer", "error"),
    [
        (ClientAuth.REQUIRED, AUTHORITY, None),
        (ClientAuth.REQUIRED, OTHER, "unable to get local issuer certificate"),
        (ClientAuth.REQUIRED, None, "peer did not return a certificate"),
        (ClientAuth.REQUESTED, AUTHORITY, None),
        (ClientAuth.REQUESTED, OTHER, "unable to get local issuer certificate"),
        (ClientAuth.REQUESTED, None, None),
        (ClientAuth.NONE, AUTHORITY, None),
        (ClientAuth.NONE, OTHER, None),
    ],
)
def test_client_certificates(
    tmp_path: Path, settings: ClientTls, client_auth: ClientAuth, issuer: Authority | None, error: str | None
) -> None:
    issued = issuer.issue("duke") if issuer else None
    server = client_side_context(
        ClientTls(
            certificate=settings.certificate, key=settings.key, client_ca=settings.client_ca, client_auth=client_auth
        )
    )
    if error is not None:
        with pytest.raises(ssl.SSLError, match=error):
            shake(server, client_of(tmp_path, issued))
        return

    ours, _ = shake(server, client_of(tmp_path, issued))

    shown = issued.der if issued and client_auth is not ClientAuth.NONE else None
    assert ours.getpeercert(binary_form=True) == shown


def _trusting(directory: Path, issued: Issued) -> ssl.SSLContext:
    AUTHORITY.save(directory, "all")
    return client_of(directory, issued, ca=str(directory / "all.pem"))


@pytest.mark.parametrize(
    ("least", "spoken", "works"),
    [
        (TlsVersion.TLS_1_2, ssl.TLSVersion.TLSv1_2, True),
        (TlsVersion.TLS_1_2, ssl.TLSVersion.TLSv1_3, True),
        (TlsVersion.TLS_1_3, ssl.TLSVersion.TLSv1_2, False),
        (TlsVersion.TLS_1_3, ssl.TLSVersion.TLSv1_3, True),
    ],
)
def test_versions(tmp_path: Path, settings: ClientTls, least: TlsVersion, spoken: ssl.TLSVersion, works: bool) -> None:
    server = client_side_context(ClientTls(certificate=settings.certificate, key=settings.key, min_version=least))
    client = client_of(tmp_path, None)
    client.minimum_version = client.maximum_version = spoken

    if not works:
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
            shake(server, client)
        return
    ours, _ = shake(server, client)

    assert ours.version() == spoken.name.replace("_", ".")


def test_a_brokers_name_is_checked_unless_check_hostname_is_false(tmp_path: Path, settings: ClientTls) -> None:
    server = client_side_context(ClientTls(certificate=settings.certificate, key=settings.key))
    strict = UpstreamTls(ca=settings.client_ca)
    lax = UpstreamTls(ca=settings.client_ca, check_hostname=False)

    with pytest.raises(ssl.SSLCertVerificationError) as found:
        shake(server, upstream_side_context(strict), host="127.0.0.1")
    shake(server, upstream_side_context(lax), host="127.0.0.1")

    reason, message = broker_fault(found.value, TlsContext(strict), "127.0.0.1")
    assert reason == "tls_untrusted"
    assert "the broker's certificate is not for 127.0.0.1" in message
    assert "check_hostname: false would accept it" in message


def test_without_a_name_to_check_the_signer_still_counts(tmp_path: Path, settings: ClientTls) -> None:
    server = client_side_context(ClientTls(certificate=settings.certificate, key=settings.key))
    tls = UpstreamTls(ca=OTHER.save(tmp_path, "other"), check_hostname=False)

    with pytest.raises(ssl.SSLCertVerificationError) as found:
        shake(server, upstream_side_context(tls))

    assert "is not signed by any certificate in" in broker_fault(found.value, TlsContext(tls), "b")[1]


def replace(settings: ClientTls, issued: Issued, *, certificate: bool = True, key: bool = True) -> None:
    for path, content, is_wanted in (
        (settings.certificate, issued.certificate, certificate),
        (settings.key, issued.key, key),
    ):
        if is_wanted:
            Path(path + ".new").write_bytes(content)
            os.replace(path + ".new", path)  # noqa: PTH105


def has_changed(context: TlsContext) -> bool:
    """Return whether a second poll reports a change. The first poll waits for the files to settle."""
    context.have_files_changed()
    return context.have_files_changed()


def test_files_that_stay_are_left_alone(settings: ClientTls) -> None:
    context = TlsContext(settings)

    assert not any(context.have_files_changed() for _ in range(5))


def test_a_new_pair_is_taken(tmp_path: Path, settings: ClientTls) -> None:
    context, client = TlsContext(settings), client_of(tmp_path, AUTHORITY.issue("duke"))
    before, first = context.context, serial_shown(context.context, client)
    new = AUTHORITY.issue("proxy", hosts=["proxy.example"], not_after=NOW.replace(microsecond=0) + timedelta(days=9))
    replace(settings, new)

    assert not context.have_files_changed()  # the files may not be complete yet
    assert context.have_files_changed()
    context.reload(now=NOW)

    assert not has_changed(context)
    assert serial_shown(context.context, client) == x509.load_pem_x509_certificate(new.certificate).serial_number
    assert serial_shown(before, client) == first  # a handshake with the earlier context still works
    assert context.expires_at == NOW.replace(microsecond=0) + timedelta(days=9)
    assert context.last_reload_successful


def test_a_certificate_is_reloaded_only_with_its_key(
    tmp_path: Path, settings: ClientTls, caplog: pytest.LogCaptureFixture
) -> None:
    context, client = TlsContext(settings), client_of(tmp_path, AUTHORITY.issue("duke"))
    before, new = context.context, AUTHORITY.issue("proxy", hosts=["proxy.example"])
    replace(settings, new, key=False)
    assert has_changed(context)

    context.reload(now=NOW)

    assert context.context is before
    assert not context.last_reload_successful
    assert "key values mismatch" in caplog.records[-1].message
    assert not has_changed(context)  # the fault is logged once

    replace(settings, new, certificate=False)
    assert has_changed(context)
    context.reload(now=NOW)

    assert serial_shown(context.context, client) == x509.load_pem_x509_certificate(new.certificate).serial_number
    assert context.last_reload_successful


def test_an_expired_certificate_does_not_replace_a_good_one(settings: ClientTls) -> None:
    context = TlsContext(settings)
    before, expires_at = context.context, context.expires_at
    replace(settings, AUTHORITY.issue("late", not_before=LAST_YEAR, not_after=LAST_YEAR + timedelta(days=1)))
    assert has_changed(context)

    context.reload(now=NOW)

    assert (context.context, context.expires_at) == (before, expires_at)
    assert not context.last_reload_successful


def test_a_symbolic_link_that_is_swapped_is_seen(tmp_path: Path) -> None:
    """Kubernetes replaces the link ``..data`` to a directory when mounted files change."""
    serials = []
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        issued = AUTHORITY.issue("proxy", hosts=["proxy.example"])
        issued.save(tmp_path / version, "tls")
        serials.append(x509.load_pem_x509_certificate(issued.certificate).serial_number)
    AUTHORITY.save(tmp_path, "ca")
    (tmp_path / "..data").symlink_to("1")
    context = TlsContext(
        ClientTls(certificate=str(tmp_path / "..data" / "tls.pem"), key=str(tmp_path / "..data" / "tls.key"))
    )
    assert serial_shown(context.context, client_of(tmp_path, None)) == serials[0]

    (tmp_path / "..new").symlink_to("2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert has_changed(context)
    context.reload(now=NOW)

    assert serial_shown(context.context, client_of(tmp_path, None)) == serials[1]


def test_a_changed_ca_file_changes_the_trust(tmp_path: Path, settings: ClientTls) -> None:
    context = TlsContext(settings)
    OTHER.save(tmp_path, "ca")
    assert has_changed(context)
    context.reload(now=NOW)

    shake(context.context, _trusting(tmp_path, OTHER.issue("duke")))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(context.context, _trusting(tmp_path, AUTHORITY.issue("duke")))


def test_watch_reloads_changed_files(
    settings: ClientTls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tls_module, "_POLL_S", 0.01)
    context = TlsContext(settings)
    before = context.context

    async def until_replaced() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch([context]))
            replace(settings, AUTHORITY.issue("proxy"))
            while context.context is before:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)
            watching.cancel()

    asyncio.run(until_replaced())

    assert "new connections use the changed certificates, until" in caplog.records[-1].message


def ssl_error(reason: str, text: str = "") -> ssl.SSLError:
    error = ssl.SSLError(1, text or f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("WRONG_VERSION_NUMBER", "b does not speak TLS there; use its TLS port, or remove upstream_tls"),
        ("UNSUPPORTED_PROTOCOL", "b does not support TLS 1.2 or later"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "b refuses the handshake (certificate required); if it asks"),
        (
            "SSLV3_ALERT_ILLEGAL_PARAMETER",
            "b does not take b as its name (SNI); write the name that its certificate has",
        ),
        ("TLSV1_UNRECOGNIZED_NAME", "b does not take b as its name (SNI)"),
        ("SOMETHING_ELSE", "the TLS handshake with b failed: [SSL: SOMETHING_ELSE]"),
    ],
)
def test_a_failed_broker_handshake_is_explained_with_a_remedy(reason: str, message: str) -> None:
    assert broker_fault(ssl_error(reason), TlsContext(UpstreamTls()), "b")[1].startswith(message)
