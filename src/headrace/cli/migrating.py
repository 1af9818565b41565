"""The implementation of `headrace migrate`: starts the migration and prints its progress and result."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace.cli.output import complain, print_json
from headrace.log.files import LocalFiles
from headrace.migrate.access import StoreAccess
from headrace.migrate.from_kafka import from_kafka as move_from_kafka
from headrace.migrate.move import Migration
from headrace.migrate.nodes import Nodes, carried, understood
from headrace.migrate.outcome import MigrationOutcome
from headrace.migrate.refusal import MigrationRefused
from headrace.migrate.to_kafka import to_kafka as move_to_kafka
from headrace.migrate.tree_file import read_tree, write_tree
from headrace.migrate.zookeeper import check_empty, read_zookeeper, write_zookeeper
from headrace.printable import printable

__all__ = ["StoreAccess", "from_kafka", "load_tree", "save_tree", "to_kafka"]

_FAILED = 1
_PROGRESS_SECONDS = 1.0

T = TypeVar("T")


def from_kafka(
    sources: list[Path],
    targets: list[Path],
    zookeeper: StoreAccess | None,
    tree: Path | None,
    metadata: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Runs the subcommand; returns the exit code."""

    def read() -> tuple[str, Nodes]:
        if zookeeper is not None:
            return f"ZooKeeper {zookeeper.address}", read_zookeeper(zookeeper.ensemble())
        assert tree is not None
        return str(tree), read_tree(LocalFiles(), tree)

    reader = None if zookeeper is None and tree is None else read
    migration = _migration(sources, targets, dry_run)
    return _print_outcome(lambda: move_from_kafka(migration, read_tree=reader, metadata_directory=metadata), as_json)


def to_kafka(
    sources: list[Path],
    targets: list[Path],
    zookeeper: StoreAccess | None,
    tree: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Runs the subcommand; returns the exit code."""

    def check_place() -> None:
        if zookeeper is not None:
            check_empty(zookeeper.ensemble())

    def write(nodes: Nodes) -> str:
        places = []
        if tree is not None:
            write_tree(LocalFiles(), tree, nodes)
            places.append(f"{tree} (headrace migrate load-tree {tree} --zookeeper HOST:PORT/CHROOT)")
        if zookeeper is not None:
            try:
                write_zookeeper(zookeeper.ensemble(), nodes)
            except BaseException:
                if tree is not None:
                    tree.unlink()
                raise
            places.append(f"zookeeper.connect={zookeeper.address}")
        return " and ".join(places)

    migration = _migration(sources, targets, dry_run)
    return _print_outcome(lambda: move_to_kafka(migration, check_place=check_place, write_tree=write), as_json)


def save_tree(file: Path, zookeeper: StoreAccess) -> int:
    """Runs the subcommand; returns the exit code."""

    def work() -> str:
        nodes = read_zookeeper(zookeeper.ensemble())
        cluster = understood(nodes)
        write_tree(LocalFiles(), file, nodes)
        return f"{file}: {len(nodes)} nodes of cluster {cluster.cluster_id}, {len(cluster.topics)} topics"

    return _print_text(work)


def load_tree(file: Path, zookeeper: StoreAccess) -> int:
    """Runs the subcommand; returns the exit code."""

    def work() -> str:
        nodes = carried(read_tree(LocalFiles(), file))
        cluster = understood(nodes)
        write_zookeeper(zookeeper.ensemble(), nodes)
        return f"{zookeeper.address}: {len(nodes)} nodes of cluster {cluster.cluster_id}, {len(cluster.topics)} topics"

    return _print_text(work)


def _migration(sources: list[Path], targets: list[Path], dry_run: bool) -> Migration:
    return Migration(sources, targets, time.time_ns() // 1_000_000, dry_run, _Progress())


class _Progress:
    """Prints a progress line at most once a second."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _PROGRESS_SECONDS

    def __call__(self, done: int, of: int) -> None:
        if sys.stderr.isatty() and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            print(f"{done} of {of} partitions copied", file=sys.stderr)


def _attempt(work: Callable[[], T]) -> T | None:
    """The result of `work`; None if it was refused, after printing each reason on a line."""
    try:
        return work()
    except MigrationRefused as refused:
        for reason in refused.reasons:
            complain(reason)
        return None


def _print_text(work: Callable[[], str]) -> int:
    text = _attempt(work)
    if text is None:
        return _FAILED
    print(printable(text))
    return 0


def _print_outcome(work: Callable[[], MigrationOutcome], as_json: bool) -> int:
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
