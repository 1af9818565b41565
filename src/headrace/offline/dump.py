"""Dumps the files of a data directory as rows, which can be printed or converted to JSON.

    00…0.log          batch: offsets, epoch, producer, codec, times, size, whether the CRC is correct; record (if deep)
                      room: zeros after the last batch that were allocated in advance (`preallocate`)
                      message, wrapper: the counterparts in formats 0 and 1, which have fewer fields
    00…0.kafka        message, of Kafka 0.7 (see `dump_07`)
    00…0.index        offset_entry: offset, position (if deep, whether the batch there ends with that offset)
    00…0.timeindex    time_entry: timestamp_ms, offset
    00…0.txnindex     aborted_transaction
    00…0.snapshot     producer
    *-checkpoint, leader-epoch-checkpoint, partition.metadata, meta.properties

It changes nothing, and reads files of headrace and of Apache Kafka. Every row has `kind` and `file`. Damage becomes a
row of kind `damage`, with its position. Source: Kafka's DumpLogSegments.
"""

from collections.abc import Callable, Iterator
from errno import ENOENT
from pathlib import Path

from headrace.errors import KafkaError
from headrace.log.directories import checkpoints, meta_properties
from headrace.log.directories.partition_metadata import FILE_NAME as PARTITION_METADATA
from headrace.log.directories.partition_metadata import CorruptPartitionMetadata, format_topic_id, read_topic_id
from headrace.log.filenames import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, offset_file, offset_of
from headrace.log.files import Files, LocalFiles, LogFile
from headrace.log.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from headrace.log.segment import txn_index
from headrace.log.segment.batch_scan import records_in
from headrace.log.segment.index_file import CorruptIndex, read_used
from headrace.log.segment.offset_index import OffsetIndex
from headrace.log.segment.preallocation import filled_to
from headrace.log.segment.time_index import TimeIndex
from headrace.offline import segments_07
from headrace.offline.dump_07 import Row, dump_segment_07
from headrace.records.any_format import any_crc_is_valid, read_any_header
from headrace.records.format2.control import read_marker
from headrace.records.format2.header import HEADER_BYTES, MAGIC, BatchHeader


def dump(path: Path, *, deep: bool = False, files: Files | None = None) -> Iterator[Row]:
    """The rows of a file, or of every known file in a directory and below it.

    `deep` lists records too, and compares an offset index with its segment. Raises OSError, and ValueError for a file
    with an unknown name.
    """
    files = files or LocalFiles()
    if files.is_directory(path):
        for name in files.names(path):
            child = path / name
            if files.is_directory(child) or reader_for(name) is not None:
                yield from dump(child, deep=deep, files=files)
        return
    if not files.exists(path):
        raise FileNotFoundError(ENOENT, "no such file or directory", str(path))
    reader = reader_for(path.name)
    if reader is None:
        raise ValueError(
            f"{path} is not a file of a data directory: name a segment, an index, a snapshot or a checkpoint"
        )
    for row in reader(files, path, deep):
        yield {"kind": row.pop("kind"), "file": str(path), **row}


Reader = Callable[[Files, Path, bool], Iterator[Row]]


