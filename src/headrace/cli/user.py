"""`headrace user add|list|describe|remove`: users and their SCRAM passwords.

Over the wire by default. With --zookeeper or --data they are written where brokers keep them, without a broker: for the
first user, before anybody can log in. A password comes from a prompt, standard input, a file or the environment, and
never from an argument, which everybody on the machine could see.
"""

import os
import sys
from collections.abc import Callable, Mapping
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.option_groups import with_option_groups
from headrace.cli.output import print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, UsageProblem, cluster_of
from headrace.cli.store_options import StoreOptions
from headrace.client.operations.user_admin import MECHANISMS, UserAdmin
from headrace.migrate import stored_users
from headrace.migrate.refusal import MigrationRefused
from headrace.migrate.store_place import StorePlace
from headrace.printable import printable

app = typer.Typer(no_args_is_help=True)

_PASSWORD_CHARS_MAX = 4096
_ITERATIONS = 4096

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
Mechanism = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism", metavar="NAME", help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable. Both if it is not given."
    ),
]


@app.command()
@with_option_groups
def add(
    *,
    name: Name,
    mechanism: Mechanism = None,
    iterations: Annotated[
        int, typer.Option(metavar="N", help="4096 to 16384: more make a stolen credential harder to use.")
    ] = _ITERATIONS,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file", metavar="FILE", help="A file whose first line is the password; - is standard input."
        ),
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option("--password-env", metavar="NAME", help="A variable of the environment with the password."),
    ] = None,
    store: StoreOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add a user, or give one a new password."""
    place, mechanisms = store.place(), _mechanisms(mechanism) or list(MECHANISMS)
    password = _password(name, password_file, password_env)
    if place is None:
        with cluster_of(bootstrap) as cluster:
            UserAdmin(cluster).set_password(name, password, mechanisms, iterations)
    else:
        _stored(lambda: stored_users.set_password(place, name, password, mechanisms, iterations))
    print(f"user {printable(name)} has a password for {' and '.join(mechanisms)}")


@app.command("list")
@with_option_groups
def list_users(
    *,
    store: StoreOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """List the users that have a password."""
    _show(_read(store.place(), bootstrap), json)


@app.command()
@with_option_groups
def describe(
    *,
    name: Name,
    store: StoreOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Show the mechanisms and iterations of a user, never a key."""
    place = store.place()
    if place is None:
        with cluster_of(bootstrap) as cluster:
            found = {name: UserAdmin(cluster).describe_user(name).iterations}
    else:
        known = _read(place, bootstrap)
        if name not in known:
            raise OSError(f"there is no user {name!r} with a password")
        found = {name: known[name]}
    _show(found, json)


@app.command()
@with_option_groups
def remove(
    *,
    name: Name,
    mechanism: Mechanism = None,
    store: StoreOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove the password of a user. Connections that are open stay open."""
    place, mechanisms = store.place(), _mechanisms(mechanism)
    if place is None:
        with cluster_of(bootstrap) as cluster:
            UserAdmin(cluster).remove(name, mechanisms)
    else:
        _stored(lambda: stored_users.remove(place, name, mechanisms))
    print(f"user {printable(name)} has no password for {' and '.join(mechanisms) or 'any mechanism'}")


def _read(place: StorePlace | None, bootstrap: str) -> Mapping[str, Mapping[str, int]]:
    if place is None:
        with cluster_of(bootstrap) as cluster:
            return {each.name: each.iterations for each in UserAdmin(cluster).list_users()}
    try:
        return stored_users.list_users(place)
    except MigrationRefused as refused:
        raise OSError(str(refused)) from None


def _stored(work: Callable[[], None]) -> None:
    try:
        work()
    except MigrationRefused as refused:
        raise OSError(str(refused)) from None


def _show(users: Mapping[str, Mapping[str, int]], json: bool) -> None:
    if json:
        print_json([{"user": name, "iterations": dict(found)} for name, found in users.items()])
        return
    rows = [
        (printable(name), mechanism, str(iterations))
        for name, found in users.items()
        for mechanism, iterations in sorted(found.items())
    ]
    print_table(["USER", "MECHANISM", "ITERATIONS"], rows)


def _mechanisms(given: list[str] | None) -> list[str]:
    found = [each.upper() for each in given or ()]
    for each in found:
        if each not in MECHANISMS:
            raise UsageProblem(f"--mechanism {each!r} is none of {', '.join(MECHANISMS)}")
    return list(dict.fromkeys(found))


def _password(name: str, file: Path | None, variable: str | None) -> str:
    if file is not None and variable is not None:
        raise UsageProblem("--password-file and --password-env exclude each other")
    if variable is not None:
        password = os.environ.get(variable, "")
        where = f"the environment's {variable}"
    elif file is not None and str(file) != "-":
        with file.open() as lines:
            password = lines.readline(_PASSWORD_CHARS_MAX).rstrip("\r\n")
        where = str(file)
    elif file is not None or not sys.stdin.isatty():
        password = sys.stdin.readline(_PASSWORD_CHARS_MAX).rstrip("\r\n")
        where = "standard input"
    else:
        password = getpass(f"password of {printable(name)}: ")
        where = "the prompt"
        if password != getpass("again: "):
            raise UsageProblem("the passwords differ")
    if not password:
        raise UsageProblem(f"{where} has no password")
    return password
