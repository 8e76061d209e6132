"""Fuzzes the readers of client identities: SASL tokens and frames, PROXY headers, TLS certificates and mapping rules.

Tokens, headers and certificates are valid or damaged. Each function that reads one must have these properties:

* it raises nothing but a ``ProtocolError``;
* for the first bytes of its input it returns None, or the same as for the whole input;
* a user name and an address can be encoded in UTF-8, and are not much longer than their input.
"""

from contextlib import suppress
from ipaddress import ip_address
from struct import pack
from typing import Final

from kafka_quota_proxy.config.certificate import CertificateError, validity_of
from kafka_quota_proxy.config.principal_mapping import DEFAULT_RULES, parse_rules
from kafka_quota_proxy.protocol import sasl
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.proxy_protocol import MAX_HEADER_BYTES, read_proxy_header
from kafka_quota_proxy.proxy.server.tls.principal import user_of_certificate
from tests.fuzz.messages import PASSWORD
from tests.fuzz.readers import MARGINS, result_of
from tests.fuzz.source import Source, damaged, each_frame
from tests.support.certificates import element, name, object_identifier, sequence
from tests.support.java_principals import SUBJECTS
from tests.support.logins import CLIENT_FINAL, CLIENT_FIRST, SERVER_FINAL, SERVER_FIRST, bearer, web_token

_TOKENS: Final = (
    b"\0alice\0" + PASSWORD,
    CLIENT_FIRST,
    CLIENT_FINAL,
    SERVER_FIRST,
    SERVER_FINAL,
    b"n,a=a=2Cb,n=a=2Cb,r=x,tokenauth=true",
    bearer(web_token({"sub": "alice"})),
    bearer(web_token({"sub": ["alice"]})),
    b"n,,m=any,n=alice,r=x",
    b"n,a=alice,\x01host=h\x01auth=Bearer a.e30.\x01\x01",
    b"",
)
_PROXY_HEADERS: Final = (
    b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 9092\r\n",
    b"PROXY TCP6 2001:db8::7 ::ffff:10.0.0.7 56324 9092\r\n",
    b"PROXY TCP6 fe80::1%eth0 fe80::2%eth0 1 2\r\n",
    b"PROXY TCP4 203.0.113.7 198.51.100.1 65536 0\r\n",
    b"PROXY UNKNOWN whatever\r\n",
    b"PROXY TCP6 " + 2 * (b"ffff:" * 7 + b"ffff ") + b"65535 65535\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(range(12)),
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x21\x00\x28" + bytes(range(36)) + b"\x04\x00\x01x",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8" + b"/tmp/socket".ljust(108, b"\x00") * 2,
    b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
)


# -- logins


@each_frame
def tokens(source: Source) -> None:
    """Read the users from SASL tokens, and the frames around the tokens."""
    choice = source.byte()
    token = _TOKENS[choice % len(_TOKENS)] if choice < 240 else source.take(source.byte())
    if choice & 1:
        token = damaged(b"size" + token, source)[4:]
    for user in (sasl.plain_user(token), sasl.scram_user(token), sasl.oauthbearer_user(token, claim="sub")):
        assert user is None or user.encode()
    assert not (sasl.is_scram_success(token) and sasl.is_scram_failure(token))
    frame = pack(">i", len(token)) + token
    if choice & 2:
        frame = damaged(frame, source)
    size = source.below(len(frame) + 1)
    for read in (sasl.read_token_size, sasl.is_request):
        said, early = (result_of(read, some, 0) for some in (frame, frame[:size]))
        assert early is None or early == said
    for version in range(4):
        result_of(sasl.read_authenticate_response, frame, version)


# -- PROXY headers


