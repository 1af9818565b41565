"""`headrace cluster reassign` and `drain`: replicas moved to other brokers.

The plan comes first (`--dry-run` stops there), then the cluster is asked, then, unless `--no-wait`, we look on until
it is done. What a plan says can be saved and given again: `--json` prints the form of Kafka's own reassignment tool.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import Json, print_json
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.core.cluster import Cluster
from headrace.client.core.metadata import ClusterView
from headrace.client.operations.admin import Admin
from headrace.client.operations.moves import (
    Plan,
    cancel_moves,
    moves_under_way,
    parse_plan,
    plan_drain,
    plan_on,
    wait_until_moved,
)
from headrace.client.operations.replica_admin import ReplicaAdmin
from headrace.client.operations.selection import NotThere, partitions_named
from headrace.printable import printable
from headrace.types import BrokerId, TopicPartition

Wait = Annotated[
    bool, typer.Option(help="Wait until all replicas have moved, or return as soon as the reassignment has started.")
]


def reassign(
    names: Annotated[list[str], typer.Argument(metavar="[TOPIC|TOPIC:PARTITION]...")] = [],  # noqa: B006
    to: Annotated[
        str, typer.Option("--to", metavar="BROKER,...", help="The ids of the brokers that replicas are placed on.")
    ] = "",
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", help="Replicas per partition; without it, the current number.")
    ] = None,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan", metavar="FILE", help="A plan in the JSON format of kafka-reassign-partitions, instead of --to."
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--status", help="Show the reassignments that are in progress, and change nothing.")
    ] = False,
    cancel: Annotated[
        bool,
        typer.Option("--cancel", help="Cancel reassignments in progress; the replicas stay on their previous brokers."),
    ] = False,
    wait: Wait = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Move partitions to other brokers, or change their number of replicas."""
    if sum([bool(to or replicas), plan_file is not None, show, cancel]) != 1:
        raise UsageProblem("give exactly one of --to (or --replicas), --plan, --status and --cancel")
    with cluster_of(bootstrap) as cluster:
        view = Admin(cluster).describe_cluster()
        if show:
            _show(cluster, json)
        elif cancel:
            _cancel(cluster, chosen_partitions(view, names) if names else None, dry_run=dry_run, json=json)
        elif plan_file is not None:
            _carry_out(cluster, read_plan(plan_file), wait=wait, dry_run=dry_run, json=json)
        elif not names:
            raise UsageProblem("no partition is named: give TOPIC or TOPIC:PARTITION arguments")
        else:
            allowed = _brokers("--to", to) or set(view.brokers)
            moving = chosen_partitions(view, names)
            try:
                plan = plan_on(view, allowed, moving, replicas)
            except ValueError as wrong:  # NotThere, NoRoom
                raise UsageProblem(str(wrong)) from None
            _carry_out(cluster, plan, wait=wait, dry_run=dry_run, json=json)


def drain(
    broker: Annotated[int, typer.Argument(metavar="BROKER")],
    wait: Wait = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Move every replica away from a broker, so that it can be removed from the cluster."""
    with cluster_of(bootstrap) as cluster:
        view = Admin(cluster).describe_cluster()
        try:
            plan = plan_drain(view, broker)
        except ValueError as wrong:  # NotThere, NoRoom
            raise UsageProblem(str(wrong)) from None
        _carry_out(cluster, plan, wait=wait, dry_run=dry_run, json=json)


def chosen_partitions(view: ClusterView, names: Iterable[str]) -> set[TopicPartition]:
    """The partitions that `TOPIC` and `TOPIC:PARTITION` arguments name. UsageProblem if one does not exist."""
    try:
        return partitions_named(view, names)
    except NotThere as wrong:
        raise UsageProblem(str(wrong)) from None


def read_plan(path: Path) -> dict[TopicPartition, list[int]]:
    """Reads a plan file of kafka-reassign-partitions. UsageProblem if it is malformed."""
    try:
        return parse_plan(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(f"--plan {path}: {getattr(error, 'strerror', None) or error}") from None
    except ValueError as error:
        raise UsageProblem(f"--plan {path}: {error}") from None


def _carry_out(cluster: Cluster, plan: Plan, *, wait: bool, dry_run: bool, json: bool) -> None:
    if plan and not dry_run:
        ReplicaAdmin(cluster).reassign(plan)
    if json:
        moves: list[Json] = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for (topic, number), replicas in sorted(plan.items())
        ]
        print_json({"version": 1, "partitions": moves, "dry_run": dry_run})
    elif not plan:
        print("nothing to move")
    for partition, replicas in [] if json else sorted(plan.items()):
        verb = "would move" if dry_run else "moving"
        print(f"{verb} {printable(str(partition))} to {','.join(map(str, replicas))}", flush=True)
    if plan and wait and not dry_run:
        wait_until_moved(ReplicaAdmin(cluster), plan, lambda count: _say_moved(count, len(plan), json))


def _say_moved(count: int, wanted: int, json: bool) -> None:
    if not json:
        print(f"{count} of {wanted} moved", flush=True)


def _show(cluster: Cluster, json: bool) -> None:
    moving = sorted(ReplicaAdmin(cluster).reassignments().items())
    if json:
        print_json(
            [
                {
                    "partition": str(partition),
                    "replicas": list(each.replicas),
                    "adding": list(each.adding),
                    "removing": list(each.removing),
                }
                for partition, each in moving
            ]
        )
        return
    for partition, each in moving:
        print(
            f"{printable(str(partition))} on {','.join(map(str, each.replicas))}"
            f", adding {','.join(map(str, each.adding)) or 'none'}"
            f", removing {','.join(map(str, each.removing)) or 'none'}"
        )
    if not moving:
        print("nothing is moving")


def _cancel(cluster: Cluster, chosen: set[TopicPartition] | None, *, dry_run: bool, json: bool) -> None:
    admin = ReplicaAdmin(cluster)
    ending = moves_under_way(admin, chosen)
    if not dry_run:
        cancel_moves(admin, ending)
    if json:
        print_json([{"partition": str(each), "cancelled": not dry_run} for each in ending])
        return
    for each in ending:
        print(f"{'would cancel' if dry_run else 'cancelled'} the move of {printable(str(each))}")
    if not ending:
        print("nothing is moving")


def _brokers(option: str, text: str) -> set[BrokerId]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if wrong := [part for part in parts if not part.isdecimal()]:
        raise UsageProblem(f"{option} {text!r}: {wrong[0]!r} is not a broker's number")
    return {BrokerId(int(part)) for part in parts}
