"""Contexts from Kafka's settings: which stores are read, what is said of wrong ones, and what a handshake agrees on."""

import shutil
import ssl
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidConfig
from headrace.network.tls.contexts import client_context, server_context
from headrace.network.tls.failures import handshake_failure
from tests.certificates import (
    PASSWORD,
    authority,
    client_settings,
    identity,
    keytool,
    server_settings,
    write_pem,
    write_pkcs12,
    write_pkcs12_trust,
    write_trust,
)
from tests.network.tls.handshake import shake_hands

needs_java = pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is missing")


def refused(settings: dict[str, str]) -> str:
    with pytest.raises(InvalidConfig) as caught:
        server_context(settings)
    message = caught.value.message
    assert "\n" not in message
    assert PASSWORD not in message
    assert "wrong-secret" not in message
    return message


def test_serves_a_pem_file(tmp_path: Path) -> None:
    server = server_context(server_settings(tmp_path))
    assert shake_hands(server.context, client_context(client_settings(tmp_path))) == ("TLSv1.3", "TLSv1.3")
    assert server.certificate.alternative_names == ("localhost", "127.0.0.1")


def test_serves_an_encrypted_pem_file(tmp_path: Path) -> None:
    path = write_pem(tmp_path / "k.pem", identity(), password=PASSWORD)
    server = server_context({"ssl.keystore.location": str(path), "ssl.key.password": PASSWORD})
    assert shake_hands(server.context, client_context(client_settings(tmp_path))).client == "TLSv1.3"


@pytest.mark.parametrize("separator", ["\n", " ", "\r\n"])
def test_serves_inline_pem_with_any_white_space(tmp_path: Path, separator: str) -> None:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity().key_pem(PASSWORD).decode().replace("\n", separator),
        "ssl.key.password": PASSWORD,
        "ssl.keystore.certificate.chain": identity().certificate_pem().decode().replace("\n", separator),
    }
    trust = {"ssl.truststore.certificates": authority().certificate_pem().decode().replace("\n", separator)}
    assert shake_hands(server_context(settings).context, client_context(trust)).client == "TLSv1.3"


def test_serves_pkcs12(tmp_path: Path) -> None:
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(write_pkcs12(tmp_path / "k.p12", identity())),
        "ssl.keystore.password": PASSWORD,
    }
    trust = {
        "ssl.truststore.location": str(write_pkcs12_trust(tmp_path / "t.p12")),
        "ssl.truststore.password": PASSWORD,
    }
    assert shake_hands(server_context(settings).context, client_context(trust)).client == "TLSv1.3"


@needs_java
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_serves_stores_that_keytool_made(tmp_path: Path, kind: str) -> None:
    key, trust = tmp_path / "key.store", tmp_path / "trust.store"
    keytool("-genkeypair", "-keystore", str(key), "-storetype", kind, "-storepass", PASSWORD, "-keypass", PASSWORD,
            "-alias", "broker", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=broker",
            "-ext", "san=dns:localhost", "-validity", "30")  # fmt: skip
    pem = tmp_path / "c.pem"
    keytool("-exportcert", "-rfc", "-keystore", str(key), "-storepass", PASSWORD, "-alias", "broker", "-file", str(pem))
    keytool("-importcert", "-keystore", str(trust), "-storetype", kind, "-storepass", PASSWORD, "-file", str(pem))
    settings = {"ssl.keystore.location": str(key), "ssl.keystore.password": PASSWORD, "ssl.keystore.type": kind}
    trusted = {"ssl.truststore.location": str(trust), "ssl.truststore.password": PASSWORD, "ssl.truststore.type": kind}
    assert shake_hands(server_context(settings).context, client_context(trusted)).client == "TLSv1.3"
    assert "ssl.keystore.password is wrong" in refused({**settings, "ssl.keystore.password": "wrong-secret"})
    assert "ssl.keystore.password" in refused({**settings, "ssl.keystore.password": ""})


