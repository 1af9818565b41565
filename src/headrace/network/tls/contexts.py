"""`SSLContext`s of servers and clients, from Kafka's `ssl.*` settings (name -> text, without a listener's prefix), and
`headrace.ssl.*`.

    always        TLS 1.2 and 1.3 only, no compression, no renegotiation, forward secrecy and authenticated encryption
                  unless ssl.cipher.suites says otherwise; a trusted certificate need not be a root, as in Java
    servers       ssl.client.auth none, requested or required; the server's order of suites; no tickets of TLS 1.3,
                  since Kafka's connections live long; the kernel may encrypt (`kernel`)
    clients       the certificate is verified, and the host name too, unless ssl.endpoint.identification.algorithm is
                  empty

Names that are missing have Kafka's defaults; other names are ignored. Functions here read files and decrypt keys, so an
event loop calls them on a thread. They raise `InvalidConfig`: one line with the setting, the file and the fault.

OpenSSL takes a key from a file only: it gets an anonymous file in memory (`memfd`), or where there is none a file that
only this user can read and that is removed at once. Source: Kafka's DefaultSslEngineFactory, SslConfigs.
"""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.errors import InvalidConfig
from headrace.network.tls import kernel
from headrace.network.tls.ciphers import TLS_1_3, suites
from headrace.network.tls.stores import KeyMaterial, read_key_store, read_trust_store
from headrace.security.certificate_facts import CertificateFacts, facts_of

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_JAVA_NAMES = ("ssl.engine.factory.class",)  # code that cannot run here


class ServerTls(NamedTuple):
    """What a TLS listener needs."""

    context: ssl.SSLContext
    certificate: CertificateFacts
    key_source: str
    """The setting and the file of the certificate, for messages."""


def server_context(settings: Mapping[str, str]) -> ServerTls:
    """The context of a listener. Raises `InvalidConfig`, also for a certificate that is not valid now."""
    material = read_key_store(settings)
    if material is None:
        raise InvalidConfig("a TLS listener needs a certificate: set ssl.keystore.location or ssl.keystore.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_common(context, settings)
    facts = _load_key(context, material)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    context.num_tickets = 0
    kernel.prepare(context, settings)
    auth = settings.get("ssl.client.auth", "").strip().lower() or "none"
    if auth not in _CLIENT_AUTH:
        raise InvalidConfig(f"ssl.client.auth={auth!r} is not one of {', '.join(_CLIENT_AUTH)}")
    context.verify_mode = _CLIENT_AUTH[auth]
    is_trust_set = _load_trust(context, settings)  # read without client certificates too: a bad store must not wait
    if auth != "none" and not is_trust_set:
        # Java would trust every public authority, each of whose customers could then connect.
        raise InvalidConfig(f"ssl.client.auth={auth} needs the authorities of clients: set ssl.truststore.location")
    return ServerTls(context, facts, material.source)


def client_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """The context of a client, also of a broker that connects to others. Raises `InvalidConfig`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_common(context, settings)
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip()
    if algorithm.lower() not in ("https", ""):
        raise InvalidConfig(f"ssl.endpoint.identification.algorithm={algorithm!r} is neither https nor empty")
    context.check_hostname = bool(algorithm)
    if not _load_trust(context, settings):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    material = read_key_store(settings)
    if material is not None:
        _load_key(context, material)
    return context


def _set_common(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    for name in _JAVA_NAMES:
        if settings.get(name):
            raise InvalidConfig(f"{name} names a Java class, which cannot be loaded")
    context.minimum_version, context.maximum_version = versions(settings)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    wanted = suites(_list(settings.get("ssl.cipher.suites", "")))
    if wanted.tls_1_2 is None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not wanted.tls_1_3:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if context.minimum_version > context.maximum_version:
        raise InvalidConfig("ssl.cipher.suites has no suite of the versions in ssl.enabled.protocols")
    if wanted.tls_1_2 is not None:
        try:
            context.set_ciphers(wanted.tls_1_2)
        except ssl.SSLError:
            raise InvalidConfig("ssl.cipher.suites: this OpenSSL has none of the suites") from None
    if wanted.tls_1_3 and set(wanted.tls_1_3) != TLS_1_3 and hasattr(context, "set_ciphersuites"):
        context.set_ciphersuites(":".join(wanted.tls_1_3))  # Python 3.15; before, the three suites are always on


def versions(settings: Mapping[str, str]) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """The lowest and the highest version of `ssl.enabled.protocols`. Raises `InvalidConfig`."""
    names = _list(settings.get("ssl.enabled.protocols", "")) or list(_VERSIONS)
    for name in names:
        if name not in _VERSIONS:
            raise InvalidConfig(f"ssl.enabled.protocols: {name!r} is not supported; use TLSv1.2 and TLSv1.3")
    return min(_VERSIONS[each] for each in names), max(_VERSIONS[each] for each in names)


def _list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _load_trust(context: ssl.SSLContext, settings: Mapping[str, str]) -> bool:
    """Loads the trusted certificates; False if there are none in the settings."""
    from cryptography.hazmat.primitives.serialization import Encoding

    found = read_trust_store(settings)
    if found is None:
        return False
    certificates, source = found
    try:
        context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in certificates))
    except ssl.SSLError:
        raise InvalidConfig(f"{source}: OpenSSL does not accept a certificate in it") from None
    return True


def _load_key(context: ssl.SSLContext, material: KeyMaterial) -> CertificateFacts:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    try:
        facts = facts_of(material.leaf)
    except ValueError as error:
        raise InvalidConfig(f"{material.source}: its first certificate is damaged: {error}") from None
    fault = facts.fault(datetime.now(UTC))
    if fault is not None:
        raise InvalidConfig(f"{material.source}: {fault}")
    key = material.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        with _private_file(key + b"".join(each.public_bytes(Encoding.PEM) for each in material.chain)) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise InvalidConfig(f"{material.source}: OpenSSL does not accept it: {_reason(error)}") from None
    return facts


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unknown").lower().replace("_", " ")


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """The path of a file with these bytes that no other user can read and that has no name in any directory."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):  # noqa: PTH112 - Path costs an import
        fd = os.memfd_create("headrace", os.MFD_CLOEXEC)
        try:
            _write_all(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    import tempfile

    fd, path = tempfile.mkstemp()  # mode 0600
    try:
        _write_all(fd, data)
        yield path
    finally:
        os.close(fd)
        os.unlink(path)  # noqa: PTH108


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
