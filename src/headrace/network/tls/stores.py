"""Key stores and trust stores: PEM, PKCS12 and JKS, from files, and PEM in the settings themselves.

    kind     recognised by        private key                      read by
    PEM      -----BEGIN           PKCS#8 (encrypted or not), PKCS#1, SEC1       cryptography
    PKCS12   a DER sequence       in the store, under the store's password      cryptography
                                  (ssl.key.password is the same, or not set)
    JKS      FE ED FE ED          an entry, under ssl.key.password              pyjks (the extra `jks`)

Java's key store type JKS reads PKCS12 files too, so the content decides and not the type; only a type PEM is held to.
Every failure is an `InvalidConfig` of one line that names the setting, the file and the fault, and no password.
Source: Kafka's DefaultSslEngineFactory.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import InvalidConfig
from headrace.network.tls import pem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

STORE_BYTES_MAX = 16 << 20
"""The largest file that is read. A store of all public authorities has 200 KB."""

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


class KeyMaterial(NamedTuple):
    """A private key and its certificates, the leaf first."""

    key: "PrivateKeyTypes"
    chain: "tuple[Certificate, ...]"
    source: str
    """The setting and the file, for messages."""

    @property
    def leaf(self) -> "Certificate":
        """The certificate of the key."""
        return self.chain[0]


def read_key_store(ssl: Mapping[str, str]) -> KeyMaterial | None:
    """The key and certificates of `ssl.keystore.*`; None without any. Raises `InvalidConfig`."""
    if ssl.get("ssl.keystore.key") or ssl.get("ssl.keystore.certificate.chain"):
        return _inline_key(ssl)
    location = ssl.get("ssl.keystore.location", "")
    if not location:
        if ssl.get("ssl.keystore.password"):
            raise InvalidConfig("ssl.keystore.password is set without ssl.keystore.location")
        return None
    source = f"ssl.keystore.location={location}"
    data = _read(source, location)
    password, key_password = ssl.get("ssl.keystore.password", ""), ssl.get("ssl.key.password", "")
    kind = _kind(source, data, ssl.get("ssl.keystore.type", ""), "ssl.keystore.type")
    if kind == "PEM":
        if password:
            raise InvalidConfig(f"{source}: a PEM file has no store password; use ssl.key.password for its key")
        found = pem.blocks(data)
        return _checked(_pem_key(source, pem.key_texts(found), key_password),
                        _certificates(source, pem.certificate_texts(found)), source)  # fmt: skip
    if kind == "JKS":
        return _jks_key(source, data, password, key_password)
    return _pkcs12_key(source, data, password, key_password)


def read_trust_store(ssl: Mapping[str, str]) -> "tuple[tuple[Certificate, ...], str] | None":
    """The trusted certificates of `ssl.truststore.*` and where they are from; None without any. Raises
    `InvalidConfig`."""
    if text := ssl.get("ssl.truststore.certificates", ""):
        source = "ssl.truststore.certificates"
        if ssl.get("ssl.truststore.location"):
            raise InvalidConfig(f"{source} and ssl.truststore.location are both set; set one")
        return _trusted(source, _certificates(source, pem.certificate_texts(pem.blocks(text.encode()))))
    location = ssl.get("ssl.truststore.location", "")
    if not location:
        if ssl.get("ssl.truststore.password"):
            raise InvalidConfig("ssl.truststore.password is set without ssl.truststore.location")
        return None
    source = f"ssl.truststore.location={location}"
    data = _read(source, location)
    kind = _kind(source, data, ssl.get("ssl.truststore.type", ""), "ssl.truststore.type")
    password = ssl.get("ssl.truststore.password", "")
    if kind == "PEM":
        if password:
            raise InvalidConfig(f"{source}: a PEM file has no password; remove ssl.truststore.password")
        return _trusted(source, _certificates(source, pem.certificate_texts(pem.blocks(data))))
    if kind == "JKS":
        return _trusted(source, _jks_trusted(source, data, password))
    _, chain, others = _pkcs12(source, data, password, "ssl.truststore.password")
    return _trusted(source, (*chain[:1], *others))


def _trusted(source: str, certificates: "Sequence[Certificate]") -> "tuple[tuple[Certificate, ...], str]":
    if not certificates:
        raise InvalidConfig(f"{source}: there is no certificate in it")
    return tuple(certificates), source


def _inline_key(ssl: Mapping[str, str]) -> KeyMaterial:
    source = "ssl.keystore.key"
    if ssl.get("ssl.keystore.location"):
        raise InvalidConfig("ssl.keystore.key and ssl.keystore.location are both set; set one")
    if not ssl.get("ssl.keystore.key"):
        raise InvalidConfig("ssl.keystore.certificate.chain is set without ssl.keystore.key")
    if not ssl.get("ssl.keystore.certificate.chain"):
        raise InvalidConfig("ssl.keystore.key is set without ssl.keystore.certificate.chain")
    keys = pem.key_texts(pem.blocks(ssl["ssl.keystore.key"].encode()))
    key = _pem_key(source, keys, ssl.get("ssl.key.password", ""))
    chain_source = "ssl.keystore.certificate.chain"
    texts = pem.certificate_texts(pem.blocks(ssl["ssl.keystore.certificate.chain"].encode()))
    return _checked(key, _certificates(chain_source, texts), chain_source)


def _read(source: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"{source}: {error.strerror or error}") from None
    except ValueError:  # a NUL in the name
        raise InvalidConfig(f"{source!r} is not the name of a file") from None
    if len(data) > STORE_BYTES_MAX:
        raise InvalidConfig(f"{source}: the file is larger than {STORE_BYTES_MAX >> 20} MiB")
    if not data.strip():
        raise InvalidConfig(f"{source}: the file is empty")
    return data


def _kind(source: str, data: bytes, given: str, setting: str) -> str:
    """PEM, PKCS12 or JKS, by the content."""
    if data[:4] in _JKS_MAGIC:
        kind = "JKS"
    elif b"-----BEGIN " in data:
        kind = "PEM"
    elif data[:1] == b"\x30":
        kind = "PKCS12"
    else:
        raise InvalidConfig(f"{source}: the file is neither PEM nor PKCS12 nor JKS")
    if given.upper() == "PEM" and kind != "PEM":
        raise InvalidConfig(f"{source}: the file is {kind}, not PEM; set {setting}={kind}")
    return kind


def _certificates(source: str, texts: Sequence[bytes]) -> "tuple[Certificate, ...]":
    from cryptography import x509

    if not texts:
        raise InvalidConfig(f"{source}: there is no certificate in it")
    try:
        return tuple(x509.load_pem_x509_certificate(each) for each in texts)
    except ValueError:
        raise InvalidConfig(f"{source}: a certificate in it is damaged") from None


def _pem_key(source: str, texts: Sequence[bytes], password: str) -> "PrivateKeyTypes":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not texts:
        raise InvalidConfig(f"{source}: there is no private key in it")
    if len(texts) > 1:
        raise InvalidConfig(f"{source}: there are {len(texts)} private keys in it; leave one")
    is_encrypted = b"ENCRYPTED" in texts[0]
    if is_encrypted and not password:
        raise InvalidConfig(f"{source}: the private key is encrypted; set ssl.key.password")
    try:
        return load_pem_private_key(texts[0], password.encode() if is_encrypted else None)
    except (ValueError, TypeError):
        fault = "the private key cannot be decrypted: ssl.key.password is wrong, or the key is damaged"
        raise InvalidConfig(f"{source}: {fault if is_encrypted else 'the private key is damaged'}") from None
    except UnsupportedAlgorithm:
        raise InvalidConfig(f"{source}: the private key is of an unsupported kind, or encrypted by one") from None


def _pkcs12(
    source: str, data: bytes, password: str, setting: str
) -> "tuple[PrivateKeyTypes | None, tuple[Certificate, ...], tuple[Certificate, ...]]":
    """The private key, its chain with the leaf first, and all other certificates."""
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        store = load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        what = f"{setting} is wrong" if password else f"{setting} is not set"
        raise InvalidConfig(f"{source}: the PKCS12 store cannot be opened: {what}, or the file is damaged") from None
    except Exception:  # of its own kinds for algorithms that it does not know
        raise InvalidConfig(f"{source}: the PKCS12 store uses an algorithm that is not supported") from None
    others = tuple(each.certificate for each in store.additional_certs)
    if store.cert is None:
        return store.key, (), others
    chain = _chain(store.cert.certificate, others)
    return store.key, chain, others


def _pkcs12_key(source: str, data: bytes, password: str, key_password: str) -> KeyMaterial:
    """The key, which OpenSSL decrypts with the password of the store. Java decrypts it with `ssl.key.password`, so one
    that differs is an error here as there."""
    try:
        key, chain, _ = _pkcs12(source, data, password, "ssl.keystore.password")
    except InvalidConfig as error:
        if key_password in ("", password):
            raise
        why = "; or its key has another password (ssl.key.password), which is not supported: give both the same"
        raise InvalidConfig(f"{error.message}{why}") from None
    if key is None or not chain:
        raise InvalidConfig(f"{source}: there is no private key with a certificate in it")
    if key_password not in ("", password):
        raise InvalidConfig(
            f"{source}: ssl.key.password is wrong: the private key has the password of the store; leave it out"
        )
    return _checked(key, chain, source)


def _chain(leaf: "Certificate", others: "Sequence[Certificate]") -> "tuple[Certificate, ...]":
    """The leaf and its issuers, in order: a store keeps the others in any order, and may hold more."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return tuple(chain)


