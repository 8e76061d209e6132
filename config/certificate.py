"""Reads the subject of an X.509 certificate, and the period for which the certificate is valid.

The standard library returns neither. OpenSSL checks all other properties of a certificate.

Shape (RFC 5280)::

    Certificate     SEQUENCE { tbsCertificate, algorithm, signature }
    tbsCertificate  SEQUENCE { [0] version OPTIONAL, serialNumber INTEGER, signature SEQUENCE, issuer Name,
                               validity SEQUENCE { notBefore Time, notAfter Time }, subject Name, … }
    Time            UTCTime YYMMDDhhmmssZ or GeneralizedTime YYYYMMDDhhmmssZ
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_MAX_LENGTH_BYTES: Final = 4

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


class CertificateError(ValueError):
    """Is raised if bytes are not an X.509 certificate."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a DER encoding, which is ``data[start:end]``. Its content is ``data[content_start:end]``."""

    data: bytes
    tag: int
    start: int
    content_start: int
    end: int

    @property
    def encoded(self) -> bytes:
        """The bytes of the whole DER element, with tag and length."""
        return self.data[self.start : self.end]

    @property
    def content(self) -> bytes:
        """The bytes of the DER element's content, without tag and length."""
        return self.data[self.content_start : self.end]


def subject_of(der: bytes) -> Element:
    """Return the ``subject`` of a certificate in DER. Raises CertificateError if ``der`` is not a certificate."""
    fields, first = _fields(der)
    return _only(fields, first + 4, _SEQUENCE)


def validity_of(der: bytes) -> tuple[datetime, datetime]:
    """Return the validity period of a certificate in DER. Raises CertificateError if ``der`` is not a certificate."""
    fields, first = _fields(der)
    times = children(_only(fields, first + 3, _SEQUENCE))
    if len(times) != 2:
        raise CertificateError("not X.509: a certificate has a start and an end of its validity")
    return _time(times[0]), _time(times[1])


def first_certificate(pem: bytes) -> bytes:
    """Return the first certificate in the bytes of a PEM file, as DER. Raises CertificateError if there is none."""
    found = _PEM.search(pem)
    try:
        return base64.b64decode(b"".join(found[1].split()) if found else b"-", validate=True)
    except ValueError as error:
        raise CertificateError("no certificate in PEM") from error


def children(parent: Element) -> list[Element]:
    """Return the elements in the content of an element. Raises CertificateError if the content ends within one."""
    found: list[Element] = []
    at = parent.content_start
    while at < parent.end:
        found.append(_element(parent.data, at, parent.end))
        at = found[-1].end
    return found


def _fields(der: bytes) -> tuple[list[Element], int]:
    """Return the elements of ``tbsCertificate``, and the index of the serial number, which comes before the others."""
    fields = children(_only(children(_element(der, 0, len(der))), 0, _SEQUENCE))
    first = 1 if fields and fields[0].tag == _VERSION else 0
    _only(fields, first, _INTEGER)
    return fields, first


def _only(elements: list[Element], index: int, tag: int) -> Element:
    if index >= len(elements) or elements[index].tag != tag:
        raise CertificateError(f"not X.509: element {index} is missing or has another tag than {tag:#04x}")
    return elements[index]


def _element(data: bytes, at: int, end: int) -> Element:
    """Read the DER element that begins at ``at``: a uint8 tag, the length of the content, the content.

    Raises CertificateError if the element is malformed or ends after ``end``.
    """
    if end - at < 2:
        raise CertificateError("not DER: an element ends before its length")
    tag, length, content_start = data[at], data[at + 1], at + 2
    if tag & 0x1F == 0x1F:
        raise CertificateError("not X.509: a tag above 30")
    if length >= 0x80:
        # In the long form, this byte says how many bytes of length follow. DER forbids 0x80, the indefinite length.
        size = length & 0x7F
        length = int.from_bytes(data[content_start : content_start + size])
        is_possible = 0 < size <= min(_MAX_LENGTH_BYTES, end - content_start)
        if not is_possible or length < 0x80 or length >> 8 * (size - 1) == 0:
            raise CertificateError("not DER: a length that could be shorter, is too long or has no end")
        content_start += size
    if length > end - content_start:
        raise CertificateError("not DER: an element ends after what it is in")
    return Element(data, tag, at, content_start, content_start + length)


def _time(element: Element) -> datetime:
    text = element.content.decode("ascii", errors="replace")
    if element.tag == _UTC_TIME and re.fullmatch(r"[0-9]{12}Z", text):
        # The years 50 to 99 mean 1950 to 1999 (RFC 5280, 4.1.2.5.1).
        text = f"{'19' if text >= '5' else '20'}{text}"
    elif element.tag != _GENERALIZED_TIME or not re.fullmatch(r"[0-9]{14}Z", text):
        raise CertificateError("a time is neither YYMMDDhhmmssZ nor YYYYMMDDhhmmssZ")
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise CertificateError(f"{text} is not a time") from error
