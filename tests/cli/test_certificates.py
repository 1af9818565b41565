"""`headrace certificates`: an authority, servers and clients, in files that nobody else can read."""

import shutil
import stat
from pathlib import Path

import pytest
from cryptography import x509

from headrace.cli.app import run
from headrace.network.tls.contexts import client_context, server_context
from tests.certificates import keytool
from tests.network.tls.handshake import shake_hands


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A directory with an authority and the certificates `broker` and `alice`."""
    directory = tmp_path / "certs"
    assert run(["certificates", "authority", str(directory)]) == 0
    assert run(["certificates", "issue", str(directory), "broker", "--host", "localhost", "--host", "127.0.0.1"]) == 0
    assert run(["certificates", "issue", str(directory), "alice"]) == 0
    return directory


def test_makes_what_tls_needs_on_both_sides(made: Path) -> None:
    trust = {"ssl.truststore.location": str(made / "ca.pem")}
    server = server_context({"ssl.keystore.location": str(made / "broker.pem"), **trust, "ssl.client.auth": "required"})
    client = client_context({"ssl.keystore.location": str(made / "alice.pem"), **trust})
    assert shake_hands(server.context, client).client == "TLSv1.3"
    stores = {
        "ssl.keystore.location": str(made / "broker.p12"), "ssl.keystore.password": "development",
        "ssl.truststore.location": str(made / "truststore.p12"), "ssl.truststore.password": "development",
        "ssl.client.auth": "required",
    }  # fmt: skip
    assert shake_hands(server_context(stores).context, client).client == "TLSv1.3"


def test_only_the_user_can_read_the_files(made: Path) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in made.iterdir()}
    assert set(modes.values()) == {0o600}
    assert modes.keys() == {
        "ca.pem", "ca-key.pem", "truststore.p12", "broker.pem", "broker.p12", "alice.pem", "alice.p12",
    }  # fmt: skip


def test_every_subject_says_that_it_is_for_development(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ca.pem", "broker.pem", "alice.pem"):
        subject = x509.load_pem_x509_certificate((made / name).read_bytes()).subject
        assert "not for production" in subject.rfc4514_string()
    assert run(["certificates", "show", str(made / "broker.pem")]) == 0
    assert run(["certificates", "issue", str(made), "bob"]) == 0
    out = capsys.readouterr().out
    assert "localhost, 127.0.0.1" in out
    assert "User:CN=bob,O=headrace development (not for production)" in out


def test_keeps_files_that_exist_and_names_what_is_wrong(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (made / "ca.pem").read_bytes()
    assert run(["certificates", "authority", str(made)]) == 2
    assert run(["certificates", "issue", str(made), "alice"]) == 2
    assert run(["certificates", "issue", str(made), "../alice"]) == 2
    assert run(["certificates", "issue", str(made / "elsewhere"), "bob"]) == 2
    errors = capsys.readouterr().err
    assert "exists already" in errors
    assert "name of a file" in errors
    assert "there is no authority" in errors
    assert (made / "ca.pem").read_bytes() == before


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is missing")
def test_java_reads_the_stores(made: Path) -> None:
    for name in ("truststore.p12", "broker.p12"):
        keytool("-list", "-keystore", str(made / name), "-storepass", "development")
