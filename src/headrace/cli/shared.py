"""Options that several commands share, and the client objects made from them."""

from collections.abc import Iterable
from typing import Annotated

import typer

from headrace.cli.access import UsageProblem, access
from headrace.client.core.cluster import Cluster
from headrace.client.security.command_options import DEFAULT_BOOTSTRAP

__all__ = [
    "DEFAULT_BOOTSTRAP",
    "AsJson",
    "Bootstrap",
    "Configs",
    "DryRun",
    "UsageProblem",
    "access",
    "cluster_of",
    "pairs",
]

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


def cluster_of(bootstrap: str) -> Cluster:
    """A cluster for `--bootstrap` and the options that go with it; see `cli.access`."""
    return Cluster(*access(bootstrap))


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` arguments as a mapping; UsageProblem names the argument that has no such form."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageProblem(f"{option} {text!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found
