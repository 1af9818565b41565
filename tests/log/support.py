"""What the tests of the log share: small batches, and a disk that loses what was not synced."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.log.files import Bytes, Files, LocalFiles
from headrace.log.partition_log import AppendResult, PartitionLog
from headrace.records.batch import Record, decode_records, encode_batch, iter_headers, read_header
from headrace.records.compression import Codec
from headrace.records.control import Marker, encode_marker
from headrace.types import TopicPartition

PARTITION = TopicPartition("flights", 0)
NOW_MS = 1_700_000_000_000


def config(**settings: object) -> TopicConfig:
    """Settings of a topic; indexes are denser than by default, so that small logs have entries, and not made for as
    many, so that a simulated disk is not full of their zeros."""
    return TopicConfig(**{"index_interval_bytes": 100, "segment_index_bytes": 16 << 10, **settings})  # type: ignore[arg-type]


def batch_of(
    *values: bytes,
    timestamps_ms: list[int] | None = None,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
) -> bytearray:
    """A batch as a producer sends it."""
    times = timestamps_ms or [NOW_MS] * len(values)
    records = [Record(0, time_ms, None, value, ()) for time_ms, value in zip(times, values, strict=True)]
    return encode_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def open_log(
    directory: Path, settings: TopicConfig | None = None, files: Files | None = None, **more: object
) -> PartitionLog:
    """The partition's log in `directory`, opened as after a crash unless told otherwise."""
    arguments: dict[str, object] = {"files": files or LocalFiles(), "now_ms": NOW_MS, **more}
    return PartitionLog.open(directory, PARTITION, settings or config(), **arguments)  # type: ignore[arg-type]


def append(log: PartitionLog, *values: bytes, epoch: int = 0, now_ms: int = NOW_MS, **more: object) -> AppendResult:
    """Append one batch of these values; `epoch` is the leader's."""
    return append_batch(log, batch_of(*values, **more), epoch=epoch, now_ms=now_ms)  # type: ignore[arg-type]


def append_batch(log: PartitionLog, batch: bytearray, *, epoch: int = 0, now_ms: int = NOW_MS) -> AppendResult:
    """Append a batch that is there already."""
    return log.append(memoryview(batch), read_header(batch), leader_epoch=epoch, now_ms=now_ms)


def append_marker(
    log: PartitionLog, kind: int, producer_id: int, *, epoch: int = 0, coordinator_epoch: int = 0
) -> AppendResult:
    """Append the end of a transaction."""
    return append_batch(
        log,
        encode_marker(
            Marker(kind, coordinator_epoch), producer_id=producer_id, producer_epoch=epoch, timestamp_ms=NOW_MS
        ),
    )


def fetch(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, at_least_one: bool = True) -> bytes:
    """What a consumer gets."""
    return log.read_bytes(log.read(offset, max_bytes, end_offset=log.log_end_offset, at_least_one=at_least_one))


class Stored(NamedTuple):
    """A record as it is read back."""

    offset: int
    timestamp_ms: int
    value: bytes


def read_all(log: PartitionLog, max_bytes: int = 300) -> list[Stored]:
    """Every record from the log's start to its end, fetched in small steps."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = fetch(log, offset, max_bytes)
        before = offset
        for position, header in iter_headers(data):
            records = decode_records(data[position:], header)
            found += [Stored(r.offset, r.timestamp_ms, bytes(r.value or b"")) for r in records if r.offset >= offset]
            offset = header.next_offset
        if offset == before:
            break
    return found


# A disk that forgets


@dataclass
class Inode:
    """A file's content, what of it is on the platter, and the writes between the two."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)

    def write(self, data: bytes | None, position: int) -> None:
        apply_write(self.content, position, data)
        self.unsynced.append((position, data))

    def after_crash(self, chance: random.Random) -> "Inode":
        """Some of the unsynced writes, the last of them perhaps torn."""
        content = bytearray(self.durable)
        for position, data in self.unsynced:
            what = chance.random()
            if what < 0.5:
                apply_write(content, position, data)
            elif data is not None and what < 0.6:
                apply_write(content, position, data[: chance.randrange(len(data) + 1)])
            elif data is not None and what < 0.7:
                apply_write(content, position, bytes(len(data)))
        return Inode(content, bytes(content))