# -- JKS


def _jks(source: str, data: bytes, password: str, setting: str) -> Any:
    try:
        import jks  # the optional extra
    except ImportError:
        raise InvalidConfig(
            f"{source}: the file is a JKS store; reading it needs: pip install 'headrace[jks]', or convert it: "
            f"keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"
        ) from None
    if not password:
        raise InvalidConfig(f"{source}: the file is a JKS store; set {setting}")
    try:
        return jks.KeyStore.loads(data, password, try_decrypt_keys=False)
    except jks.util.KeystoreSignatureException:
        raise InvalidConfig(f"{source}: the JKS store cannot be opened: {setting} is wrong") from None
    except Exception:  # of struct, of pyasn1, its own: whatever a damaged file causes
        raise InvalidConfig(f"{source}: the JKS store is damaged") from None


def _jks_key(source: str, data: bytes, password: str, key_password: str) -> KeyMaterial:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    store = _jks(source, data, password, "ssl.keystore.password")
    entries = list(store.private_keys.values())
    if not entries:
        raise InvalidConfig(f"{source}: there is no private key in it")
    entry = entries[0]
    try:
        if not entry.is_decrypted():
            entry.decrypt(key_password or password)
        key = load_der_private_key(entry.pkey_pkcs8, None)
    except Exception:  # of pyjks, whose kinds depend on how wrong the password is
        own = "it has another password than the store; set ssl.key.password"
        what = "ssl.key.password is wrong" if key_password else own
        raise InvalidConfig(f"{source}: the private key cannot be decrypted: {what}") from None
    return _checked(key, _der(source, [each[1] for each in entry.cert_chain]), source)


