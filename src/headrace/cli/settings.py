"""`headrace config list|get|set|unset`: settings of topics, brokers, groups, loggers, and subscriptions to metrics.

headrace config set topic flights retention.ms=86400000
headrace config set broker default log.retention.ms=86400000      all brokers, at once; a broker's own goes before
headrace config set logger 1 headrace.network=DEBUG               the loggers of broker 1, until it stops
headrace config set client-metrics all metrics='*' interval.ms=30000
"""

from typing import Annotated

import typer

from headrace.cli.output import counted, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of, pairs
from headrace.client.operations.admin import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_LOGGER,
    RESOURCE_TOPIC,
    Admin,
)
from headrace.printable import printable

app = typer.Typer(no_args_is_help=True)

_KINDS = {
    "topic": RESOURCE_TOPIC,
    "broker": RESOURCE_BROKER,
    "group": RESOURCE_GROUP,
    "client-metrics": RESOURCE_CLIENT_METRICS,
    "logger": RESOURCE_LOGGER,
}
_ALL_BROKERS = "default"

Kind = Annotated[str, typer.Argument(metavar="|".join(_KINDS))]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of the topic, group or subscription; the id of the broker, or default for all brokers; the id "
        "of the loggers' broker.",
    ),
]


@app.command("list")
def list_names(kind: Kind, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """List the names of topics or brokers, or of those groups and subscriptions that have settings."""
    with cluster_of(bootstrap) as cluster:
        names = Admin(cluster).list_config_resources(_kind(kind))
    if json:
        print_json(list(names))
    else:
        for name in names:
            print(printable(name))


@app.command("get")
def get(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include settings at their default.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Show the named settings, or all that differ from the default."""
    with cluster_of(bootstrap) as cluster:
        entries = Admin(cluster).describe_configs(_kind(kind), _resource(kind, name))
    known = {entry.name for entry in entries}
    for key in keys or []:
        if key not in known:
            raise UsageProblem(f"{kind} {name} has no setting {key!r}")
    shown = [entry for entry in entries if (entry.name in keys if keys else everything or not entry.is_default)]
    if json:
        print_json({entry.name: entry.value for entry in shown})
    else:
        rows = [(e.name, "(secret)" if e.is_sensitive else e.value, "default" if e.is_default else "") for e in shown]
        print_table(["SETTING", "VALUE", ""], rows)


@app.command("set")
def set_values(
    kind: Kind,
    name: Name,
    values: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Change settings. Settings that are not named keep their value."""
    _change(kind, name, {**pairs("setting", values)}, bootstrap, dry_run, json)


@app.command("unset")
def unset(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Reset settings to their defaults."""
    _change(kind, name, dict.fromkeys(keys), bootstrap, dry_run, json)


def _change(kind: str, name: str, changes: dict[str, str | None], bootstrap: str, dry_run: bool, as_json: bool) -> None:
    with cluster_of(bootstrap) as cluster:
        Admin(cluster).alter_configs(_kind(kind), _resource(kind, name), changes, validate_only=dry_run)
    if as_json:
        print_json({kind: name, "config": changes, "dry_run": dry_run})
    else:
        verb = "would change" if dry_run else "changed"
        print(f"{verb} {counted(len(changes), 'setting')} of {kind} {printable(name)}")


def _kind(kind: str) -> int:
    if kind not in _KINDS:
        raise UsageProblem(f"{kind!r} has no settings: expected {', '.join(_KINDS)}")
    return _KINDS[kind]


def _resource(kind: str, name: str) -> str:
    return "" if kind == "broker" and name == _ALL_BROKERS else name