def apply_write(content: bytearray, position: int, data: bytes | None) -> None:
    """Write, or truncate when there is no data."""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


class SimulatedFile:
    """An open file of the simulated disk."""

    fd = -1

    def __init__(self, inode: Inode) -> None:
        self.inode = inode

    def write(self, data: Bytes, position: int) -> None:
        self.inode.write(bytes(data), position)

    def read(self, size: int, position: int) -> bytes:
        return bytes(self.inode.content[position : position + size])

    def read_into(self, buffer: memoryview, position: int) -> int:
        data = self.read(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def size(self) -> int:
        return len(self.inode.content)

    def truncate(self, size: int) -> None:
        self.inode.write(None, size)

    def extend(self, size: int) -> None:
        if size > self.size():
            self.inode.write(None, size)

    def sync(self) -> None:
        self.inode.durable = bytes(self.inode.content)
        self.inode.unsynced.clear()


class SimulatedDisk:
    """Files in memory. Names, too, are only safe once their directory was synced; until then a crash may lose the
    last of them (but not the ones before: a journal keeps their order)."""

    def __init__(self) -> None:
        self.names_now: dict[Path, Inode] = {}
        self.names_durable: dict[Path, Inode] = {}
        self.journal: list[tuple[str, Path, Path | Inode | None]] = []

    def after_crash(self, chance: random.Random) -> "SimulatedDisk":
        """What the disk holds when the power is back."""
        names = dict(self.names_durable)
        for change in self.journal[: chance.randrange(len(self.journal) + 1)]:
            self._apply(names, change)
        disk = SimulatedDisk()
        survivors = {id(inode): inode.after_crash(chance) for inode in names.values()}
        disk.names_now = {path: survivors[id(inode)] for path, inode in names.items()}
        disk.names_durable = dict(disk.names_now)
        return disk

    def _change(self, what: str, path: Path, other: Path | Inode | None = None) -> None:
        self.journal.append((what, path, other))
        self._apply(self.names_now, self.journal[-1])

    @staticmethod
    def _apply(names: dict[Path, Inode], change: tuple[str, Path, Path | Inode | None]) -> None:
        what, path, other = change
        if isinstance(other, Inode):
            names[path] = other
        elif what == "remove":
            names.pop(path, None)
        elif isinstance(other, Path) and path in names:
            names[other] = names.pop(path)

    def open(self, path: Path, *, create: bool = False) -> SimulatedFile:
        if path not in self.names_now:
            if not create:
                raise FileNotFoundError(path)
            self._change("create", path, Inode())
        return SimulatedFile(self.names_now[path])

    def open_readonly(self, path: Path) -> SimulatedFile:
        return self.open(path)

    def read(self, path: Path) -> bytes:
        return bytes(self.open(path).inode.content)

    def replace(self, path: Path, data: Bytes, *, sync: bool = True) -> None:
        temporary = path.with_name(path.name + ".tmp")
        self._change("create", temporary, Inode())
        file = self.open(temporary)
        file.write(data, 0)
        if sync:
            file.sync()
        self._change("rename", temporary, path)
        if sync:
            self.sync_directory(path.parent)

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self.names_now if path.parent == directory)

    def exists(self, path: Path) -> bool:
        return path in self.names_now or self.is_directory(path)

    def is_directory(self, path: Path) -> bool:
        return any(path in known.parents for known in self.names_now)

    def file_size(self, path: Path) -> int:
        return len(self.open(path).inode.content)

    def allocated_bytes(self, path: Path) -> int:
        return self.file_size(path)

    def modified_ms(self, path: Path) -> int:
        return NOW_MS

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        pass

    def make_directory(self, path: Path) -> None:
        pass

    def rename(self, old: Path, new: Path) -> None:
        self._change("rename", old, new)

    def remove(self, path: Path) -> None:
        self._change("remove", path)

    def remove_tree(self, path: Path) -> None:
        for known in [known for known in self.names_now if path in known.parents]:
            self.remove(known)

    def sync_directory(self, path: Path) -> None:
        for change in self.journal:
            self._apply(self.names_durable, change)
        self.journal.clear()

    def lock(self, path: Path) -> "SimulatedDisk":
        return self

    def release(self) -> None:
        pass
