"""Tests of ``config.trust``."""

import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kafka_quota_proxy.config.trust import broker_side_context, trust
from tests.support.certificates import Authority, Issued
from tests.support.handshakes import shake

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
VALID, EXPIRED, EARLY = (NOW - DAY, NOW + DAY), (NOW - 3 * DAY, NOW - 2 * DAY), (NOW + DAY, NOW + 2 * DAY)
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
OWN = Authority("proxy's").issue("proxy", hosts=["proxy.example"])

Key = ec.EllipticCurvePrivateKey
ONE, TWO, LEAF, OTHER, BETWEEN = (ec.generate_private_key(ec.SECP256R1()) for _ in range(5))


def made(
    subject: str,
    key: Key,
    issuer: str,
    signer: Key,
    *,
    is_ca: bool = False,
    has_ids: bool = False,
    valid: tuple[datetime, datetime] = VALID,
    usage: x509.ObjectIdentifier | None = None,
    encoding: _ASN1Type = _ASN1Type.UTF8String,
) -> x509.Certificate:
    """Return a certificate of ``key``, as ``openssl x509 -req`` makes it: without identifiers of keys."""
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one, encoding)]) for one in (subject, issuer)]
    builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
    builder = builder.not_valid_before(valid[0]).not_valid_after(valid[1]).serial_number(x509.random_serial_number())
    if is_ca:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if has_ids:
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False)
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def root(key: Key, name: str = "CA", **more: object) -> x509.Certificate:
    return made(name, key, name, key, is_ca=True, **more)  # type: ignore[arg-type]


def leaf(signer: Key, **more: object) -> x509.Certificate:
    return made("leaf", LEAF, "CA", signer, **more)  # type: ignore[arg-type]


OLD = root(OTHER, "Old")
CROSS = made("CA", TWO, "Old", OTHER, is_ca=True)
SELF_SIGNED = [made("leaf", key, "leaf", key) for key in (LEAF, OTHER)]


class Case(NamedTuple):
    trusted: Sequence[x509.Certificate]
    shown: Sequence[x509.Certificate]
    error: str | None = None


CASES = {
    "two keys": Case([root(ONE), root(TWO)], [leaf(TWO)]),
    "issuer key named, which no CA has": Case([root(ONE), root(TWO)], [leaf(TWO, has_ids=True)]),
    "key identifiers everywhere": Case([root(ONE, has_ids=True), root(TWO, has_ids=True)], [leaf(TWO, has_ids=True)]),
    "another spelling of the name": Case(
        [root(ONE, "ca ", encoding=_ASN1Type.PrintableString), root(TWO)], [leaf(TWO)]
    ),
    "root sent along": Case([root(ONE), root(TWO)], [leaf(TWO), root(TWO)]),
    "intermediate": Case(
        [root(ONE), root(TWO)], [made("leaf", LEAF, "I", BETWEEN), made("I", BETWEEN, "CA", TWO, is_ca=True)]
    ),
    "expired beside renewed with a new key": Case([root(ONE, valid=EXPIRED), root(TWO)], [leaf(TWO)]),
    "expired beside renewed with its key": Case([root(TWO, valid=EXPIRED), root(TWO)], [leaf(TWO)]),
    "cross-signed by a CA of another name": Case([root(ONE), OLD], [leaf(TWO), CROSS]),
    "cross-signed, and all trusted": Case([OLD, root(ONE), root(TWO)], [leaf(TWO), CROSS]),
    "self-signed leafs of one name": Case(SELF_SIGNED, SELF_SIGNED[:1]),
    "another key": Case([root(ONE), root(TWO)], [leaf(OTHER)], "signature failure"),
    "expired leaf": Case([root(ONE), root(TWO)], [leaf(TWO, valid=EXPIRED)], "has expired"),
    "leaf that is not valid yet": Case([root(ONE), root(TWO)], [leaf(TWO, valid=EARLY)], "not yet valid"),
    "leaf of an expired CA": Case([root(ONE), root(TWO, valid=EXPIRED)], [leaf(TWO)], "has expired"),
    "leaf for another use": Case(
        [root(ONE), root(TWO)], [leaf(TWO, usage=ExtendedKeyUsageOID.CODE_SIGNING)], "unsuitable certificate purpose"
    ),
    "leaf as a CA": Case(
        [root(ONE), root(TWO)], [made("leaf", LEAF, "I", BETWEEN), made("I", BETWEEN, "CA", TWO)], "invalid CA"
    ),
    "self-signed leaf of a trusted name": Case(SELF_SIGNED, [made("leaf", LEAF, "leaf", LEAF)], "self-signed"),
}


def pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def peer(directory: Path, case: Case, protocol: int) -> ssl.SSLContext:
    key = LEAF.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(*Issued(pem(case.shown), key).save(directory, "peer"))
    return context


