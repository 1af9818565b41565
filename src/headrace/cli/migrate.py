"""`headrace migrate`: a broker's data from Apache Kafka to headrace and back, by copying; no broker runs meanwhile.

headrace migrate from-kafka /var/kafka-logs --to /var/headrace                            KRaft
headrace migrate from-kafka /var/kafka-logs --to /var/headrace --zookeeper zk1:2181/kafka
headrace migrate to-kafka /var/headrace --to /var/kafka-logs --zookeeper zk1:2181/kafka
headrace migrate save-tree tree.json --zookeeper zk1:2181/kafka
headrace migrate load-tree tree.json --zookeeper zk1:2181/kafka
"""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.shared import AsJson, DryRun, UsageProblem

app = typer.Typer(help="Move a broker's data from Apache Kafka to headrace, or back, by copying.", no_args_is_help=True)

Sources = Annotated[list[Path], typer.Argument(metavar="DIR...", help="The broker's log.dirs; it must be stopped.")]
Targets = Annotated[
    list[Path],
    typer.Option("--to", metavar="DIR", help="A new or empty directory: one for all, or one for each, in their order."),
]
ZookeeperConfig = Annotated[
    Path | None,
    typer.Option(
        "--zookeeper-config",
        metavar="FILE",
        help="A properties file that says how to speak to it: zookeeper.ssl.*, zookeeper.set.acl, "
        "headrace.zookeeper.digest; others in it are passed over.",
    ),
]
Zookeeper = Annotated[str, typer.Option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="A live ZooKeeper.")]


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
    zookeeper_config: ZookeeperConfig = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> int:
    """Copy a stopped Apache Kafka broker's data, with its metadata, into a data directory of headrace."""
    if sum(each is not None for each in (zookeeper, tree, metadata)) > 1:
        raise UsageProblem("name one of --zookeeper, --tree and --metadata")
    from headrace.cli import migrating  # the other commands need nothing of it

    access = None if zookeeper is None else migrating.Access(zookeeper, zookeeper_config)
    return migrating.from_kafka(sources, to, access, tree, metadata, dry_run, json)


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
    zookeeper_config: ZookeeperConfig = None,
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
    from headrace.cli import migrating

    access = None if zookeeper is None else migrating.Access(zookeeper, zookeeper_config)
    return migrating.to_kafka(sources, to, access, tree, dry_run, json)


@app.command("save-tree")
def save_tree(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    zookeeper: Zookeeper,
    zookeeper_config: ZookeeperConfig = None,
) -> int:
    """Save what ZooKeeper holds of a Kafka cluster to a file."""
    if file.exists():
        raise UsageProblem(f"{file} is there already")
    from headrace.cli import migrating

    return migrating.save_tree(file, migrating.Access(zookeeper, zookeeper_config))


@app.command("load-tree")
def load_tree(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    zookeeper: Zookeeper,
    zookeeper_config: ZookeeperConfig = None,
) -> int:
    """Put a saved tree into an empty chroot of a live ZooKeeper."""
    from headrace.cli import migrating

    return migrating.load_tree(file, migrating.Access(zookeeper, zookeeper_config))
