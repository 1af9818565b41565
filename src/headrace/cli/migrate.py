"""`headrace migrate`: copies a stopped broker's data from Apache Kafka to headrace, or back.

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

app = typer.Typer(no_args_is_help=True)

Sources = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="The log.dirs of the broker. The broker must be stopped.")
]
Targets = Annotated[
    list[Path],
    typer.Option(
        "--to",
        metavar="DIR",
        help="New or empty target directory: one for all sources, or one for each, in the same order.",
    ),
]
ZookeeperConfig = Annotated[
    Path | None,
    typer.Option(
        "--zookeeper-config",
        metavar="FILE",
        help="A properties file with the settings of the ZooKeeper client: zookeeper.ssl.*, zookeeper.set.acl, "
        "headrace.zookeeper.digest. Other settings in it are ignored.",
    ),
]
Zookeeper = Annotated[
    str, typer.Option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="The address of a running ZooKeeper.")
]


@app.command("from-kafka")
def from_kafka(
    sources: Sources,
    to: Targets,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[/CHROOT]",
            help="Read the metadata from the ZooKeeper of the cluster, which must be running.",
        ),
    ] = None,
    tree: Annotated[
        Path | None,
        typer.Option(
            "--tree",
            metavar="FILE",
            help="Read the metadata from a file written by save-tree, instead of from ZooKeeper.",
        ),
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option("--metadata", metavar="DIR", help="The metadata.log.dir of KRaft, if it is not one of log.dirs."),
    ] = None,
    zookeeper_config: ZookeeperConfig = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> int:
    """Copy the data and metadata of a stopped Apache Kafka broker into a data directory of headrace."""
    if sum(each is not None for each in (zookeeper, tree, metadata)) > 1:
        raise UsageProblem("--zookeeper, --tree and --metadata exclude each other: give one of them")
    from headrace.cli import migrating  # the other commands need nothing of it

    access = None if zookeeper is None else migrating.StoreAccess(zookeeper, zookeeper_config)
    return migrating.from_kafka(sources, to, access, tree, metadata, dry_run, json)


@app.command("to-kafka")
def to_kafka(
    sources: Sources,
    to: Targets,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[/CHROOT]",
            help="Write the metadata to this ZooKeeper; the chroot must be empty.",
        ),
    ] = None,
    tree: Annotated[
        Path | None, typer.Option("--tree", metavar="FILE", help="Write the metadata to this file, for load-tree.")
    ] = None,
    zookeeper_config: ZookeeperConfig = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> int:
    """Copy the data and metadata of a stopped headrace broker for Apache Kafka 3.9 in ZooKeeper mode."""
    if zookeeper is None and tree is None:
        raise UsageProblem(
            "give --zookeeper, --tree or both: without metadata Apache Kafka treats every partition as stray "
            "and deletes it"
        )
    if tree is not None and tree.exists():
        raise UsageProblem(f"--tree: {tree} already exists")
    from headrace.cli import migrating

    access = None if zookeeper is None else migrating.StoreAccess(zookeeper, zookeeper_config)
    return migrating.to_kafka(sources, to, access, tree, dry_run, json)


@app.command("save-tree")
def save_tree(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    zookeeper: Zookeeper,
    zookeeper_config: ZookeeperConfig = None,
) -> int:
    """Save the metadata of a Kafka cluster from ZooKeeper to a file."""
    if file.exists():
        raise UsageProblem(f"{file} already exists")
    from headrace.cli import migrating

    return migrating.save_tree(file, migrating.StoreAccess(zookeeper, zookeeper_config))


@app.command("load-tree")
def load_tree(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    zookeeper: Zookeeper,
    zookeeper_config: ZookeeperConfig = None,
) -> int:
    """Load metadata saved by save-tree into an empty chroot of a running ZooKeeper."""
    from headrace.cli import migrating

    return migrating.load_tree(file, migrating.StoreAccess(zookeeper, zookeeper_config))
