"""`headrace certificates authority|issue|show`: certificates for development, so that nobody has to know keytool.

headrace certificates authority certs                          certs/ca.pem, certs/ca-key.pem, certs/truststore.p12
headrace certificates issue certs broker --host localhost      certs/broker.pem, certs/broker.p12
headrace certificates issue certs alice                        a client's: its principal is in the output
headrace certificates show certs/broker.pem

Every subject says that it is for development. The key of the authority lies unencrypted in the directory, so these
certificates are worth as much as the directory is private: files have mode 0600, the directory 0700.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import print_json
from headrace.cli.shared import AsJson, UsageProblem
from headrace.printable import printable

if TYPE_CHECKING:
    from headrace.security.development_certificates import Identity

app = typer.Typer(no_args_is_help=True)

AUTHORITY, AUTHORITY_KEY, TRUST_STORE = "ca.pem", "ca-key.pem", "truststore.p12"
PASSWORD_VARIABLE = "HEADRACE_CERTIFICATES_PASSWORD"
DEFAULT_PASSWORD = "development"
_NOTE = "for development only: whoever reads this directory can make certificates of its authority"

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the authority and its certificates.")]
Days = Annotated[int, typer.Option("--days", min=1, max=36_500, help="How long the certificate is valid.")]


@app.command("authority")
def authority(
    directory: Directory,
    name: Annotated[str, typer.Option("--name", help="The name of the authority.")] = "headrace development CA",
    days: Days = 3650,
) -> None:
    """Make an authority for development, and trust stores with its certificate (PEM and PKCS12)."""
    from headrace.security.development_certificates import make_authority, trust_store_pkcs12

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = make_authority(name, datetime.now(UTC), days)
    _write(directory / AUTHORITY_KEY, made.key_pem())
    _write(directory / AUTHORITY, made.certificate_pem())
    _write(directory / TRUST_STORE, trust_store_pkcs12([made.certificate], _password()))
    print(f"made {directory / AUTHORITY} ({_NOTE})")
    print("clients and servers trust it with:")
    print(f"  ssl.truststore.type=PEM\n  ssl.truststore.location={(directory / AUTHORITY).absolute()}")


@app.command("issue")
def issue(
    directory: Directory,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the server or client, and of its files.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="A name or address that clients connect to; repeatable."),
    ] = None,
    days: Days = 365,
    rsa: Annotated[bool, typer.Option("--rsa", help="Make an RSA key of 2048 bits instead of one of P-256.")] = False,
) -> None:
    """Make a certificate of the authority in DIR, for a server (with --host) or a client."""
    from headrace.security.development_certificates import issue as issued
    from headrace.security.ssl_principals import java_name

    if not name or not all(each.isalnum() or each in "-_." for each in name) or name[0] == ".":
        raise UsageProblem(f"NAME {name!r} becomes the name of a file: use letters, digits, '-', '_' and '.'")
    own = _authority(directory)
    try:
        made = issued(own, name, host or [], datetime.now(UTC), days, rsa_bits=2048 if rsa else 0)
    except ValueError as error:
        raise UsageProblem(f"--host or NAME cannot be in a certificate: {error}") from None
    _write(directory / f"{name}.pem", made.key_pem() + made.certificate_pem())
    _write(directory / f"{name}.p12", made.pkcs12(name, [own.certificate], _password()))
    print(f"made {directory / name}.pem and .p12 ({_NOTE})")
    print(f"  ssl.keystore.type=PEM\n  ssl.keystore.location={(directory / name).absolute()}.pem")
    print(f"its principal at a listener with ssl.client.auth=required: User:{java_name(made.certificate.subject)}")
    if not host:
        print("it names no host: for a server, say --host")


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A PEM file with a certificate.")], json: AsJson = False
) -> None:
    """Show the subject, the names and the end of the first certificate of a PEM file."""
    from cryptography import x509

    from headrace.security.certificate_facts import facts_of

    try:
        found = facts_of(x509.load_pem_x509_certificate(file.read_bytes()))
    except ValueError:
        raise UsageProblem(f"{file} has no certificate that can be read") from None
    if json:
        names = {"subject": found.subject, "names": list(found.alternative_names)}
        print_json(names | {"not_before": found.not_before.isoformat(), "not_after": found.not_after.isoformat()})
        return
    print(f"subject    {printable(found.subject)}")
    print(f"names      {printable(', '.join(found.alternative_names)) or '(none)'}")
    print(f"valid      {found.not_before:%Y-%m-%d %H:%M} to {found.not_after:%Y-%m-%d %H:%M} UTC")
    fault = found.fault(datetime.now(UTC))
    if fault is not None:
        print(printable(fault))


def _authority(directory: Path) -> "Identity":
    from headrace.security.development_certificates import read_authority

    try:
        return read_authority((directory / AUTHORITY).read_bytes(), (directory / AUTHORITY_KEY).read_bytes())
    except FileNotFoundError:
        raise UsageProblem(
            f"there is no authority in {directory}: make one with headrace certificates authority {directory}"
        ) from None
    except ValueError as error:
        raise UsageProblem(f"the authority in {directory} cannot be read: {error}") from None


def _password() -> str:
    """The password of PKCS12 stores: from the environment, since arguments are seen by all users."""
    return os.environ.get(PASSWORD_VARIABLE) or DEFAULT_PASSWORD


def _write(path: Path, data: bytes) -> None:
    """Writes a new file that only this user can read. A file that exists is kept: others may use its certificate."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageProblem(f"{path} exists already: remove it, or choose another name or directory") from None
    with os.fdopen(fd, "wb") as file:
        file.write(data)
