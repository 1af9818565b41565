"""Opening every partition of a data directory, at a start.

Source: Kafka's LogManager.
"""

from collections.abc import Callable, Iterator

from headrace.config import TopicConfig
from headrace.errors import KafkaError
from headrace.log.checkpoints import CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from headrace.log.data_directory import DataDirectory, DataDirectoryFailed
from headrace.log.files import Files
from headrace.log.names import DELETE_DIRECTORY, parse_partition
from headrace.log.partition_log import PartitionLog
from headrace.log.partition_metadata import CorruptPartitionMetadata


def open_partitions(
    files: Files, directory: DataDirectory, topic_config: Callable[[str], TopicConfig], now_ms: int
) -> Iterator[PartitionLog]:
    """Every log of a data directory, recovered unless the last stop was clean. Raises DataDirectoryFailed for a
    partition that cannot be opened, and OSError."""
    recovery_points = directory.read_checkpoint(RECOVERY_POINT)
    log_starts = directory.read_checkpoint(LOG_START_OFFSET)
    high_watermarks = directory.read_checkpoint(HIGH_WATERMARK)
    cleaned = directory.read_checkpoint(CLEANER_OFFSET)
    names = files.names(directory.path)
    partitions = {name: parse_partition(name) for name in names}
    was_clean = directory.take_clean_mark()
    for name in names:
        path = directory.path / name
        if name.endswith(DELETE_DIRECTORY):
            files.remove_tree(path)
            continue
        partition = partitions[name]
        if partition is None or not files.is_directory(path):
            continue
        try:
            log = PartitionLog.open(
                path,
                partition,
                topic_config(partition.topic),
                files=files,
                now_ms=now_ms,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=log_starts.get(partition, 0),
                was_clean=was_clean,
            )
        except (CorruptPartitionMetadata, KafkaError, OSError) as error:
            raise DataDirectoryFailed(f"{path} cannot be opened: {error}") from error
        log.update_high_watermark(high_watermarks.get(partition, 0))
        log.cleaned_to = cleaned.get(partition, 0)
        yield log
