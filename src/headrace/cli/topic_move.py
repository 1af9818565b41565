"""`headrace topic move`: moves replicas between the data directories of one broker."""

import time
from typing import Annotated

import typer

from headrace.cli.output import print_json
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from headrace.client.operations.log_dir_moves import move_replicas, replica_places
from headrace.printable import printable
from headrace.types import BrokerId, TopicPartition

_LOOK_SECONDS = 0.2


def move(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    directory: Annotated[str, typer.Option("--dir", metavar="DIR", help="The target: one of the broker's log.dirs.")],
    only: Annotated[
        list[int],
        typer.Option(
            "--partition", "-p", metavar="N", help="Only this partition; repeatable. Without it, all partitions."
        ),
    ] = [],  # noqa: B006
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker", metavar="N", help="The broker id whose replicas move; optional if the cluster has one broker."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Wait until all replicas have moved, or return as soon as the move has started.")
    ] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Move the replicas of a topic to another data directory of their broker.

    Producers and consumers are served during the move. To cancel a move, name the replica's current directory.
    """
    with cluster_of(bootstrap) as cluster:
        number = _broker(cluster, broker)
        places = {key: place for key, place in replica_places(cluster, number).items() if key.topic == name}
        wanted = sorted(key for key in places if not only or key.partition in only)
        missing = set(only) - {key.partition for key in wanted}
        if missing or not wanted:
            part = f"partition {min(missing)} of " if missing else ""
            raise UsageProblem(f"broker {number} has no replica of {part}topic {name} in an online data directory")
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
            raise UsageProblem(f"the cluster has brokers {', '.join(map(str, brokers))}: name one with --broker")
        return brokers[0]
    if named not in brokers:
        raise UsageProblem(f"broker {named} does not exist; the cluster has brokers {', '.join(map(str, brokers))}")
    return BrokerId(named)


def _wait(cluster: Cluster, broker: BrokerId, partitions: list[TopicPartition]) -> None:
    """Returns when no replica is moving."""
    while any(
        place.moving_to is not None for key, place in replica_places(cluster, broker).items() if key in partitions
    ):
        time.sleep(_LOOK_SECONDS)