def reader_for(name: str) -> Reader | None:
    """The reader for a file of this name; None for an unknown name."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    digits, dot, suffix = name.partition(".")
    return _BY_SUFFIX.get(dot + suffix) if digits.isdigit() else None


def _damage(position: int, reason: str, size: int) -> Row:
    return {"kind": "damage", "position": position, "bytes_behind": size - position, "reason": reason}


def _dump_log(files: Files, path: Path, deep: bool) -> Iterator[Row]:
    file = files.open_readonly(path)
    filled = filled_to(file, file.size())
    size = file.size()
    position = 0
    while position < size:
        if position >= filled:
            yield {"kind": "room", "position": position, "bytes_behind": size - position}
            return
        try:
            header = read_any_header(file.read(HEADER_BYTES, position))
        except KafkaError as error:
            yield _damage(position, error.message, size)
            return
        if header.size_bytes > size - position:
            yield _damage(position, f"the batch of {header.size_bytes} bytes is cut off by the end of the file", size)
            return
        batch = file.read(header.size_bytes, position)
        is_valid = any_crc_is_valid(batch, 0, header)
        row = _batch_row if header.magic == MAGIC else _message_row
        yield row(position, header, is_valid)
        if deep and is_valid:
            yield from _record_rows(position, batch, header, size)
        position += header.size_bytes


def _batch_row(position: int, header: BatchHeader, is_valid: bool) -> Row:
    return {
        "kind": "batch",
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "timestamp_type": _timestamp_type(header),
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "codec": _codec_name(header),
        "magic": header.magic,
        "crc": header.crc,
        "is_valid": is_valid,
    }


def _message_row(position: int, header: BatchHeader, is_valid: bool) -> Row:
    return {
        "kind": "message" if header.record_count == 1 else "wrapper",
        "position": position,
        "size_bytes": header.size_bytes,
        "last_offset": header.last_offset,
        "timestamp_type": _timestamp_type(header),
        "timestamp_ms": header.max_timestamp,
        "codec": _codec_name(header),
        "magic": header.magic,
        "crc": header.crc,
        "is_valid": is_valid,
    }


def _timestamp_type(header: BatchHeader) -> str:
    if header.magic == 0:
        return "none"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except KafkaError:
        return f"unknown ({header.attributes & 7})"


def _record_rows(position: int, batch: bytes, header: BatchHeader, size: int) -> Iterator[Row]:
    try:
        if header.is_control and header.record_count:
            marker = read_marker(batch)
            yield {
                "kind": "marker",
                "offset": header.base_offset,
                "timestamp_ms": header.max_timestamp,
                "type": "abort" if marker.is_abort else "commit" if marker.is_commit else str(marker.kind),
                "coordinator_epoch": marker.coordinator_epoch,
            }
            return
        for number, record in enumerate(records_in(batch, header)):
            yield {
                "kind": "record",
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "sequence": header.base_sequence + number if header.base_sequence >= 0 else -1,
                "key_bytes": -1 if record.key is None else len(record.key),
                "value_bytes": -1 if record.value is None else len(record.value),
                "key": _text(record.key),
                "value": _text(record.value),
                "header_keys": [name for name, _ in record.headers],
            }
    except KafkaError as error:
        yield _damage(position, error.message, size)


def _text(data: bytes | memoryview | None) -> str | None:
    """Bytes as text. Invalid UTF-8 becomes \\x escapes."""
    return None if data is None else bytes(data).decode("utf-8", "backslashreplace")


def _dump_index(files: Files, path: Path, deep: bool) -> Iterator[Row]:
    data = read_used(files, path)
    base_offset = offset_of(path.name)
    try:
        offsets, positions = OffsetIndex.read_columns(data, path.name)
    except CorruptIndex as error:
        yield _damage(0, str(error), len(data))
        return
    segment_path = path.with_name(offset_file(base_offset, LOG))
    segment = files.open_readonly(segment_path) if deep and files.exists(segment_path) else None
    for relative_offset, position in zip(offsets, positions, strict=True):
        row: Row = {"kind": "offset_entry", "offset": base_offset + relative_offset, "position": position}
        if segment is not None:
            row["is_valid"] = _points_to(segment, position, base_offset + relative_offset)
        yield row


def _points_to(segment: LogFile, position: int, offset: int) -> bool:
    """Whether a batch at `position` ends with `offset`. Before format 2, whether an append that begins there may."""
    try:
        header = read_any_header(segment.read(HEADER_BYTES, position))
    except KafkaError:
        return False
    return header.last_offset == offset if header.magic == MAGIC else header.last_offset <= offset


def _dump_time_index(files: Files, path: Path, _deep: bool) -> Iterator[Row]:
    data = read_used(files, path)
    base_offset = offset_of(path.name)
    try:
        timestamps, offsets = TimeIndex.read_columns(data, path.name)
    except CorruptIndex as error:
        yield _damage(0, str(error), len(data))
        return
    for timestamp_ms, relative_offset in zip(timestamps, offsets, strict=True):
        yield {"kind": "time_entry", "timestamp_ms": timestamp_ms, "offset": base_offset + relative_offset}


def _dump_txn_index(files: Files, path: Path, _deep: bool) -> Iterator[Row]:
    for transaction in txn_index.read_entries(files.read(path)):
        yield {"kind": "aborted_transaction", **transaction._asdict()}


def _dump_snapshot(files: Files, path: Path, _deep: bool) -> Iterator[Row]:
    data = files.read(path)
    try:
        entries = decode_snapshot(data)
    except CorruptSnapshot as error:
        yield _damage(0, str(error), len(data))
        return
    for entry in entries:
        newest = entry.batches[-1] if entry.batches else None
        yield {
            "kind": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "open_transaction_since": None if entry.open_since < 0 else entry.open_since,
            "seen_ms": entry.seen_ms,
            "first_sequence": newest.first_sequence if newest else None,
            "last_sequence": newest.last_sequence if newest else None,
            "last_offset": newest.last_offset if newest else None,
        }


def _dump_checkpoint(files: Files, path: Path, _deep: bool) -> Iterator[Row]:
    try:
        for partition, offset in sorted(checkpoints.read_offsets(files, path).items()):
            yield {"kind": "checkpoint", "topic": partition.topic, "partition": partition.partition, "offset": offset}
    except checkpoints.CorruptCheckpoint as error:
        yield _damage(0, str(error), files.file_size(path))


def _dump_epochs(files: Files, path: Path, _deep: bool) -> Iterator[Row]:
    try:
        for epoch, start_offset in checkpoints.read_epochs(files, path):
            yield {"kind": "leader_epoch", "epoch": epoch, "start_offset": start_offset}
    except checkpoints.CorruptCheckpoint as error:
        yield _damage(0, str(error), files.file_size(path))


def _dump_partition_metadata(files: Files, path: Path, _deep: bool) -> Iterator[Row]:
    try:
        topic_id = read_topic_id(files, path.parent)
        yield {"kind": "partition", "topic_id": None if topic_id is None else format_topic_id(topic_id)}
    except CorruptPartitionMetadata as error:
        yield _damage(0, str(error), files.file_size(path))


def _dump_meta_properties(files: Files, path: Path, _deep: bool) -> Iterator[Row]:
    try:
        properties = meta_properties.read(files, path.parent)
        if properties is not None:
            yield {"kind": "data_directory", **properties._asdict()}
    except meta_properties.CorruptMetaProperties as error:
        yield _damage(0, str(error), files.file_size(path))


_BY_SUFFIX: dict[str, Reader] = {
    LOG: _dump_log,
    INDEX: _dump_index,
    TIME_INDEX: _dump_time_index,
    TXN_INDEX: _dump_txn_index,
    SNAPSHOT: _dump_snapshot,
    segments_07.SUFFIX: dump_segment_07,
}
_BY_NAME: dict[str, Reader] = {
    checkpoints.RECOVERY_POINT: _dump_checkpoint,
    checkpoints.LOG_START_OFFSET: _dump_checkpoint,
    checkpoints.HIGH_WATERMARK: _dump_checkpoint,
    "cleaner-offset-checkpoint": _dump_checkpoint,
    checkpoints.LEADER_EPOCH: _dump_epochs,
    PARTITION_METADATA: _dump_partition_metadata,
    meta_properties.FILE_NAME: _dump_meta_properties,
}
