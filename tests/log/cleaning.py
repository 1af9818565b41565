"""What the tests of the cleaner share: records with keys, logs that are cleaned here and now, and what is left."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from headrace.config import TopicConfig
from headrace.log.appending import AppendResult
from headrace.log.cleaning.cleaner import Cleaner
from headrace.log.cleaning.cleaner_run import CleanerSettings
from headrace.log.cleaning.compaction import CleaningWorker, Compaction
from headrace.log.files import Files
from headrace.log.flusher import inline
from headrace.log.partition_log import PartitionLog
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import BatchHeader, Record, encode_batch, iter_headers
from headrace.types import TopicPartition
from tests.log.support import NOW_MS, append_batch, config, purge
from tests.records.decoding import decode_any

DAY_MS = 86_400_000
Pair = tuple[str | None, str | None]


def compacted(**settings: object) -> TopicConfig:
    """Settings of a compacted topic, in which deleted files go at once."""
    return config(**{"cleanup_policy": ("compact",), "file_delete_delay_ms": 0, "min_cleanable_dirty_ratio": 0.0,
                     **settings})  # fmt: skip


class Left(NamedTuple):
    """A record that is still there."""

    offset: int
    key: str | None
    value: str | None


def keyed(
    *pairs: Pair,
    now_ms: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of keys and values."""
    return encode_batch(
        [Record(0, now_ms, _bytes(key), _bytes(value)) for key, value in pairs],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def put(log: PartitionLog, *pairs: Pair, **more: object) -> AppendResult:
    """Append one batch."""
    result = append_batch(log, keyed(*pairs, **more))  # type: ignore[arg-type]
    log.restore_high_watermark(log.log_end_offset)
    return result


def put_each(log: PartitionLog, pairs: Iterable[Pair], **more: object) -> None:
    """Append each in a batch of its own."""
    for pair in pairs:
        put(log, pair, **more)


def cleaner_of(
    *logs: PartitionLog, worker: CleaningWorker | None = None, checkpoints: list[Path] | None = None, **settings: Any
) -> Cleaner:
    """A cleaner that does everything within `tick`."""
    by_partition = {log.partition: log for log in logs}
    written = [] if checkpoints is None else checkpoints
    return Cleaner(
        logs[0].files,
        by_partition,
        CleanerSettings(**settings),
        background=inline,
        write_checkpoint=lambda directory: lambda: written.append(directory),
        make_worker=lambda: worker or Compaction(logs[0].files),
    )


def clean(log: PartitionLog, now_ms: int = NOW_MS, roll: bool = True, **settings: Any) -> Cleaner:
    """Roll, and clean whatever is dirty; removed files are gone afterwards."""
    if roll:
        log.roll(now_ms)
    log.restore_high_watermark(log.log_end_offset)
    cleaner = cleaner_of(log, **settings)
    cleaner.tick(now_ms)
    purge(log, now_ms)
    return cleaner


def batches(log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of the log's files, in order."""
    found = []
    for segment in log.segments:
        data = segment.file.read(segment.size, 0)
        found += [(header, data[at : at + header.size_bytes]) for at, header in iter_headers(data)]
    return found


def left(log: PartitionLog) -> list[Left]:
    """Every record that is not a marker, of any format."""
    return [
        Left(record.offset, _text(record.key), _text(record.value))
        for segment in log.segments
        for record in decode_any(segment.file.read(segment.size, 0))
    ]


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()


def newest(pairs: Iterable[tuple[int, str | None, str | None]]) -> dict[str, tuple[int, str]]:
    """What a table made of records holds: key -> (offset, value), without tombstones."""
    table: dict[str, tuple[int, str]] = {}
    for offset, key, value in pairs:
        assert key is not None
        if value is None:
            table.pop(key, None)
        else:
            table[key] = (offset, value)
    return table


def open_compacted(directory: Path, files: Files, **settings: object) -> PartitionLog:
    """A compacted log in a directory."""
    return PartitionLog.open(directory, TopicPartition("flights", 0), compacted(**settings), files=files, now_ms=NOW_MS)