def _jks_trusted(source: str, data: bytes, password: str) -> "tuple[Certificate, ...]":
    store = _jks(source, data, password, "ssl.truststore.password")
    found = [each.cert for each in store.certs.values()]
    found += [each.cert_chain[0][1] for each in store.private_keys.values() if each.cert_chain]
    return _der(source, found)


def _der(source: str, certificates: Sequence[bytes]) -> "tuple[Certificate, ...]":
    from cryptography import x509

    try:
        return tuple(x509.load_der_x509_certificate(each) for each in certificates)
    except ValueError:
        raise InvalidConfig(f"{source}: a certificate in it is damaged") from None


# -- the key and its certificate


def _checked(key: "PrivateKeyTypes", chain: "Sequence[Certificate]", source: str) -> KeyMaterial:
    """Raises `InvalidConfig` unless the first certificate is that of the key."""
    from cryptography.exceptions import UnsupportedAlgorithm

    if not chain:
        raise InvalidConfig(f"{source}: there is no certificate in it")
    try:
        is_of_key = _public(key.public_key) == _public(chain[0].public_key)
        subject = chain[0].subject.rfc4514_string()
    except (UnsupportedAlgorithm, ValueError) as error:
        raise InvalidConfig(f"{source}: the key of its first certificate cannot be used: {error}") from None
    if not is_of_key:
        raise InvalidConfig(f"{source}: its first certificate ({subject}) is not that of the private key")
    return KeyMaterial(key, tuple(chain), source)


def _public(public_key: Callable[[], object]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    found = public_key()
    return found.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined, no-any-return]
