"""`headrace cluster reassign` and `drain`: replicas moved to other brokers.

The plan comes first (`--dry-run` stops there), then the cluster is asked, then, unless `--no-wait`, we look on until
it is done. What a plan says can be saved and given again: `--json` prints the form of Kafka's own reassignment tool.
"""

import json as json_format
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import Json, print_json, printable
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.health import partitions_of
from headrace.client.metadata import ClusterView
from headrace.client.placement import NoRoom, plan_move
from headrace.client.replica_admin import ReplicaAdmin
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition

Plan = Mapping[TopicPartition, Sequence[int]]

_LOOK_SECONDS = 0.5
_PLAN_FORM = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'

Wait = Annotated[bool, typer.Option(help="Wait until everything has moved.")]


def reassign(
    names: Annotated[list[str], typer.Argument(metavar="[TOPIC|TOPIC:PARTITION]...")] = [],  # noqa: B006
    to: Annotated[str, typer.Option("--to", metavar="BROKER,...", help="The brokers that may have replicas.")] = "",
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", help="As many of each; else as many as now.")
    ] = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="A plan as Kafka's tool has it, instead of --to.")
    ] = None,
    show: Annotated[bool, typer.Option("--status", help="Only show what is moving.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End what is moving: back to the brokers of before.")
    ] = False,
    wait: Wait = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Move partitions to other brokers, or change how many replicas they have."""
    if sum([bool(to or replicas), plan_file is not None, show, cancel]) != 1:
        raise UsageProblem("give one of --to (or --replicas), --plan, --status and --cancel")
    with cluster_of(bootstrap) as cluster:
        view = Admin(cluster).describe_cluster()
        if show:
            _show(cluster, json)
        elif cancel:
            _cancel(cluster, chosen_partitions(view, names) if names else None, dry_run=dry_run, json=json)
        elif plan_file is not None:
            _carry_out(cluster, read_plan(plan_file), wait=wait, dry_run=dry_run, json=json)
        elif not names:
            raise UsageProblem("name the topics or partitions that are to move")
        else:
            allowed = _brokers("--to", to) or set(view.brokers)
            plan = _plan(view, allowed, chosen_partitions(view, names), replicas)
            _carry_out(cluster, plan, wait=wait, dry_run=dry_run, json=json)


def drain(
    broker: Annotated[int, typer.Argument(metavar="BROKER")],
    wait: Wait = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Move every replica away from a broker, so that it can be taken out of the cluster."""
    with cluster_of(bootstrap) as cluster:
        view = Admin(cluster).describe_cluster()
        held = {partition for partition, info in partitions_of(view) if broker in info.replicas}
        if broker not in view.brokers and not held:
            raise UsageProblem(f"there is no broker {broker}, and no partition has a replica there")
        _carry_out(
            cluster,
            _plan(view, set(view.brokers) - {BrokerId(broker)}, held, None),
            wait=wait,
            dry_run=dry_run,
            json=json,
        )


def chosen_partitions(view: ClusterView, names: Iterable[str]) -> set[TopicPartition]:
    """The partitions that `TOPIC` and `TOPIC:PARTITION` arguments name. UsageProblem for one that is not there."""
    known = {partition for partition, _ in partitions_of(view)}
    chosen: set[TopicPartition] = set()
    for name in names:
        topic, colon, number = name.rpartition(":")
        found = {each for each in known if each.topic == name}
        if not found and colon and number.isdecimal():
            found = {TopicPartition(topic, int(number))} & known
        if not found:
            raise UsageProblem(f"there is no topic or partition {printable(name)}; write TOPIC or TOPIC:PARTITION")
        chosen |= found
    return chosen


def read_plan(path: Path) -> dict[TopicPartition, list[int]]:
    """A plan file of kafka-reassign-partitions. UsageProblem says what is wrong with it."""
    try:
        content = json_format.loads(path.read_text(encoding="utf-8"))
        return {
            TopicPartition(str(each["topic"]), int(each["partition"])): [int(broker) for broker in each["replicas"]]
            for each in content["partitions"]
        }
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(f"--plan {path}: {getattr(error, 'strerror', None) or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageProblem(f"--plan {path}: {error!r}; expected {_PLAN_FORM}") from None


def _plan(
    view: ClusterView, allowed: set[BrokerId], moving: set[TopicPartition], factor: int | None
) -> dict[TopicPartition, list[BrokerId]]:
    if unknown := allowed - view.brokers.keys():
        raise UsageProblem(
            f"broker {min(unknown)} is not there; these are: {', '.join(map(str, sorted(view.brokers)))}"
        )
    try:
        return plan_move(
            {partition: info.replicas for partition, info in partitions_of(view)},
            allowed,
            view.racks,
            moving=moving,
            replication_factor=factor,
        )
    except NoRoom as none:
        raise UsageProblem(str(none)) from None


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
        _wait(cluster, set(plan), quiet=json)


def _wait(cluster: Cluster, partitions: set[TopicPartition], *, quiet: bool) -> None:
    admin, left = ReplicaAdmin(cluster), len(partitions)
    while moving := admin.reassignments().keys() & partitions:
        if not quiet and len(moving) < left:
            print(f"{len(partitions) - len(moving)} of {len(partitions)} moved", flush=True)
        left = len(moving)
        time.sleep(_LOOK_SECONDS)
    if not quiet:
        print(f"{len(partitions)} of {len(partitions)} moved")


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
    ending = sorted(each for each in admin.reassignments() if chosen is None or each in chosen)
    if ending and not dry_run:
        try:
            admin.reassign(dict.fromkeys(ending))
        except KafkaError as error:
            if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:  # it was done before we came
                raise
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