@needs_java
@pytest.mark.slow
def test_reads_the_key_of_a_jks_store_under_its_own_password(tmp_path: Path) -> None:
    key = tmp_path / "key.jks"
    keytool("-genkeypair", "-keystore", str(key), "-storetype", "JKS", "-storepass", PASSWORD, "-keypass", "key-secret",
            "-alias", "broker", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=broker")  # fmt: skip
    settings = {"ssl.keystore.location": str(key), "ssl.keystore.password": PASSWORD}
    assert server_context({**settings, "ssl.key.password": "key-secret"}).certificate.subject == "CN=broker"
    assert "ssl.key.password is wrong" in refused({**settings, "ssl.key.password": "wrong-secret"})
    assert "set ssl.key.password" in refused(settings)


def test_says_which_file_has_which_fault(tmp_path: Path) -> None:
    def fault(name: str, data: bytes | None, **more: str) -> str:
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        message = refused({"ssl.keystore.location": str(path), **{k.replace("_", "."): v for k, v in more.items()}})
        assert message.startswith(f"ssl.keystore.location={path}: "), message
        return message

    key, certificate = identity().key_pem(), identity().certificate_pem()
    assert "No such file" in fault("missing.pem", None)
    assert "is empty" in fault("empty.pem", b"")
    assert "neither PEM nor PKCS12 nor JKS" in fault("text.pem", b"hello")
    assert "no private key" in fault("certificate.pem", certificate)
    assert "no certificate" in fault("key.pem", key)
    assert "2 private keys" in fault("keys.pem", key + key + certificate)
    assert "the private key is damaged" in fault("cut.pem", key.replace(b"M", b"N", 1) + certificate)
    assert "a certificate in it is damaged" in fault("bad.pem", key + certificate.replace(b"M", b"N", 1))
    assert "is not that of the private key" in fault("other.pem", key + identity("other").certificate_pem())
    encrypted = identity().key_pem(PASSWORD) + certificate
    assert "set ssl.key.password" in fault("encrypted.pem", encrypted)
    assert "ssl.key.password is wrong" in fault("encrypted.pem", encrypted, ssl_key_password="wrong-secret")
    store = write_pkcs12(tmp_path / "s.p12", identity()).read_bytes()
    assert "ssl.keystore.password is wrong" in fault("k.p12", store, ssl_keystore_password="wrong-secret")
    assert "ssl.keystore.password is not set" in fault("k.p12", store)
    wrong_key = {"ssl_keystore_password": PASSWORD, "ssl_key_password": "wrong-secret"}
    assert "ssl.key.password is wrong" in fault("k.p12", store, **wrong_key)
    both = fault("k.p12", store, ssl_keystore_password="wrong-secret", ssl_key_password="another-secret")
    assert "ssl.keystore.password is wrong" in both
    assert "its key has another password" in both
    assert "-secret" not in both
    assert "is PKCS12, not PEM" in fault("k.p12", store, ssl_keystore_type="PEM")
    assert "damaged" in fault("cut.p12", store[:100], ssl_keystore_password=PASSWORD)
    expired = identity("old", days=-10)
    assert "expired at" in fault("old.pem", expired.key_pem() + expired.certificate_pem())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("2a8648ce3d030107", "2a8648ce3d030177", "cannot be used: Curve"),
        ("2a8648ce3d0201", "2a8648ce3d0277", "cannot be used: Unknown key type"),
        ("551d13", "551d11", "is damaged: Duplicate 2.5.29.17"),
        ("551d11", "551d12", None),
    ],
    ids=["an unknown curve", "an unknown kind of key", "two lists of names", "no names"],
)
def test_a_certificate_of_an_odd_form_is_a_fault_of_its_file(
    tmp_path: Path, before: str, after: str, said: str | None
) -> None:
    """Of the kinds of exceptions that `cryptography` has for them: one would end a broker that runs."""
    found = identity()
    der = found.certificate.public_bytes(Encoding.DER)
    assert bytes.fromhex(before) in der
    der = der.replace(bytes.fromhex(before), bytes.fromhex(after), 1)
    path = tmp_path / "odd.pem"
    path.write_bytes(found.key_pem() + ssl.DER_cert_to_PEM_cert(der).encode())
    if said is None:
        assert server_context({"ssl.keystore.location": str(path)}).certificate.alternative_names == ()
    else:
        message = refused({"ssl.keystore.location": str(path)})
        assert message.startswith(f"ssl.keystore.location={path}: ")
        assert said in message


def test_says_which_settings_do_not_fit(tmp_path: Path) -> None:
    good = server_settings(tmp_path)
    assert "set ssl.keystore.location" in refused({})
    assert "ssl.client.auth='maybe'" in refused({**good, "ssl.client.auth": "maybe"})
    assert "'TLSv1.1' is not supported" in refused({**good, "ssl.enabled.protocols": "TLSv1.2,TLSv1.1"})
    assert "too weak" in refused({**good, "ssl.cipher.suites": "SSL_RSA_WITH_RC4_128_MD5"})
    assert "no suite of the versions" in refused(
        {**good, "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"}
    )
    assert "set ssl.truststore.location" in refused(
        {**good, "ssl.truststore.location": "", "ssl.client.auth": "required"}
    )
    assert "Java class" in refused({**good, "ssl.engine.factory.class": "com.example.Factory"})


