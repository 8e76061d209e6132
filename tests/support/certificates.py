"""Makes certificates for tests.

An ``Authority`` issues valid certificates. ``certificate_of`` writes unusual ones in DER, field by field.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LAST_YEAR = datetime.now(UTC) - timedelta(days=365)
NEXT_YEAR = datetime.now(UTC) + timedelta(days=365)

# One attribute of a subject. It has the OID of its type, the DER tag of its value and the bytes of its value.
Attribute = tuple[str, int, bytes]


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    def save(self, directory: Path, name: str) -> tuple[str, str]:
        """Write ``NAME.pem`` and ``NAME.key`` and return their paths."""
        certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return str(certificate), str(key)

    @property
    def der(self) -> bytes:
        """Returns the certificate in DER."""
        return x509.load_pem_x509_certificate(self.certificate).public_bytes(serialization.Encoding.DER)


_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority. Its certificate is signed by itself or by the authority ``parent``.

    Without ``has_ids``, what it issues does not say which key has signed it, as with ``openssl x509 -req``.
    """

    def __init__(self, name: str, *, parent: Authority | None = None, has_ids: bool = True) -> None:
        self._has_ids = has_ids
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer, signer = (parent.name, parent._key) if parent else (self.name, self._key)
        signed = (
            _builder(self.name, issuer, self._key, signer)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        self.pem = signed.public_bytes(serialization.Encoding.PEM)

    def save(self, directory: Path, name: str) -> str:
        """Write the certificate of the authority to a file, and return the path of the file."""
        path = directory / f"{name}.pem"
        path.write_bytes(self.pem)
        return str(path)

    def issue(
        self,
        common_name: str = "leaf",
        *,
        subject: x509.Name | None = None,
        hosts: Sequence[str] = (),
        not_before: datetime = LAST_YEAR,
        not_after: datetime = NEXT_YEAR,
    ) -> Issued:
        """Issue a certificate and its key.

        ``hosts`` are its subject alternative names, as host names or IP addresses. Its subject is ``subject`` if given,
        else ``common_name``.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = _builder(
            name, self.name, key, self._key, not_before=not_before, not_after=not_after, has_ids=self._has_ids
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Issued(
            certificate=signed.public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    not_before: datetime = LAST_YEAR,
    not_after: datetime = NEXT_YEAR,
    has_ids: bool = True,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    if has_ids:  # Python 3.13 verifies certificates strictly, and needs the key identifier of the issuer.
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(not_before).not_valid_after(not_after)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def element(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def sequence(*contents: bytes) -> bytes:
    return element(0x30, b"".join(contents))


def object_identifier(dotted: str) -> bytes:
    first, second, *others = map(int, dotted.split("."))
    content = b""
    for number in (first * 40 + second, *others):
        septets = [number & 0x7F]
        while number := number >> 7:
            septets.append(0x80 | number & 0x7F)
        content += bytes(reversed(septets))
    return element(0x06, content)


def name(parts: Sequence[Sequence[Attribute]]) -> bytes:
    """Return a ``Name`` of X.509 in DER. ``parts`` are its relative names, and each is a list of attributes."""
    return sequence(
        *(
            element(0x31, b"".join(sequence(object_identifier(oid), element(tag, value)) for oid, tag, value in part))
            for part in parts
        )
    )


def certificate_of(
    subject: bytes, *, not_before: bytes = b"\x17\x0d260101000000Z", not_after: bytes = b"\x17\x0d491231235959Z"
) -> bytes:
    """Return a certificate in DER with any subject and times. Its signature is not valid."""
    algorithm = sequence(object_identifier("1.2.840.10045.4.3.2"))
    key = Authority("key").issue().der
    public_key = x509.load_der_x509_certificate(key).public_key()
    key_info = public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    issuer = name([[("2.5.4.3", 0x0C, b"issuer")]])
    version, serial = element(0xA0, element(0x02, b"\x02")), element(0x02, b"\x01")
    front = sequence(version, serial, algorithm, issuer, sequence(not_before, not_after), subject, key_info)
    return sequence(front, algorithm, element(0x03, b"\x00" + sequence(element(0x02, b"\x01"), element(0x02, b"\x01"))))
