"""Options that every command takes, and the client objects that they make."""

from collections.abc import Iterable
from typing import Annotated

import typer

from headrace.client.cluster import Cluster
from headrace.client.settings import ClientSettings, parse_addresses

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT", envvar="HEADRACE_BOOTSTRAP", help="A broker; several with commas."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Configs = Annotated[
    list[str], typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; may be given many times.")
]


class UsageProblem(Exception):
    """Arguments that do not make sense together, or a value that is none; exit code 2."""


CLIENT = ClientSettings(client_id="headrace-cli")


def cluster_of(bootstrap: str) -> Cluster:
    """A cluster for `--bootstrap`; see `checked`."""
    return Cluster(checked(bootstrap), CLIENT)


def checked(bootstrap: str) -> str:
    """`--bootstrap` as it is; UsageProblem when it is no address."""
    try:
        parse_addresses(bootstrap)
    except ValueError as wrong:
        raise UsageProblem(f"--bootstrap: {wrong}") from None
    return bootstrap


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` arguments as a mapping; UsageProblem names the one that is not."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageProblem(f"{option} {text!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found
