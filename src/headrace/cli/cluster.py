"""`headrace cluster status|brokers|controller|why-not-ready|elect|reassign|drain|roll`, also for Apache Kafka."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from headrace.cli import cluster_moves, rolling
from headrace.cli.output import Json, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, cluster_of
from headrace.client.core.metadata import ClusterView
from headrace.client.operations.admin import RESOURCE_TOPIC, Admin
from headrace.client.operations.health import Health, health_of, partitions_of, reasons, shares_of
from headrace.client.operations.replica_admin import ReplicaAdmin
from headrace.errors import ErrorCode, KafkaError
from headrace.printable import printable
from headrace.types import NO_LEADER, BrokerId

app = typer.Typer(no_args_is_help=True)
app.command("reassign")(cluster_moves.reassign)
app.command("drain")(cluster_moves.drain)
app.command("roll")(rolling.roll)

_NOT_READY = 1


@app.command()
def status(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Show the state of the cluster; exit code 1 unless all replicas of every partition are in sync."""
    with cluster_of(bootstrap) as cluster:
        view, health = look(Admin(cluster))
        moving = ReplicaAdmin(cluster).reassignments()
    counted = {
        "partitions": sum(1 for _ in partitions_of(view)),
        "offline": len(health.offline),
        "under_min_isr": len(health.under_min_isr),
        "under_replicated": len(health.under_replicated),
        "led_elsewhere": len(health.led_elsewhere),
        "moving": len(moving),
    }
    if json:
        about: dict[str, Json] = {
            "cluster": view.cluster_id,
            "controller": view.controller,
            "brokers": sorted(view.brokers),
            "missing_brokers": list(health.missing_brokers),
            "topics": len(view.topics),
        }
        print_json({**about, **counted, "ready": health.is_ready})
    else:
        print(f"cluster {printable(view.cluster_id or '-')}: {'ready' if health.is_ready else 'not ready'}")
        lines = [("broker ids", f"{_numbers(sorted(view.brokers))}; controller {_known(view.controller)}")]
        if health.missing_brokers:
            lines.append(("missing brokers", _numbers(health.missing_brokers)))
        lines.append(("topics", str(len(view.topics))))
        lines += [(name.replace("_", " "), str(count)) for name, count in counted.items()]
        for name, text in lines:
            print(f"{name.ljust(16)}  {text}")
        if not health.is_ready:
            print("why: headrace cluster why-not-ready")
    if not health.is_ready:
        raise typer.Exit(_NOT_READY)


@app.command()
def brokers(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """List the brokers, with the number of partitions each leads and holds."""
    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        view = admin.describe_cluster()
        held: dict[BrokerId, int] = {}
        for directory in admin.describe_log_dirs():
            held[directory.broker] = held.get(directory.broker, 0) + sum(directory.partition_bytes.values())
    rows: list[dict[str, Json]] = []
    for broker, share in shares_of(view).items():
        address = view.brokers.get(broker)
        rows.append(
            {
                "broker": broker,
                "address": None if address is None else str(address),
                "rack": view.racks.get(broker),
                "controller": broker == view.controller,
                "leaders": share.leaders,
                "replicas": share.replicas,
                "in_sync": share.in_sync,
                "bytes": held.get(broker),
            }
        )
    if json:
        print_json(rows)
        return
    keys = ["broker", "address", "rack", "leaders", "replicas", "in_sync", "bytes"]
    table = [[_cell(row[key], "down" if key == "address" else "-") for key in keys] for row in rows]
    print_table([key.replace("_", " ").upper() for key in keys], table)


@app.command()
def controller(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Show which broker is the controller."""
    with cluster_of(bootstrap) as cluster:
        view = Admin(cluster).describe_cluster()
    address = view.brokers.get(view.controller)
    if json:
        print_json({"broker": view.controller, "address": None if address is None else str(address)})
    elif address is None:
        print("the cluster has no controller at the moment; the brokers are electing one, try again")
    else:
        print(f"{view.controller} {address}")


@app.command("why-not-ready")
def why_not_ready(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Explain why partitions have no leader or have replicas that are not in sync, and what to do."""
    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        view = admin.describe_cluster()
        directories = admin.describe_log_dirs()
    sizes = {(each.broker, key): size for each in directories for key, size in each.partition_bytes.items()}
    failed: dict[BrokerId, list[str]] = {}
    for directory in directories:
        if directory.error:
            failed.setdefault(directory.broker, []).append(directory.path)
    found = reasons(view, sizes, failed)
    leaders = {partition: info.leader for partition, info in partitions_of(view)}
    if json:
        print_json(
            [{"partition": str(each), "leader": leaders[each], "reason": reason} for each, reason in found.items()]
        )
    elif not found:
        print("ready: every partition has a leader and all its replicas in sync")
    else:
        for each, reason in found.items():
            kind = "offline" if leaders[each] == NO_LEADER else "under-replicated"
            print(f"{printable(str(each))} {kind}: {printable(reason)}")
    if found:
        raise typer.Exit(_NOT_READY)


@app.command()
def elect(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[TOPIC|TOPIC:PARTITION]...", help="The partitions; without any, all that need an election."
        ),
    ] = [],  # noqa: B006
    unclean: Annotated[
        bool,
        typer.Option(
            help="Elect any live replica of partitions without a leader. Records that only other replicas have are "
            "lost."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Elect the preferred replicas as leaders again."""
    with cluster_of(bootstrap) as cluster:
        view, health = look(Admin(cluster))
        wanted = set(health.offline if unclean else health.led_elsewhere)
        chosen = sorted(wanted & cluster_moves.chosen_partitions(view, names) if names else wanted)
        if chosen and not dry_run:
            outcome = ReplicaAdmin(cluster).elect_leaders(chosen, unclean=unclean)
        else:
            outcome = dict.fromkeys(chosen, ErrorCode.NONE)
    if json:
        print_json(
            [{"partition": str(each), "error": code.name, "dry_run": dry_run} for each, code in sorted(outcome.items())]
        )
    elif not outcome:
        print("no election needed: " + ("every partition has a leader" if unclean else "all preferred replicas lead"))
    for each, code in [] if json else sorted(outcome.items()):
        print(f"{printable(str(each))}: {_elected(code, dry_run)}")
    if any(code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED) for code in outcome.values()):
        raise typer.Exit(_NOT_READY)


def look(admin: Admin) -> tuple[ClusterView, Health]:
    """The current metadata and health of the cluster."""
    view = admin.describe_cluster()
    return view, health_of(view, min_isr_of(admin, view))


def min_isr_of(admin: Admin, view: ClusterView) -> Mapping[str, int]:
    """`min.insync.replicas` of each topic that has a partition with a replica out of sync."""
    short = {partition.topic for partition, info in partitions_of(view) if len(info.isr) < len(info.replicas)}
    found = {}
    for name in sorted(short):
        try:
            settings = admin.describe_configs(RESOURCE_TOPIC, name)
        except KafkaError:
            continue  # deleted meanwhile
        found[name] = next((int(each.value or 1) for each in settings if each.name == "min.insync.replicas"), 1)
    return found


def _elected(code: ErrorCode, dry_run: bool) -> str:
    if dry_run:
        return "would elect"
    return {ErrorCode.NONE: "elected", ErrorCode.ELECTION_NOT_NEEDED: "no election needed"}.get(code, code.name)


def _numbers(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"


def _known(broker: BrokerId) -> str:
    return "none" if broker == NO_LEADER else str(broker)


def _cell(value: Json, missing: str) -> Json:
    return missing if value is None else value
