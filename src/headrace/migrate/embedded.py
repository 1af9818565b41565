"""Reads and writes metadata in a headrace data directory, where it is one SQLite file.

It is read from a copy of the file and of its write-ahead log: opening it would change it.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.errors import KafkaError
from headrace.log.files import Files
from headrace.metastore.database import FILE_NAME, StoreInUse, StoreUnreadable
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import Create, Op, Set
from headrace.migrate.nodes import Nodes
from headrace.migrate.refusal import MigrationRefused

OPS_PER_WRITE = 2000


def has_tree(files: Files, directory: Path) -> bool:
    """Whether a data directory is headrace's."""
    return files.exists(directory / FILE_NAME)


def read_embedded(files: Files, directory: Path) -> Nodes:
    """The persistent nodes of a data directory's tree. Raises MigrationRefused, OSError."""
    with TemporaryDirectory(prefix="headrace-migrate-") as scratch:
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            if files.exists(directory / name):
                files.replace(Path(scratch) / name, files.read(directory / name), sync=False)
        try:
            return asyncio.run(_read(Path(scratch)))
        except (StoreInUse, StoreUnreadable, KafkaError) as error:
            raise MigrationRefused(f"the cluster's metadata in {directory} cannot be read: {error}") from error


def write_embedded(directory: Path, nodes: Mapping[str, bytes]) -> None:
    """Create a data directory's tree; parents precede their children in `nodes`. Raises OSError."""
    asyncio.run(_write(directory, nodes))


async def _read(directory: Path) -> Nodes:
    tree = await EmbeddedStore.open(directory)
    try:
        nodes: Nodes = {}
        level = ["/"]
        while level:
            below = []
            for path in level:
                below += [f"{path.rstrip('/')}/{name}" for name in await tree.children(path)]
            for path, node in zip(below, await tree.get_many(below), strict=True):
                if node is not None and not node.ephemeral_owner:
                    nodes[path] = node.data
            level = below
        return nodes
    finally:
        await tree.close()


async def _write(directory: Path, nodes: Mapping[str, bytes]) -> None:
    tree = await EmbeddedStore.open(directory)
    try:
        ops: list[Op] = [Create(path, data) if path != "/" else Set(path, data) for path, data in nodes.items()]
        for start in range(0, len(ops), OPS_PER_WRITE):
            await tree.multi(ops[start : start + OPS_PER_WRITE])
    finally:
        await tree.close()
