"""Tests that the subject of a certificate is written as Java writes it. Expected names are recorded from Java."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.certificate import CertificateError, subject_of
from kafka_quota_proxy.proxy.server.tls.distinguished_name import rfc2253_name
from tests.support.certificates import certificate_of, element, name, object_identifier, sequence
from tests.support.java_principals import CN, SUBJECTS, UTF8


def name_of(subject: bytes) -> str:
    return rfc2253_name(subject_of(certificate_of(subject)))


def test_a_subject_is_written_as_java_writes_it() -> None:
    for parts, written in SUBJECTS:
        assert name_of(name(parts)) == written, parts


@pytest.mark.parametrize(
    "subject",
    [
        sequence(sequence()),
        sequence(element(0x31, element(0x02, b"\x01"))),
        sequence(element(0x31, sequence(object_identifier(CN)))),
        sequence(element(0x31, sequence(object_identifier(CN), element(UTF8, b"a"), element(UTF8, b"b")))),
        sequence(element(0x31, sequence(element(0x02, b"\x01"), element(UTF8, b"a")))),
        sequence(element(0x31, sequence(element(0x06, b""), element(UTF8, b"a")))),
        sequence(element(0x31, sequence(element(0x06, b"\x55\x84"), element(UTF8, b"a")))),
        sequence(element(0x31, sequence(element(0x06, b"\x80\x01"), element(UTF8, b"a")))),
        sequence(element(0x31, sequence(element(0x06, b"\x81" * 200 + b"\x01"), element(UTF8, b"a")))),
        sequence(element(0x31, sequence(object_identifier(CN), b"\x0c\x05a"))),
    ],
)
def test_another_shape_is_refused(subject: bytes) -> None:
    with pytest.raises(CertificateError):
        name_of(subject)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from([*' ,=+<>#;"\\\r\0a', "é"]), min_size=1, max_size=8))
def test_different_subjects_have_different_names(value: str) -> None:
    """Otherwise a client could hide a CN within another attribute."""
    written = name_of(name([[(CN, UTF8, value.encode())]])).removeprefix("CN=")
    unescaped, rest = "", written
    while rest:
        if rest.startswith("\\00"):
            unescaped, rest = f"{unescaped}\0", rest[3:]
        elif rest.startswith("\\"):
            unescaped, rest = unescaped + rest[1], rest[2:]
        else:
            assert rest[0] not in ',=+<>#;"'
            unescaped, rest = unescaped + rest[0], rest[1:]

    assert unescaped == value
