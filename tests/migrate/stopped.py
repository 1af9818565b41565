"""Data directories as a stopped broker leaves them, made without one: Kafka's with KRaft, and ours."""

from pathlib import Path

from headrace.log.directories import meta_properties
from headrace.log.directories.meta_properties import MetaProperties
from headrace.log.files import LocalFiles
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.migrate import metadata_log
from headrace.migrate.embedded import write_embedded
from headrace.migrate.metadata_image import MetadataImage, tree_of
from headrace.migrate.metadata_log import MetadataLog
from headrace.migrate.nodes import Nodes, carried
from headrace.protocol.codec.message import Message
from headrace.types import TopicPartition
from tests.log.support import NOW_MS, append, config
from tests.migrate.quorum import TOPIC_ID, batch, partition, read, setting, snapshot, topic, write

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
FLIGHTS = TopicPartition("flights", 0)
MESSAGES: list[Message] = [topic(), partition(), partition(1), setting("segment.bytes", "2000")]
SNAPSHOT = "00000000000000000004-0000000001.checkpoint"


def logs(path: Path, *partitions: TopicPartition, topic_id: bytes = TOPIC_ID, is_clean: bool = True) -> None:
    """Partitions with fifty records each."""
    manager = LogManager([path], broker_id=1, topic_config=lambda _: config(segment_bytes=2000))
    manager.directories.claim(CLUSTER)
    manager.load(NOW_MS)
    for each in partitions or (FLIGHTS, TopicPartition("flights", 1)):
        fill(manager.create(each, topic_id, NOW_MS))
    if is_clean:
        manager.close(NOW_MS)
    else:
        manager.checkpoint()
        manager.release()


def fill(log: PartitionLog) -> None:
    for number in range(50):
        append(log, b"value %d" % number * 20, producer_id=7, sequence=number, timestamps_ms=[NOW_MS + number])


def kafkas(path: Path, *messages: Message, is_clean: bool = True) -> Path:
    """A directory of Kafka with KRaft."""
    logs(path, is_clean=is_clean)
    identity = MetaProperties(1, CLUSTER, "0sjTqGE0QfmGgaQnlg3lPg", version=1)
    meta_properties.write(LocalFiles(), path, identity)
    remember(path, *(messages or MESSAGES))
    return path


def remember(path: Path, *messages: Message) -> None:
    """Have the metadata of a directory of Kafka be these records, half of them in a snapshot."""
    files = {SNAPSHOT: snapshot(*messages[:2]), "4": batch(4, *messages[2:])}
    write(path / metadata_log.DIRECTORY, files)


def ours(path: Path, *messages: Message, is_clean: bool = True) -> Path:
    """A data directory of headrace."""
    logs(path, is_clean=is_clean)
    write_embedded(path, tree(*messages))
    return path


def tree(*messages: Message) -> Nodes:
    """The tree of a cluster with these records."""
    scratch = [batch(0, *(messages or MESSAGES))]
    return carried(tree_of(MetadataImage().apply(_records(scratch[0])), MetadataLog([], 1, 0, 0, None), CLUSTER, 1))


def _records(data: bytes) -> list[metadata_log.MetadataRecord]:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as directory:
        return read(write(Path(directory), {"0": data})).records
