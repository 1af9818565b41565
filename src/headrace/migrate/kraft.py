"""Finds and reads the metadata of a KRaft cluster, as a tree of znodes with notes for the operator."""

from pathlib import Path

from headrace.log.directories import meta_properties
from headrace.log.directories.meta_properties import CorruptMetaProperties
from headrace.log.files import Files
from headrace.migrate.directories import Sources
from headrace.migrate.metadata_image import MetadataImage, tree_of
from headrace.migrate.metadata_log import DIRECTORY, read_metadata_log
from headrace.migrate.nodes import Nodes
from headrace.migrate.refusal import MigrationRefused

WITHOUT_METADATA = (
    "without metadata every partition is a stray, which Apache Kafka renames and deletes, so the "
    "directories alone are not enough"
)


def find(files: Files, sources: Sources, given: Path | None) -> Path:
    """`__cluster_metadata-0`, which is in `given` (or is that), or in one of the sources. Raises MigrationRefused."""
    if given is None:
        found = next((source.metadata for source in sources.each if source.metadata is not None), None)
        if found is None:
            raise MigrationRefused(
                f"no {DIRECTORY} in the directories: {WITHOUT_METADATA}. Name the ZooKeeper that the broker used "
                "(--zookeeper HOST:PORT/chroot), a tree saved from it (--tree FILE), or KRaft's metadata.log.dir "
                "(--metadata DIR)"
            )
        return found
    directory = given if given.name == DIRECTORY else given / DIRECTORY
    if not files.is_directory(directory):
        raise MigrationRefused(f"{given} has no {DIRECTORY}")
    _must_be_of(sources.identity.cluster_id, files, directory.parent)
    return directory


def read(files: Files, sources: Sources, directory: Path, notes: list[str]) -> tuple[str, Nodes, list[str]]:
    """(where it is from, the tree, what is left behind). Raises MigrationRefused."""
    log = read_metadata_log(files, directory)
    image = MetadataImage().apply(log.records)
    if image.is_migrating_zookeeper:
        raise MigrationRefused(
            "the cluster is migrating from ZooKeeper to KRaft: finish the migration, or roll it back"
        )
    if log.ignored_bytes:
        notes.append(f"{directory}: the last {log.ignored_bytes} bytes are no whole batch, as a crash leaves them")
    if log.voters is not None and log.voters > 1:
        notes.append(
            f"the metadata has {log.voters} controllers: what the last of them wrote may not be in this copy of it; "
            "take the copy of the controller that led"
        )
    identity = sources.identity
    nodes = tree_of(image, log, identity.cluster_id, identity.broker_id)
    return f"{directory} (up to offset {log.end_offset})", nodes, image.left_behind()


def _must_be_of(cluster_id: str, files: Files, directory: Path) -> None:
    try:
        identity = meta_properties.read(files, directory)
    except CorruptMetaProperties as error:
        raise MigrationRefused(str(error)) from error
    if identity is not None and identity.cluster_id != cluster_id:
        raise MigrationRefused(
            f"{directory} belongs to cluster {identity.cluster_id}, but the other directories to {cluster_id}"
        )
