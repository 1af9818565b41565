"""`headrace topic move`: replicas from one data directory of their broker to another."""

import time
from typing import Annotated

import typer

from headrace.cli.output import print_json, printable
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.log_dir_moves import move_replicas, replica_places
from headrace.types import BrokerId, TopicPartition

_LOOK_SECONDS = 0.2


def move(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    directory: Annotated[str, typer.Option("--dir", metavar="DIR", help="A data directory of the broker.")],
    only: Annotated[list[int], typer.Option("--partition", "-p", metavar="N", help="Only this one; repeatable.")] = [],  # noqa: B006
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="N", help="Whose replicas; may be left out where there is one.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until everything has moved.")] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Move a topic's replicas to another data directory (one of log.dirs), while they are written to and read.

    Naming the directory where a replica is ends a move that has begun.
    """
    with cluster_of(bootstrap) as cluster:
        number = _broker(cluster, broker)
        places = {key: place for key, place in replica_places(cluster, number).items() if key.topic == name}
        wanted = sorted(key for key in places if not only or key.partition in only)
        missing = set(only) - {key.partition for key in wanted}
        if missing or not wanted:
            part = f"partition {min(missing)} of " if missing else ""
            raise UsageProblem(f"broker {number} has no replica of {part}topic {name} in a directory that works")
        if not dry_run:
            move_replicas(cluster, number, directory, wanted)
            if wait:
                _wait(cluster, number, wanted)
    rows = [(key, places[key].directory) for key in wanted]
    if json:
        print_json(
            [
                {
                    "topic": key.topic,
                    "partition": key.partition,
                    "broker": number,
                    "from": source,
                    "to": directory,
                    "dry_run": dry_run,
                }
                for key, source in rows
            ]
        )
        return
    verb = "would move" if dry_run else "moved" if wait else "moving"
    for key, source in rows:
        said = f"{verb} from {printable(source)} to {printable(directory)}"
        print(f"{printable(str(key))}: {'is there already' if source == directory else said}")


def _broker(cluster: Cluster, named: int | None) -> BrokerId:
    brokers = sorted(Admin(cluster).describe_cluster().brokers)
    if named is None:
        if len(brokers) > 1:
            raise UsageProblem(f"there are brokers {', '.join(map(str, brokers))}: say which with --broker")
        return brokers[0]
    if named not in brokers:
        raise UsageProblem(f"there is no broker {named}, only {', '.join(map(str, brokers))}")
    return BrokerId(named)


def _wait(cluster: Cluster, broker: BrokerId, partitions: list[TopicPartition]) -> None:
    """Until none of them is on its way."""
    while any(
        place.moving_to is not None for key, place in replica_places(cluster, broker).items() if key in partitions
    ):
        time.sleep(_LOOK_SECONDS)