@each_frame
def proxy_headers(source: Source) -> None:
    """Read PROXY headers, and assert that each byte after the header remains for the connection."""
    choice = source.byte()
    header = _PROXY_HEADERS[choice % len(_PROXY_HEADERS)] if choice < 248 else source.take(source.byte())
    if choice & 0x10:
        header = damaged(b"size" + header, source)[4:]
    # The last of these margins makes any header too long.
    data = header + (*MARGINS[:3], bytes(MAX_HEADER_BYTES))[choice >> 5 & 3]
    said = result_of(read_proxy_header, data)
    size = source.below(len(data) + 1)
    early = result_of(read_proxy_header, data[:size])
    assert early is None or early == said
    if isinstance(said, tuple):
        where, size_bytes = said
        assert 0 < size_bytes <= min(len(data), MAX_HEADER_BYTES)
        assert early is not None or size < size_bytes
        if where is not None:
            assert str(ip_address(where[0])) == where[0]
            assert "%" not in where[0]
            assert 0 <= where[1] <= 65_535
    elif said is None:
        assert len(data) < MAX_HEADER_BYTES


# -- TLS certificates


_RULES: Final = (
    DEFAULT_RULES,
    parse_rules("RULE:^(CN=)?(.*?)(,.*)?$/$2$3 $1/L"),
    parse_rules("RULE:^.*?CN=([^,+]*).*$/$1/U, DEFAULT"),
    parse_rules("RULE:.*/<$0>/"),
)
_OIDS: Final = tuple(sorted({oid for subject, _ in SUBJECTS for part in subject for oid, _, _ in part}))
_STRING_TAGS: Final = tuple(sorted({tag for subject, _ in SUBJECTS for part in subject for _, tag, _ in part}))
_VALUES: Final = tuple(sorted({value for subject, _ in SUBJECTS for part in subject for _, _, value in part}))
_SUBJECTS: Final = tuple(name(subject) for subject, _ in SUBJECTS)
_TIMES: Final = (b"\x17\x0d260101000000Z", b"\x18\x0f20491231235959Z", b"\x17\x0d260230000000Z", b"\x18\x0200", b"")
_SERIAL: Final = element(0x02, b"\x01")
_FRONTS: Final = (element(0xA0, element(0x02, b"\x02")) + _SERIAL, _SERIAL)
# In a name, one byte of an OID takes up to four characters, and one byte of a value up to three.
_MAX_NAME_GROWTH: Final = 4


@each_frame
def certificates(source: Source) -> None:
    """Read the users and the validity periods of certificates."""
    choice = source.byte()
    subject = _SUBJECTS[source.below(len(_SUBJECTS))] if choice < 64 else _subject(source)
    if choice % 8 == 4:
        subject = damaged(b"size" + subject, source)[4:]
    times = [_TIMES[source.below(len(_TIMES))] for _ in range(2)]
    front = _FRONTS[choice % len(_FRONTS)] + sequence() + name([]) + sequence(*times) + subject
    der = sequence(sequence(front), sequence())
    if choice % 8 == 5:
        der = damaged(b"size" + der, source)[4:]
    with suppress(ProtocolError):
        plain = user_of_certificate(der, DEFAULT_RULES)
        assert len(plain) <= _MAX_NAME_GROWTH * len(der)
        assert plain.encode() is not None
    user = result_of(user_of_certificate, der, _RULES[choice >> 4 & 3])
    assert isinstance(user, str)
    assert user.encode() is not None
    with suppress(CertificateError):
        begin, end = validity_of(der)
        assert begin.tzinfo is end.tzinfo is not None


def _subject(source: Source) -> bytes:
    """Return a certificate subject with well-formed elements, which have known or random contents."""
    parts = b""
    for _ in range(source.below(5)):
        attributes = b""
        for _ in range(1 + source.below(3)):
            choice = source.byte()
            known = object_identifier(_OIDS[choice % len(_OIDS)])
            oid = known if choice & 0xC0 else element(0x06, source.take((1, 3, 8, 129)[choice & 3]))
            tag = _STRING_TAGS[choice >> 2 & 31] if choice >> 2 & 31 < len(_STRING_TAGS) else source.byte()
            value = _VALUES[source.below(len(_VALUES))] if choice & 2 else source.take(source.below(24))
            attributes += sequence(oid, element(tag, value))
        parts += element(0x31, attributes)
    return sequence(parts)
