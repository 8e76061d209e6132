"""Formats the subject of a certificate as Java does, by RFC 2253.

Kafka matches its mapping rules against this text and may use it as the name of a user in quotas, so every character
must be the same as in Java. Java departs from the RFC in two ways: it reads every value as UTF-8, whatever its string
type, and at either end of a value it escapes carriage returns as well as spaces.

Source: ``X500Principal.getName()``, which is ``sun.security.x509.AVA.toRFC2253String``, in Java 17.
"""

from __future__ import annotations

import re
from typing import Final

from kafka_quota_proxy.config.certificate import CertificateError, Element, children

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_IDENTIFIER: Final = 0x06

# All other attribute types are written as numbers, and their values as bytes.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString; other values are written as bytes.
_STRING_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_ESCAPED: Final = str.maketrans({character: f"\\{character}" for character in ',=+<>#;"\\'} | {"\0": "\\00"})
# Invalid UTF-8 becomes U+FFFD in Java and in Python. But an encoded surrogate, two or three bytes, becomes one U+FFFD
# in Java, and one per byte in Python.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_OUTER_SPACE: Final = " \r"
# No identifier in use is longer than this. Java accepts 4,096 bytes, but the time to convert a number to decimal grows
# with the square of its length.
_MAX_OID_BYTES: Final = 128


def rfc2253_name(subject: Element) -> str:
    r"""Return a subject as text, last part first, such as ``CN=Duke,OU=Java\, Software,C=US``.

    Args:
        subject: An X.501 ``Name``: a SEQUENCE of SETs of SEQUENCEs, each of which contains an OID and a value of any
            type.

    Raises:
        CertificateError: If the subject does not have this structure.
    """
    _expect(subject, _SEQUENCE)
    return ",".join(_relative_name(part) for part in reversed(children(subject)))


def _relative_name(part: Element) -> str:
    _expect(part, _SET)
    return "+".join(_type_and_value(pair) for pair in children(part))


def _type_and_value(pair: Element) -> str:
    _expect(pair, _SEQUENCE)
    elements = children(pair)
    if len(elements) != 2:
        raise CertificateError(f"an attribute of the subject has {len(elements)} elements, not a type and a value")
    oid, value = elements
    _expect(oid, _OBJECT_IDENTIFIER)
    dotted = _dotted(oid.content)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or value.tag not in _STRING_TAGS:
        return f"{keyword or dotted}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(_decoded(value.content))}"


def _decoded(content: bytes) -> str:
    return _SURROGATE.sub(b"\xef\xbf\xbd", content).decode(errors="replace")


def _escaped(text: str) -> str:
    text = text.translate(_ESCAPED)
    inner = text.strip(_OUTER_SPACE)
    lead = len(text) - len(text.lstrip(_OUTER_SPACE))
    before, after = text[:lead], text[lead + len(inner) :]
    return "".join(f"\\{space}" for space in before) + inner + "".join(f"\\{space}" for space in after)


def _dotted(content: bytes) -> str:
    """Return an OBJECT IDENTIFIER (X.690, 8.19) as decimal numbers with dots."""
    if not content or content[-1] & 0x80 or len(content) > _MAX_OID_BYTES:
        raise CertificateError("an attribute of the subject has a type that is no OBJECT IDENTIFIER")
    numbers: list[int] = []
    number = 0
    for byte in content:
        if number == 0 and byte == 0x80:
            raise CertificateError("an attribute of the subject has a type that is no OBJECT IDENTIFIER")
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(number) for number in (first, numbers[0] - 40 * first, *numbers[1:]))


def _expect(element: Element, tag: int) -> None:
    if element.tag != tag:
        raise CertificateError(f"the subject has an element with tag {element.tag:#04x} where {tag:#04x} belongs")
