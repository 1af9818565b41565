"""`headrace migrate`: a broker's data from Apache Kafka to headrace and back, by copying; no broker runs meanwhile.

headrace migrate from-kafka /var/kafka-logs --to /var/headrace                            KRaft
headrace migrate from-kafka /var/kafka-logs --to /var/headrace --zookeeper zk1:2181/kafka
headrace migrate to-kafka /var/headrace --to /var/kafka-logs --zookeeper zk1:2181/kafka
headrace migrate save-tree tree.json --zookeeper zk1:2181/kafka
headrace migrate load-tree tree.json --zookeeper zk1:2181/kafka
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from headrace.cli.output import complain, print_json, printable
from headrace.cli.shared import AsJson, DryRun, UsageProblem
from headrace.log.files import LocalFiles
from headrace.migrate.from_kafka import from_kafka as move_from_kafka
from headrace.migrate.move import Migration
from headrace.migrate.nodes import Nodes, carried, understood
from headrace.migrate.outcome import Outcome
from headrace.migrate.refusal import MigrationRefused
from headrace.migrate.to_kafka import to_kafka as move_to_kafka
from headrace.migrate.tree_file import read_tree, write_tree
from headrace.migrate.zookeeper import check_empty, read_zookeeper, write_zookeeper

app = typer.Typer(help="Move a broker's data from Apache Kafka to headrace, or back, by copying.", no_args_is_help=True)

_FAILED = 1
_PROGRESS_SECONDS = 1.0

Sources = Annotated[list[Path], typer.Argument(metavar="DIR...", help="The broker's log.dirs; it must be stopped.")]
Targets = Annotated[
    list[Path],
    typer.Option("--to", metavar="DIR", help="A new or empty directory: one for all, or one for each, in their order."),
]
Zookeeper = Annotated[str, typer.Option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="A live ZooKeeper.")]

T = TypeVar("T")


@app.command("from-kafka")
def from_kafka(
    sources: Sources,
    to: Targets,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="The ZooKeeper that the broker used."),
    ] = None,
    tree: Annotated[
        Path | None, typer.Option("--tree", metavar="FILE", help="Its tree, saved with save-tree, instead.")
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option("--metadata", metavar="DIR", help="KRaft's metadata.log.dir, where that is another directory."),
    ] = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> int:
    """Copy a stopped Apache Kafka broker's data, with its metadata, into a data directory of headrace."""
    if sum(each is not None for each in (zookeeper, tree, metadata)) > 1:
        raise UsageProblem("name one of --zookeeper, --tree and --metadata")
    reader: Callable[[], tuple[str, Nodes]] | None = None
    if zookeeper is not None:
        address = zookeeper
        reader = lambda: (f"ZooKeeper {address}", read_zookeeper(address))  # noqa: E731
    elif tree is not None:
        file = tree
        reader = lambda: (str(file), read_tree(LocalFiles(), file))  # noqa: E731
    migration = _migration(sources, to, dry_run)
    return _tell(lambda: move_from_kafka(migration, read_tree=reader, metadata_directory=metadata), json)


@app.command("to-kafka")
def to_kafka(
    sources: Sources,
    to: Targets,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="Where to put the tree: an empty chroot."),
    ] = None,
    tree: Annotated[
        Path | None, typer.Option("--tree", metavar="FILE", help="Where to write the tree, for load-tree.")
    ] = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> int:
    """Copy a stopped headrace broker's data, with its metadata, for Apache Kafka 3.9 with ZooKeeper."""
    if zookeeper is None and tree is None:
        raise UsageProblem(
            "name --zookeeper, --tree or both: without its metadata Apache Kafka would take every partition for a "
            "stray, and delete it"
        )
    if tree is not None and tree.exists():
        raise UsageProblem(f"--tree: {tree} is there already")

    def check_place() -> None:
        if zookeeper is not None:
            check_empty(zookeeper)

    def write(nodes: Nodes) -> str:
        places = []
        if tree is not None:
            write_tree(LocalFiles(), tree, nodes)
            places.append(f"{tree} (headrace migrate load-tree {tree} --zookeeper HOST:PORT/CHROOT)")
        if zookeeper is not None:
            try:
                write_zookeeper(zookeeper, nodes)
            except BaseException:
                if tree is not None:
                    tree.unlink()
                raise
            places.append(f"zookeeper.connect={zookeeper}")
        return " and ".join(places)

    migration = _migration(sources, to, dry_run)
    return _tell(lambda: move_to_kafka(migration, check_place=check_place, write_tree=write), json)


@app.command("save-tree")
def save_tree(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    zookeeper: Zookeeper,
) -> int:
    """Save what ZooKeeper holds of a Kafka cluster to a file."""
    if file.exists():
        raise UsageProblem(f"{file} is there already")

    def work() -> str:
        nodes = read_zookeeper(zookeeper)
        cluster = understood(nodes)
        write_tree(LocalFiles(), file, nodes)
        return f"{file}: {len(nodes)} nodes of cluster {cluster.cluster_id}, {len(cluster.topics)} topics"

    return _say(work)


@app.command("load-tree")
def load_tree(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    zookeeper: Zookeeper,
) -> int:
    """Put a saved tree into an empty chroot of a live ZooKeeper."""

    def work() -> str:
        nodes = carried(read_tree(LocalFiles(), file))
        cluster = understood(nodes)
        write_zookeeper(zookeeper, nodes)
        return f"{zookeeper}: {len(nodes)} nodes of cluster {cluster.cluster_id}, {len(cluster.topics)} topics"

    return _say(work)


def _migration(sources: list[Path], targets: list[Path], dry_run: bool) -> Migration:
    return Migration(sources, targets, time.time_ns() // 1_000_000, dry_run, _Progress())


class _Progress:
    """A line a second, for someone who watches."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def __call__(self, done: int, of: int) -> None:
        if sys.stderr.isatty() and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            print(f"{done} of {of} partitions copied", file=sys.stderr)


def _attempt(work: Callable[[], T]) -> T | None:
    """What `work` gives; None when it was refused, and said so, one reason a line."""
    try:
        return work()
    except MigrationRefused as refused:
        for reason in refused.reasons:
            complain(reason)
        return None


def _say(work: Callable[[], str]) -> int:
    said = _attempt(work)
    if said is None:
        return _FAILED
    print(printable(said))
    return 0


def _tell(work: Callable[[], Outcome], as_json: bool) -> int:
    outcome = _attempt(work)
    if outcome is None:
        return _FAILED
    if as_json:
        print_json(outcome.as_json())
        return 0
    verb = "would copy" if outcome.is_dry_run else "copied"
    stop = "clean" if outcome.was_clean else "unclean"
    lines = [
        f"{outcome.direction}: {verb} {outcome.topics} topics, {len(outcome.partitions)} partitions, "
        f"{outcome.size_bytes} bytes, after {'a' if outcome.was_clean else 'an'} {stop} stop",
        f"cluster {outcome.cluster_id}, broker {outcome.broker_id}, metadata from {outcome.metadata_from}",
        *(f"{source} -> {target}" for source, target in outcome.directories),
        *(f"not carried over: {each}" for each in outcome.left_behind),
        *(f"note: {each}" for each in outcome.notes),
        *(f"next: {each}" for each in outcome.next_steps),
    ]
    for line in lines:
        print(printable(line))
    return 0
