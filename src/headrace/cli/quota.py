"""`headrace quota list|describe|set|remove`: the quotas of users, client ids, and addresses."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import typer

from headrace.cli.option_groups import with_option_groups
from headrace.cli.output import Json, counted, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of, pairs
from headrace.client.operations.quota_admin import CLIENT_ID, IP, USER, QuotaAdmin
from headrace.printable import printable

app = typer.Typer(no_args_is_help=True)

Entity = Mapping[str, str | None]


class EntityOptions(NamedTuple):
    """The options that name what a quota is of."""

    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="The user.")] = None
    user_default: Annotated[bool, typer.Option("--user-default", help="Every user without a quota of its own.")] = False
    client_id: Annotated[str | None, typer.Option("--client-id", metavar="ID", help="The client id.")] = None
    client_id_default: Annotated[
        bool, typer.Option("--client-id-default", help="Every client id without a quota of its own.")
    ] = False
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The address.")] = None
    ip_default: Annotated[bool, typer.Option("--ip-default", help="Every address without a quota of its own.")] = False

    def entity(self) -> Entity:
        """The entity that they name. Raises `UsageProblem`."""
        entity: dict[str, str | None] = {}
        for kind, name, is_default in (
            (USER, self.user, self.user_default),
            (CLIENT_ID, self.client_id, self.client_id_default),
            (IP, self.ip, self.ip_default),
        ):
            if name is not None and is_default:
                raise UsageProblem(f"--{kind} and --{kind}-default exclude each other")
            if name is not None or is_default:
                entity[kind] = name
        if not entity:
            raise UsageProblem(
                "name a --user, a --client-id, both, or an --ip, or one of the defaults, as --user-default"
            )
        if IP in entity and len(entity) > 1:
            raise UsageProblem("a quota of an address is of no user or client id: give --ip alone")
        return entity


@app.command("list")
def list_quotas(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """List all quotas."""
    with cluster_of(bootstrap) as cluster:
        found = QuotaAdmin(cluster).list_quotas()
    if json:
        print_json([_as_json(each.entity, each.values) for each in found])
        return
    rows = [(_shown(each.entity), key, _number(value)) for each in found for key, value in each.values.items()]
    print_table(["OF", "QUOTA", "VALUE"], rows)


@app.command()
@with_option_groups
def describe(
    *,
    of: EntityOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Show the quotas that are set for a user, a client id, both together, or an address."""
    entity = of.entity()
    with cluster_of(bootstrap) as cluster:
        found = QuotaAdmin(cluster).describe_quotas(entity)
    if json:
        print_json(_as_json(entity, found))
    else:
        print_table(["QUOTA", "VALUE"], [(key, _number(value)) for key, value in found.items()])


@app.command("set")
@with_option_groups
def set_quotas(
    *,
    quotas: Annotated[list[str], typer.Argument(metavar="QUOTA=VALUE...")],
    of: EntityOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Set quotas. Those that are not named keep their value."""
    entity = of.entity()
    changes: dict[str, float | None] = {}
    for key, text in pairs("quota", quotas).items():
        try:
            changes[key] = float(text)
        except ValueError:
            raise UsageProblem(f"{key}={text!r} is not a number") from None
    _alter(entity, changes, bootstrap, dry_run, json)


@app.command()
@with_option_groups
def remove(
    *,
    quotas: Annotated[list[str] | None, typer.Argument(metavar="[QUOTA...]")] = None,
    of: EntityOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Remove the named quotas, or all that are set."""
    entity = of.entity()
    names = quotas
    if not names:
        with cluster_of(bootstrap) as cluster:
            names = list(QuotaAdmin(cluster).describe_quotas(entity))
    _alter(entity, dict.fromkeys(names), bootstrap, dry_run, json)


def _alter(entity: Entity, changes: Mapping[str, float | None], bootstrap: str, dry_run: bool, as_json: bool) -> None:
    if changes:
        with cluster_of(bootstrap) as cluster:
            QuotaAdmin(cluster).alter_quotas(entity, changes, validate_only=dry_run)
    if as_json:
        print_json({**_as_json(entity, changes), "dry_run": dry_run})
    else:
        verb = "would change" if dry_run else "changed"
        print(f"{verb} {counted(len(changes), 'quota')} of {_shown(entity)}")


def _shown(entity: Entity) -> str:
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {printable(name)}"
        for kind, name in sorted(entity.items(), reverse=True)
    )


def _as_json(entity: Entity, quotas: Mapping[str, float | None]) -> dict[str, Json]:
    return {"entity": {**entity}, "quotas": {**quotas}}


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)