def test_reads_the_trust_store_of_a_listener_that_asks_for_no_certificate(tmp_path: Path) -> None:
    """As Apache Kafka does: otherwise the fault would show at the first connection to another broker."""
    key = server_settings(tmp_path)
    store = write_pkcs12_trust(tmp_path / "trust.p12")
    trust = {**key, "ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(store)}
    wrong = refused({**trust, "ssl.truststore.password": "wrong-secret"})
    assert wrong.startswith(f"ssl.truststore.location={store}: ")
    assert "ssl.truststore.password is wrong" in wrong
    assert "\n" not in wrong
    assert "No such file" in refused({**key, "ssl.truststore.location": str(tmp_path / "missing.pem")})
    assert server_context({**trust, "ssl.truststore.password": PASSWORD}).context.verify_mode == ssl.CERT_NONE


def test_demands_a_certificate_of_clients_where_it_is_required(tmp_path: Path) -> None:
    server = server_context(server_settings(tmp_path, ssl_client_auth="required")).context
    assert shake_hands(server, client_context(client_settings(tmp_path, name="alice"))).client == "TLSv1.3"
    shaken = shake_hands(server, client_context(client_settings(tmp_path)))
    assert isinstance(shaken.server, ssl.SSLError)
    assert isinstance(shaken.client, OSError)
    assert "set ssl.keystore.location" in handshake_failure(shaken.client)
    assert "no certificate" in handshake_failure(shaken.server)


def test_refuses_a_certificate_of_another_authority(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    path = write_pem(tmp_path / "theirs" / "mallory.pem", identity("mallory", by="others"))
    client = client_context({**client_settings(tmp_path), "ssl.keystore.location": str(path)})
    for auth in ("required", "requested"):
        server = server_context(server_settings(tmp_path, ssl_client_auth=auth)).context
        shaken = shake_hands(server, client)
        assert isinstance(shaken.server, ssl.SSLCertVerificationError)
        assert isinstance(shaken.client, OSError)


def test_a_client_verifies_the_host_name_unless_told_not_to(tmp_path: Path) -> None:
    server = server_context(server_settings(tmp_path)).context
    settings = client_settings(tmp_path)
    shaken = shake_hands(server, client_context(settings), "elsewhere.example")
    assert isinstance(shaken.client, ssl.SSLCertVerificationError)
    assert "not for this address" in handshake_failure(shaken.client)
    careless = client_context({**settings, "ssl.endpoint.identification.algorithm": ""})
    assert shake_hands(server, careless, "elsewhere.example").client == "TLSv1.3"


def test_a_client_refuses_an_authority_that_it_does_not_know(tmp_path: Path) -> None:
    server = server_context(server_settings(tmp_path)).context
    trust = {"ssl.truststore.location": str(write_trust(tmp_path / "other.pem", by="others"))}
    shaken = shake_hands(server, client_context(trust))
    assert isinstance(shaken.client, ssl.SSLCertVerificationError)
    assert "ssl.truststore.location" in handshake_failure(shaken.client)
    assert isinstance(shaken.server, OSError)
    assert "ssl.truststore.location" in handshake_failure(shaken.server)


def test_agrees_on_the_versions_and_suites_of_the_settings(tmp_path: Path) -> None:
    trust = client_settings(tmp_path)
    older = server_context(server_settings(tmp_path, ssl_enabled_protocols="TLSv1.2")).context
    assert shake_hands(older, client_context(trust)).client == "TLSv1.2"
    newer = client_context({**trust, "ssl.enabled.protocols": "TLSv1.3"})
    shaken = shake_hands(older, newer)
    assert isinstance(shaken.client, ssl.SSLError)
    assert "ssl.enabled.protocols" in handshake_failure(shaken.client)
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    one = server_context(server_settings(tmp_path, ssl_cipher_suites=suite)).context
    assert shake_hands(one, client_context(trust)).client == "TLSv1.2"
    assert [each["name"] for each in one.get_ciphers() if each["protocol"] == "TLSv1.2"] == [
        "ECDHE-ECDSA-AES128-GCM-SHA256"
    ]


def test_offers_no_old_version_and_no_renegotiation(tmp_path: Path) -> None:
    context = server_context(server_settings(tmp_path)).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    names = {each["name"] for each in context.get_ciphers()}
    assert all("ECDHE" in name or name.startswith("TLS_") for name in names)


def test_leaves_no_key_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.delattr("os.memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    server_context(server_settings(tmp_path))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_says_how_to_read_a_jks_store_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jks", None)
    store = tmp_path / "key.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    message = refused({"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD})
    assert "pip install 'headrace[jks]'" in message
    assert str(store) in message


@given(
    data=st.binary(max_size=300), kind=st.sampled_from([b"", b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1", b"\x30\x82\x01\0"])
)
def test_any_file_is_a_store_or_one_line_of_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.store"
    path.write_bytes(kind + data)
    refused({"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD})
