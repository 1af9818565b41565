"""`headrace group list|describe|reset|forget|delete`."""

import time
from typing import Annotated

import typer

from headrace.cli.group_offsets import forget, reset
from headrace.cli.output import Json, counted, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, cluster_of
from headrace.client.consumer.fetching import READ_COMMITTED, READ_UNCOMMITTED
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.operations.group_kinds import GroupDescription
from headrace.client.operations.lag import first_record_ms
from headrace.errors import ErrorCode, KafkaError
from headrace.printable import printable
from headrace.types import Offset, TopicPartition

app = typer.Typer(no_args_is_help=True)
app.command("reset")(reset)
app.command("forget")(forget)

Name = Annotated[str, typer.Argument(metavar="GROUP")]


@app.command("list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """List the groups of every kind: classic, consumer, share and streams groups."""
    with cluster_of(bootstrap) as cluster:
        groups = GroupAdmin(cluster).list_groups()
    if json:
        print_json(
            [{"group": one.group_id, "state": one.state, "type": one.protocol_type, "kind": one.kind} for one in groups]
        )
    else:
        print_table(["GROUP", "STATE", "TYPE", "KIND"], groups)


@app.command()
def describe(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    committed: Annotated[
        bool, typer.Option("--read-committed", help="Count up to the first open transaction of each partition.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show a group's members, its offsets, and how far behind they are: in records, up to the end of the partition,
    and in seconds, since the first record that is not consumed was produced."""
    with cluster_of(bootstrap) as cluster:
        groups = GroupAdmin(cluster)
        kind = groups.kind_of(name)
        group, offsets = groups.describe_group(name, kind), groups.offsets(name, kind)
        if group.state == "Dead" and not offsets:
            raise KafkaError(f"group {name} does not exist", ErrorCode.GROUP_ID_NOT_FOUND)
        rows = _progress(cluster, group, offsets, READ_COMMITTED if committed else READ_UNCOMMITTED)
    if json:
        members: list[Json] = [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "partitions": [str(partition) for partition in member.assignment],
            }
            for member in group.members
        ]
        about: dict[str, Json] = {"group": name, "kind": kind, "state": group.state, "assignor": group.assignor}
        print_json({**about, "members": members, "offsets": rows})
        return
    print(f"group {printable(name)}  {kind}  {group.state}  {printable(group.assignor)}  {len(group.members)} members")
    keys = ["topic", "partition", "offset", "end_offset", "lag", "lag_seconds", "member"]
    table = [["-" if row[key] is None else row[key] for key in keys] for row in rows]
    print_table([key.replace("_", " ").upper() for key in keys], table)


@app.command()
def delete(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, dry_run: DryRun = False, json: AsJson = False) -> None:
    """Delete a group and its offsets. The group must have no members."""
    with cluster_of(bootstrap) as cluster:
        groups = GroupAdmin(cluster)
        offsets = groups.offsets(name, groups.kind_of(name))
        if not dry_run:
            groups.delete_group(name)
    if json:
        print_json({"group": name, "offsets": len(offsets), "dry_run": dry_run})
    else:
        print(
            f"{'would delete' if dry_run else 'deleted'} group {printable(name)} with {counted(len(offsets), 'offset')}"
        )


def _progress(
    cluster: Cluster, group: GroupDescription, offsets: dict[TopicPartition, Offset], isolation_level: int
) -> list[dict[str, Json]]:
    """A row for each partition that the group has committed an offset for, or has assigned."""
    owners = {partition: member.member_id for member in group.members for partition in member.assignment}
    partitions = sorted({*offsets, *owners})
    marks = _watermarks(cluster, partitions, isolation_level)
    now_ms = time.time_ns() // 1_000_000
    rows: list[dict[str, Json]] = []
    for partition in partitions:
        offset, (start, end) = offsets.get(partition), marks.get(partition, (None, None))
        lag_seconds: float | None = None
        if offset is not None and start is not None and end is not None:
            waits_since_ms = first_record_ms(cluster, partition, max(offset, start), end)
            lag_seconds = 0.0 if waits_since_ms is None else max(0, now_ms - waits_since_ms) / 1000
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "lag_seconds": lag_seconds,
                "member": owners.get(partition),
            }
        )
    return rows


def _watermarks(
    cluster: Cluster, partitions: list[TopicPartition], isolation_level: int
) -> dict[TopicPartition, tuple[Offset, Offset]]:
    """Start and end of the partitions whose topic still exists."""
    existing = {topic.name for topic in Admin(cluster).list_topics(internal=True)}
    return Admin(cluster).watermarks(
        (partition for partition in partitions if partition.topic in existing), isolation_level=isolation_level
    )
