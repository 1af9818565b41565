"""Certificates for development: an authority of one's own, and the servers and clients that it vouches for.

Every subject says that it is for development (`O=headrace development (not for production)`). Keys are of P-256: as
strong as RSA with 3,072 bits, and ten times as fast for a server. Pure: time is an argument, bytes are the results.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ORGANIZATION = "headrace development (not for production)"
_BACKDATED = timedelta(hours=1)
"""The clocks of other machines may be behind."""

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Identity(NamedTuple):
    """A private key and its certificate."""

    key: Key
    certificate: x509.Certificate

    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password: str = "") -> bytes:
        """The key as PEM (PKCS#8), encrypted if there is a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))

    def pkcs12(self, name: str, authorities: Sequence[x509.Certificate], password: str) -> bytes:
        """A PKCS12 store with the key, its certificate and those of its authorities."""
        return pkcs12.serialize_key_and_certificates(
            name.encode(), self.key, self.certificate, list(authorities), _store_encryption(password)
        )


def trust_store_pkcs12(authorities: Sequence[x509.Certificate], password: str) -> bytes:
    """A PKCS12 store of trusted certificates, as Java reads it."""
    entries = [pkcs12.PKCS12Certificate(each, f"ca{number}".encode()) for number, each in enumerate(authorities)]
    return pkcs12.serialize_java_truststore(entries, _store_encryption(password))


def make_authority(name: str, now: datetime, days: int) -> Identity:
    """An authority that signs its own certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    built = (
        _builder(subject, subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Identity(key, built.sign(key, hashes.SHA256()))


def read_authority(certificate_pem: bytes, key_pem: bytes) -> Identity:
    """An authority that was made before. Raises `ValueError`."""
    key = load_pem_private_key(key_pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("the key of the authority is neither of an elliptic curve nor RSA")
    return Identity(key, x509.load_pem_x509_certificate(certificate_pem))


def issue(
    authority: Identity, name: str, hosts: Sequence[str], now: datetime, days: int, *, rsa_bits: int = 0
) -> Identity:
    """A certificate for servers and clients of these host names and addresses; with `rsa_bits` an RSA key."""
    key: Key = rsa.generate_private_key(65537, rsa_bits) if rsa_bits else ec.generate_private_key(ec.SECP256R1())
    built = (
        _builder(_subject(name), authority.certificate.subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    if hosts:
        built = built.add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False)
    return Identity(key, built.sign(authority.key, hashes.SHA256()))


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: Key, now: datetime, days: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return x509.DNSName(text)


def _encryption(password: str) -> KeySerializationEncryption:
    return BestAvailableEncryption(password.encode()) if password else NoEncryption()


def _store_encryption(password: str) -> KeySerializationEncryption:
    """PBES2 with AES, which Java 8u301 and later read."""
    return (
        PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(50_000)
        .key_cert_algorithm(pkcs12.PBES.PBESv2SHA256AndAES256CBC)
        .hmac_hash(hashes.SHA256())
        .build(password.encode())
    )
