"""Tests the principal that a client certificate gives, and its name. Expected ones are recorded from Kafka."""

import time

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.certificate import CertificateError, subject_of
from kafka_quota_proxy.config.linear_regex import MAX_NAME_LENGTH
from kafka_quota_proxy.config.principal_mapping import DEFAULT_RULES, LINE_ENDS, parse_rules
from kafka_quota_proxy.protocol.errors import MalformedCertificate, NoMatchingRule
from kafka_quota_proxy.proxy.server.tls.distinguished_name import rfc2253_name
from kafka_quota_proxy.proxy.server.tls.principal import map_name, user_of_certificate
from tests.support.certificates import Authority, certificate_of, element, name, object_identifier, sequence
from tests.support.java_principals import CN, MAPPINGS, SUBJECTS, UTF8, Answer, is_refused_here

TAKEN = [one for one in MAPPINGS if not is_refused_here(one[0]) and set(one[1]).isdisjoint(LINE_ENDS)]
RUNNING = [mapping for mapping in TAKEN if not isinstance(mapping[2], Answer)]
UNMATCHED = [mapping for mapping in TAKEN if mapping[2] is Answer.NO_MATCH]


def test_a_name_is_mapped_as_in_kafka() -> None:
    for rules, distinguished_name, user in RUNNING:
        assert map_name(distinguished_name, parse_rules(rules)) == user, (rules, distinguished_name)


@pytest.mark.parametrize(("rules", "distinguished_name", "_"), UNMATCHED)
def test_a_name_that_no_rule_matches_ends_the_connection(rules: str, distinguished_name: str, _: Answer) -> None:
    with pytest.raises(NoMatchingRule):
        map_name(distinguished_name, parse_rules(rules))


@pytest.mark.parametrize("end", LINE_ENDS)
def test_a_name_with_a_line_end_matches_no_pattern(end: str) -> None:
    with pytest.raises(NoMatchingRule):
        map_name(f"CN=a{end}b", parse_rules(r"RULE:CN=([\w\W]*)/$1/,DEFAULT"))

    assert map_name(f"CN=a{end}", parse_rules("DEFAULT,RULE:.*/x/")) == f"CN=a{end}"


@pytest.mark.parametrize("pattern", ["(a+)+b", "(?:a|aa)+b", "(.*?),(.*?),(.*?),(.*?),(.*?),(.*?)b"])
def test_no_name_takes_a_pattern_long(pattern: str) -> None:
    rules = parse_rules(f"RULE:{pattern}/x/,RULE:.*/y/")
    name_ = ("a," if "," in pattern else "aa") * (MAX_NAME_LENGTH // 2)
    begun_s = time.thread_time()

    assert map_name(name_, rules) == "yy"  # as in Java, where .* matches twice
    assert time.thread_time() - begun_s < 0.5

    with pytest.raises(NoMatchingRule):
        map_name(f"{name_}a", parse_rules("RULE:.*/y/,DEFAULT"))


def test_a_real_certificate_gives_its_name_and_the_rules_a_user() -> None:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Sun, Inc.", _ASN1Type.PrintableString),
            x509.NameAttribute(NameOID.COMMON_NAME, "Zoë #1"),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "zoe@example.com"),
        ]
    )
    der = Authority("authority").issue(subject=subject).der

    email = "1.2.840.113549.1.9.1=#160f7a6f65406578616d706c652e636f6d"
    assert user_of_certificate(der, DEFAULT_RULES) == f"{email},CN=Zoë \\#1,O=Sun\\, Inc.,C=US"
    assert user_of_certificate(der, parse_rules("RULE:.*,CN=(.*?),O=.*/$1/U, DEFAULT")) == "ZOË \\#1"


def test_client_without_a_certificate_is_anonymous_under_any_rules() -> None:
    assert user_of_certificate(None, parse_rules("RULE:nobody/x/")) == "ANONYMOUS"


def test_an_empty_subject_is_an_empty_user() -> None:
    assert user_of_certificate(certificate_of(name([])), DEFAULT_RULES) == ""


def test_a_certificate_that_cannot_be_read_ends_the_connection() -> None:
    with pytest.raises(MalformedCertificate):
        user_of_certificate(b"\x30\x03\x02\x01\x01", DEFAULT_RULES)


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
