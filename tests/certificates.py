"""Certificates for tests: one authority for a run, and a directory of stores made from it."""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from headrace.security.development_certificates import Identity, issue, make_authority, trust_store_pkcs12

PASSWORD = "store-secret"
HOSTS = ("localhost", "127.0.0.1")


def authority(name: str = "tests") -> Identity:
    """An authority, the same for each name."""
    return _authority(name)


@cache
def _authority(name: str) -> Identity:
    return make_authority(name, datetime.now(UTC), 3650)


@cache
def identity(
    name: str = "broker",
    *,
    by: str = "tests",
    days: int = 365,
    rsa_bits: int = 0,
    hosts: tuple[str, ...] = HOSTS,
) -> Identity:
    """A certificate of the authority `by`; with negative days it has expired."""
    now = datetime.now(UTC)
    if days < 0:
        return issue(authority(by), name, hosts, now + timedelta(days=days - 1), 1, rsa_bits=rsa_bits)
    return issue(authority(by), name, hosts, now, days, rsa_bits=rsa_bits)


def write_pem(path: Path, found: Identity, *, password: str = "") -> Path:
    """A PEM file with key and certificate, as Kafka's PEM key store is."""
    path.write_bytes(found.key_pem(password) + found.certificate_pem())
    return path


def write_trust(path: Path, by: str = "tests") -> Path:
    """A PEM file with the authority's certificate."""
    data = authority(by).certificate_pem()
    if not path.exists() or path.read_bytes() != data:  # brokers notice a changed file
        path.write_bytes(data)
    return path


def write_pkcs12(path: Path, found: Identity, *, by: str = "tests", password: str = PASSWORD) -> Path:
    """A PKCS12 key store."""
    path.write_bytes(found.pkcs12("headrace", [authority(by).certificate], password))
    return path


def write_pkcs12_trust(path: Path, by: str = "tests", password: str = PASSWORD) -> Path:
    """A PKCS12 trust store."""
    path.write_bytes(trust_store_pkcs12([authority(by).certificate], password))
    return path


def server_settings(directory: Path, **more: str) -> dict[str, str]:
    """The `ssl.*` settings of a server with PEM files in `directory`. `more` has `_` for `.`."""
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(write_pem(directory / "broker.pem", identity())),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(write_trust(directory / "ca.pem")),
    }
    return found | {name.replace("_", "."): text for name, text in more.items()}


def client_settings(directory: Path, *, name: str | None = None) -> dict[str, str]:
    """The `ssl.*` settings of a client; with a `name` it has a certificate."""
    found = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(write_trust(directory / "ca.pem"))}
    if name is not None:
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.location"] = str(write_pem(directory / f"{name}.pem", identity(name)))
    return found


def keytool(*arguments: str) -> None:
    """Runs Java's keytool."""
    command: Sequence[str] = ("keytool", "-noprompt", *arguments)
    subprocess.run(command, check=True, capture_output=True, timeout=120)
