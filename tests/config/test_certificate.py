"""Tests that certificates are read as ``cryptography`` reads them, and that other bytes raise CertificateError."""

from datetime import UTC, datetime

import pytest
from cryptography import x509
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.certificate import CertificateError, first_certificate, subject_of, validity_of
from tests.support.cases import each_case
from tests.support.certificates import Authority, certificate_of, element, name, sequence

AUTHORITY = Authority("authority")
ISSUED = AUTHORITY.issue("duke", hosts=["localhost"])
SUBJECT = name([[("2.5.4.3", 0x0C, b"duke")]])


def test_subject_and_times_of_a_real_certificate() -> None:
    certificate = x509.load_pem_x509_certificate(ISSUED.certificate)

    assert subject_of(ISSUED.der).encoded == SUBJECT == certificate.subject.public_bytes()
    assert validity_of(ISSUED.der) == (certificate.not_valid_before_utc, certificate.not_valid_after_utc)


@each_case(
    "time, meaning",
    [
        (element(0x17, b"491231235959Z"), datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (element(0x17, b"500101000000Z"), datetime(1950, 1, 1, tzinfo=UTC)),
        (element(0x18, b"20500101000000Z"), datetime(2050, 1, 1, tzinfo=UTC)),
        (element(0x18, b"99991231235959Z"), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_both_forms_of_time_are_read(time: bytes, meaning: datetime) -> None:
    """RFC 5280, section 4.1.2.5, defines both forms."""
    assert validity_of(certificate_of(SUBJECT, not_after=time))[1] == meaning


@each_case("time", [b"2601010000Z", b"261301000000Z", "２60101000000Z".encode()])
def test_an_invalid_time_is_refused_only_when_it_is_read(time: bytes) -> None:
    der = certificate_of(SUBJECT, not_after=element(0x17, time))

    with pytest.raises(CertificateError):
        validity_of(der)
    assert subject_of(der).encoded == SUBJECT


@each_case(
    "der",
    [
        b"",
        b"\x30",
        b"\x30\x80\x00\x00",  # an indefinite length
        b"\x30\x85\x01\x00\x00\x00\x00",  # 4 GiB
        b"\x30\x05\x02\x01",  # a length beyond the end of the data
        sequence(),
        sequence(sequence()),
        sequence(sequence(element(0x04, b"\x01"))),
        sequence(sequence(element(0x02, b"\x01"), sequence(), sequence())),
    ],
)
def test_bytes_that_are_no_certificate_are_refused(der: bytes) -> None:
    with pytest.raises(CertificateError):
        subject_of(der)
    with pytest.raises(CertificateError):
        validity_of(der)


def test_the_first_certificate_of_a_file_is_read() -> None:
    other = AUTHORITY.issue("other")

    assert first_certificate(b"text\n" + ISSUED.certificate + other.certificate) == ISSUED.der


@pytest.mark.parametrize("pem", [b"", ISSUED.key, b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_is_refused(pem: bytes) -> None:
    with pytest.raises(CertificateError, match="no certificate in PEM"):
        first_certificate(pem)


DER = ISSUED.der


@settings(max_examples=200)
@given(
    st.binary(max_size=60)
    | st.tuples(st.integers(0, len(DER) - 1), st.binary(max_size=4)).map(
        lambda change: DER[: change[0]] + change[1] + DER[change[0] + len(change[1]) :]
    )
)
@example(DER)
@example(DER[:-1])
def test_any_bytes_are_read_or_refused(der: bytes) -> None:
    for read in (subject_of, validity_of):
        try:
            read(der)
        except CertificateError as error:
            assert str(error)  # noqa: PT017 - either is right
