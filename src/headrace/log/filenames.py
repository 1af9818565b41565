"""The names of files and directories in a data directory.

    flights-0/00000000000000000000.log             a segment, named by its base offset in 20 digits
    flights-0/00000000000000000000.index           its offset index
    flights-0/00000000000000000000.timeindex       its time index
    flights-0/00000000000000000000.txnindex        its aborted transactions, if there are any
    flights-0/00000000000000191427.snapshot        the producers at an offset
    flights-0/kafka07-positions                    the positions of Kafka 0.7: see `positions.position_file`
    flights-0/*.deleted                            a file that will be removed
    flights-0.5f…32 hex digits…c1-delete           a partition that will be removed

Source: Kafka's LogFileUtils, LocalLog. (The 0.7 line had `.kafka` files: see `segments_07`.)
"""

from headrace.types import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
DELETE_DIRECTORY = "-delete"
NAME_CHARS_MAX = 255


def offset_file(offset: int, suffix: str) -> str:
    """`offset_file(42, ".log")` is 00000000000000000042.log."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int:
    """The offset at the beginning of a file's name. Raises ValueError when there is none."""
    return int(name.partition(".")[0])


def is_segment_file(name: str, suffix: str) -> bool:
    """Whether `name` is the name of a segment's file with this suffix."""
    return name.endswith(suffix) and name[: -len(suffix)].isdigit()


def parse_partition(name: str) -> TopicPartition | None:
    """The partition with this directory name, or None for any other name."""
    topic, dash, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition)) if topic and dash and partition.isdigit() else None


def delete_name(partition: TopicPartition, unique: str) -> str:
    """The directory name of a deleted partition. The topic is cut to keep the name within 255 characters."""
    suffix = f"-{partition.partition}.{unique}{DELETE_DIRECTORY}"
    return partition.topic[: NAME_CHARS_MAX - len(suffix)] + suffix
