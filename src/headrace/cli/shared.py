"""Options that several commands share, and the client objects made from them."""

from collections.abc import Iterable
from typing import Annotated

import typer

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings, parse_addresses

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="HEADRACE_BOOTSTRAP",
        help="Brokers to connect to first, separated by commas.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what the command would do, and change nothing.")]
Configs = Annotated[list[str], typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; repeatable.")]


class UsageProblem(Exception):
    """Arguments that exclude each other, or a value that cannot be parsed; exit code 2."""


CLIENT = ClientSettings(client_id="headrace-cli")


def cluster_of(bootstrap: str) -> Cluster:
    """A cluster for `--bootstrap`; see `checked`."""
    return Cluster(checked(bootstrap), CLIENT)


def checked(bootstrap: str) -> str:
    """Returns `--bootstrap` unchanged; UsageProblem if it is not a list of addresses."""
    try:
        parse_addresses(bootstrap)
    except ValueError as wrong:
        raise UsageProblem(f"--bootstrap: {wrong}") from None
    return bootstrap


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` arguments as a mapping; UsageProblem names the argument that has no such form."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageProblem(f"{option} {text!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found