def bare(protocol: int, own: tuple[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.load_cert_chain(*own)
    return context


def trusting(directory: Path, certificates: Sequence[x509.Certificate], protocol: int) -> ssl.SSLContext:
    ca = directory / "ca.pem"
    ca.write_bytes(pem(certificates))
    make = partial(bare, protocol, OWN.save(directory, "own"))
    context = make()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    trust(context, str(ca), make)
    return context


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_server", [True, False])
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_each_certificate_of_a_name_is_trusted_in_either_order(
    tmp_path: Path, name: str, is_reversed: bool, is_server: bool, version: ssl.TLSVersion
) -> None:
    case = CASES[name]
    trusted = case.trusted[::-1] if is_reversed else case.trusted
    ours, its = ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER
    if is_server:
        ours, its = its, ours
    proxy, other = trusting(tmp_path, trusted, ours), peer(tmp_path, case, its)
    other.maximum_version = version
    contexts = (proxy, other) if is_server else (other, proxy)

    if case.error is not None:
        with pytest.raises(ssl.SSLCertVerificationError, match=case.error):
            shake(*contexts)
        return
    tls = shake(*contexts)[0 if is_server else 1]

    assert tls.getpeercert(binary_form=True) == case.shown[0].public_bytes(serialization.Encoding.DER)
    assert tls.version() == version.name.replace("_", ".")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_own_certificate_is_shown_to_a_broker_whose_ca_was_chosen(tmp_path: Path, version: ssl.TLSVersion) -> None:
    case = CASES["two keys"]
    broker = peer(tmp_path, case, ssl.PROTOCOL_TLS_SERVER)
    broker.maximum_version = version
    broker.verify_mode = ssl.CERT_REQUIRED
    broker.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    broker.load_verify_locations(cadata=OWN.der)

    shown, _ = shake(broker, trusting(tmp_path, case.trusted, ssl.PROTOCOL_TLS_CLIENT))

    assert shown.getpeercert(binary_form=True) == OWN.der


def test_the_name_is_checked_though_a_ca_was_chosen(tmp_path: Path) -> None:
    case = CASES["two keys"]
    proxy = trusting(tmp_path, case.trusted, ssl.PROTOCOL_TLS_CLIENT)
    proxy.check_hostname = True

    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake(peer(tmp_path, case, ssl.PROTOCOL_TLS_SERVER), proxy)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_called_for_records_after_any_handshake(tmp_path: Path, version: ssl.TLSVersion) -> None:
    case = CASES["two keys"]
    proxy, client = (
        trusting(tmp_path, case.trusted, ssl.PROTOCOL_TLS_SERVER), peer(tmp_path, case, ssl.PROTOCOL_TLS_CLIENT)
    )  # fmt: skip
    client.maximum_version = version
    ours, its = shake(proxy, client)
    assert ours.context._msg_callback is None  # type: ignore[attr-defined]

    ours, its = shake(proxy, client, session=its.session)

    assert its.session_reused
    assert ours.context._msg_callback is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\x00\x00\x09\x00\x00\xff\x30", b"\x00\x00\x06\x00\x00\x03\x30\x82\xff"]
)
def test_malformed_certificates_are_an_error_of_tls(tmp_path: Path, body: bytes) -> None:
    case = CASES["two keys"]
    client = peer(tmp_path, case, ssl.PROTOCOL_TLS_CLIENT)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = trusting(tmp_path, case.trusted, ssl.PROTOCOL_TLS_SERVER).wrap_bio(to_server, to_client, server_side=True)
    with suppress(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), to_server).do_handshake()
    with suppress(ssl.SSLWantReadError):
        ours.do_handshake()
    to_server.write(b"\x16\x03\x03" + (len(body) + 4).to_bytes(2) + b"\x0b" + len(body).to_bytes(3) + body)

    with pytest.raises(ssl.SSLError):
        ours.do_handshake()


BROKERS = Authority("brokers")


def broker(directory: Path, *, host: str, asked_for: list[str | None]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*BROKERS.issue("broker", hosts=[host]).save(directory, "broker"))
    context.sni_callback = lambda _, name, __: asked_for.append(name)
    return context


def test_an_intermediate_alone_is_trusted_as_in_a_java_truststore(tmp_path: Path) -> None:
    between = Authority("between", parent=BROKERS)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*between.issue("broker", hosts=["kafka.example"]).save(tmp_path, "broker"))

    shake(server, broker_side_context(between.save(tmp_path, "ca")), "kafka.example")


# -- a final dot --


@pytest.mark.parametrize("written", ["kafka.example", "kafka.example."])
def test_a_final_dot_is_no_part_of_the_name_in_sni_and_certificates(tmp_path: Path, written: str) -> None:
    asked_for: list[str | None] = []
    server = broker(tmp_path, host="kafka.example", asked_for=asked_for)

    shake(server, broker_side_context(BROKERS.save(tmp_path, "ca")), written)

    assert asked_for == ["kafka.example"]


@pytest.mark.parametrize("written", ["kafka.example..", "other.example."])
def test_a_certificate_for_another_name_is_refused(tmp_path: Path, written: str) -> None:
    server = broker(tmp_path, host="kafka.example", asked_for=[])

    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake(server, broker_side_context(BROKERS.save(tmp_path, "ca")), written)
