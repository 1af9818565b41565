"""`headrace instance create|list|describe|alter|delete|why|usage`: the tenants of a cluster."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

from headrace.cli import instance_flow
from headrace.cli.instance_fields import InstanceOptions, fields_of
from headrace.cli.option_groups import with_option_groups
from headrace.cli.output import Json, print_json, print_table
from headrace.cli.quantities import duration_ms, shown_size
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.operations.instance_admin import DescribedInstance, InstanceAdmin
from headrace.instances.definition import described
from headrace.printable import printable

app = typer.Typer(no_args_is_help=True)
app.command("why")(instance_flow.why)
app.command("usage")(instance_flow.usage)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The instance: at most 32 of a-z, 0-9 and '-'.")]


@app.command()
@with_option_groups
def create(
    name: Name,
    options: InstanceOptions,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt", help="Take over topics, users and groups that are called NAME.… already; refused otherwise."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Create an instance, and print the address that its clients connect to first."""
    fields = fields_of(options)
    with cluster_of(bootstrap) as cluster:
        admin_calls = InstanceAdmin(cluster)
        found = admin_calls.create_instance(name, fields, adopt=adopt, validate_only=dry_run)
        if not dry_run:
            found = admin_calls.await_listeners(name)
    if json:
        print_json({**_as_json(found), "dry_run": dry_run})
    elif dry_run:
        print(f"would create instance {name}")
    else:
        print(found.bootstrap or f"instance {name} has no listener of its own")


@app.command("list")
def list_instances(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """List all instances."""
    with cluster_of(bootstrap) as cluster:
        found = InstanceAdmin(cluster).describe_instances()
    if json:
        print_json([_as_json(each) for each in found])
        return
    print_table(
        ["NAME", "STATE", "IN/s", "OUT/s", "CAPACITY", "TOPICS", "PARTITIONS", "BROKERS", "BOOTSTRAP"],
        [
            (
                each.instance.name,
                _state(each),
                shown_size(each.instance.bytes_in),
                shown_size(each.instance.bytes_out),
                shown_size(each.instance.capacity),
                each.topics,
                each.partitions,
                _joined(each.instance.brokers) or "all",
                each.bootstrap or "-",
            )
            for each in found
        ],
    )


@app.command()
def describe(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Show the limits of an instance, where its clients connect, and what it holds."""
    with cluster_of(bootstrap) as cluster:
        [found] = InstanceAdmin(cluster).describe_instances([name])
    _show(found, json)


@app.command()
@with_option_groups
def alter(
    name: Name,
    options: InstanceOptions,
    restore: Annotated[
        bool, typer.Option("--restore", help="Bring back an instance that is deleted, before its grace period is over.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Allow limits below what there is, and brokers without all its partitions.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Change limits, brokers, listeners and lists of an instance. What is not named stays; `none` removes a limit or
    empties a list, and a list that is given replaces the one before."""
    changes = fields_of(options)
    if restore:
        changes["state"] = "active"
    if not changes:
        raise UsageProblem("name what to change, as --bytes-in 10MiB: see headrace instance alter --help")
    with cluster_of(bootstrap) as cluster:
        found = InstanceAdmin(cluster).alter_instance(name, changes, force=force, validate_only=dry_run)
    if json:
        print_json({**_as_json(found), "dry_run": dry_run})
    else:
        print(f"{'would alter' if dry_run else 'altered'} instance {name}: {', '.join(sorted(changes))}")


@app.command()
def delete(
    name: Name,
    with_data: Annotated[bool, typer.Option("--with-data", help="Also if it has topics, which go with it.")] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long alter --restore can bring it back, as 12h or 7d; 1d if it has topics, and none otherwise.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Delete an instance: it serves nobody any more, and its topics, groups, users, rules and quotas go after the grace
    period."""
    grace_ms = None if grace is None else duration_ms("--grace", grace)
    with cluster_of(bootstrap) as cluster:
        found = InstanceAdmin(cluster).delete_instance(
            name, with_data=with_data, grace_ms=grace_ms, validate_only=dry_run
        )
    if json:
        print_json({**_as_json(found), "dry_run": dry_run})
        return
    what = f"{found.topics} topics with {found.partitions} partitions"
    print(f"{'would delete' if dry_run else 'deleted'} instance {name} with {what}; the data goes at {_time(found)}")


def _show(found: DescribedInstance, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(found))
        return
    sizes = {"bytes_in", "bytes_out", "capacity", "retention_bytes_max", "member_bytes_max"}
    rows: list[tuple[str, str]] = []
    for field, value in described(found.instance).items():
        if field in sizes and isinstance(value, int):
            shown = shown_size(value)
        else:
            shown = _joined(value) if isinstance(value, list) else "-" if value is None else str(value)
        rows.append((field, printable(shown) or "-"))
    rows += [
        ("topics", str(found.topics)),
        ("partitions", str(found.partitions)),
        ("bootstrap", found.bootstrap or "-"),
    ]
    print_table(["FIELD", "VALUE"], rows)


def _as_json(found: DescribedInstance) -> dict[str, Json]:
    definition: dict[str, Json] = dict(described(found.instance))  # type: ignore[arg-type]
    return {
        **definition,
        "endpoints": {str(broker): address for broker, address in found.endpoints.items()},
        "bootstrap": found.bootstrap,
        "topics": found.topics,
        "partitions": found.partitions,
        "bytes": found.stored,
    }


def _state(found: DescribedInstance) -> str:
    until = found.instance.deleted_at_ms
    return found.instance.state.value if until is None else f"{found.instance.state.value} ({_time(found)})"


def _time(found: DescribedInstance) -> str:
    at = datetime.fromtimestamp((found.instance.deleted_at_ms or 0) / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))
