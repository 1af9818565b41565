"""What the tests of the log share: small batches, and a disk that loses what was not synced."""

import os
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.log import appending
from headrace.log.appending import AppendResult
from headrace.log.files import Bytes, DiskSpace, Files, LocalFiles, PathText, remove_each
from headrace.log.flusher import FlushScheduling, inline
from headrace.log.partition_deletion import PartitionDeletion
from headrace.log.partition_log import PartitionLog
from headrace.log.pending_deletions import remove_files
from headrace.log.producers.verification import NOT_REQUIRED
from headrace.log.segment.time_lookup import TimeOffset, TimeSearch
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, decode_records, encode_batch, iter_headers, read_header
from headrace.records.format2.control import Marker
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


def append_batch(
    log: PartitionLog, batch: bytearray, *, epoch: int = 0, now_ms: int = NOW_MS, verification: object = NOT_REQUIRED
) -> AppendResult:
    """Append a batch that is there already. A transaction is opened without its verification, unless told otherwise."""
    return appending.append(
        log,
        memoryview(batch),
        read_header(batch),
        leader_epoch=epoch,
        now_ms=now_ms,
        verification=verification,  # type: ignore[arg-type]
    )


def append_marker(
    log: PartitionLog,
    kind: int,
    producer_id: int,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> AppendResult:
    """Append the end of a transaction."""
    return appending.append_marker(
        log,
        Marker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_version=transaction_version,
        leader_epoch=0,
        now_ms=NOW_MS,
    )


def fetch(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, at_least_one: bool = True) -> bytes:
    """What a consumer gets."""
    return log.read_bytes(log.read(offset, max_bytes, end_offset=log.log_end_offset, at_least_one=at_least_one))


def offset_for_time(log: PartitionLog, timestamp_ms: int, end_offset: int) -> TimeOffset | None:
    """The first record at or after a time, before `end_offset`."""
    found = _first_found(log.searches_for_time(timestamp_ms, end_offset))
    return found if found is not None and found.offset < end_offset else None


def max_timestamp_offset(log: PartitionLog) -> TimeOffset | None:
    """The first record that has the largest timestamp."""
    return _first_found(log.searches_for_largest_timestamp())


def _first_found(searches: Iterator[TimeSearch | None]) -> TimeOffset | None:
    return next((found for search in searches if search is not None and (found := search.run()) is not None), None)


def purge(log: PartitionLog, now_ms: int) -> None:
    """Remove the files whose time has come."""
    remove_files(log.files, log.removals.take_due(now_ms))


def delete(log: PartitionLog) -> None:
    """Take the log away."""
    deletion = PartitionDeletion(log.files, [log])
    deletion.run()
    assert not deletion.errors
    deletion.finish()


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


Work = tuple[Callable[[], None], Callable[[Exception | None], None]]
"""The two arguments of a `Background`."""


class Background:
    """Runs a log's background work at once, unless it `waits`: then a test runs what is in `works`."""

    def __init__(self, *, waits: bool = False) -> None:
        self.waits = waits
        self.works: list[Work] = []

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        if self.waits:
            self.works.append((work, done))
        else:
            inline(work, done)

    @property
    def scheduling(self) -> FlushScheduling:
        """For the constructor of a log."""
        return FlushScheduling(self)

    def run_all(self) -> None:
        """Run what waits, and what it causes, the last first."""
        while self.works:
            work, done = self.works.pop()
            inline(work, done)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Meanwhile this process cannot open anything more: EMFILE."""
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def hold_background(log: PartitionLog, works: list[Work]) -> None:
    """Collect the background work of a log in `works`. For the log of a whole broker, which has built it."""
    held = log.flusher._scheduling._replace(background=lambda work, done: works.append((work, done)))
    log.flusher._scheduling = held


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
        """Some of the unsynced writes, some of them torn; or else the first ones, where the file system writes the
        data before the size: then a file ends where a write did."""
        content = bytearray(self.durable)
        if chance.random() < 0.3:
            for position, data in self.unsynced[: chance.randrange(len(self.unsynced) + 1)]:
                apply_write(content, position, data)
            return Inode(content, bytes(content))
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

    def make_room(self, position: int, size: int) -> int:
        self.inode.write(bytes(size), position)
        return size

    def sync(self) -> None:
        self.inode.durable = bytes(self.inode.content)
        self.inode.unsynced.clear()

    def sync_failed(self, code: int) -> OSError:
        raise AssertionError("its descriptor is not plain")


class SimulatedDisk:
    """Files in memory. Names, too, are only safe once their directory was synced; until then a crash may lose the
    last of them (but not the ones before: a journal keeps their order)."""

    def __init__(self, names: dict[Path, Inode] | None = None) -> None:
        self.names_now: dict[Path, Inode] = dict(names or {})
        self.names_durable: dict[Path, Inode] = dict(self.names_now)
        self.journal: list[tuple[str, Path, Path | Inode | None]] = []
        self._files_below = Counter(above for path in self.names_now for above in path.parents)

    def after_crash(self, chance: random.Random) -> "SimulatedDisk":
        """What the disk holds when the power is back."""
        names = dict(self.names_durable)
        for change in self.journal[: chance.randrange(len(self.journal) + 1)]:
            self._apply(names, change)
        survivors = {id(inode): inode.after_crash(chance) for inode in names.values()}
        return type(self)({path: survivors[id(inode)] for path, inode in names.items()})

    def _change(self, what: str, path: Path, other: Path | Inode | None = None) -> None:
        self.journal.append((what, path, other))
        touched = {path, other} if isinstance(other, Path) else {path}
        before = {each for each in touched if each in self.names_now}
        self._apply(self.names_now, self.journal[-1])
        after = {each for each in touched if each in self.names_now}
        self._files_below.update(above for each in after - before for above in each.parents)
        self._files_below.subtract(above for each in before - after for above in each.parents)

    @staticmethod
    def _apply(names: dict[Path, Inode], change: tuple[str, Path, Path | Inode | None]) -> None:
        what, path, other = change
        if isinstance(other, Inode):
            names[path] = other
        elif what == "remove":
            names.pop(path, None)
        elif isinstance(other, Path) and path in names:
            names[other] = names.pop(path)

    def open(self, path: PathText, *, create: bool = False) -> SimulatedFile:
        path = Path(path)
        if path not in self.names_now:
            if not create:
                raise FileNotFoundError(path)
            self._change("create", path, self.make_inode(path))
        return SimulatedFile(self.names_now[path])

    def make_inode(self, path: Path) -> Inode:
        """The content of a new file."""
        return Inode()

    def open_new(self, path: PathText) -> SimulatedFile:
        if Path(path) in self.names_now:
            raise FileExistsError(path)
        return self.open(path, create=True)

    def make_hole(self, path: PathText, size: int) -> None:
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        file.extend(size)

    def open_readonly(self, path: PathText) -> SimulatedFile:
        return self.open(path)

    def read(self, path: PathText) -> bytes:
        return bytes(self.open(path).inode.content)

    def replace(self, path: PathText, data: Bytes, *, sync: bool = True) -> None:
        path = Path(path)
        temporary = path.with_name(path.name + ".tmp")
        self._change("create", temporary, Inode())
        file = self.open(temporary)
        file.write(data, 0)
        if sync:
            file.sync()
        self._change("rename", temporary, path)
        if sync:
            self.sync_directory(path.parent)

    def names(self, directory: PathText) -> list[str]:
        return sorted(path.name for path in self.names_now if path.parent == Path(directory))

    def exists(self, path: PathText) -> bool:
        return Path(path) in self.names_now or self.is_directory(path)

    def is_directory(self, path: PathText) -> bool:
        return self._files_below[Path(path)] > 0

    def file_size(self, path: PathText) -> int:
        return len(self.open(path).inode.content)

    def has_large_folios(self, directory: PathText) -> bool:
        return True

    def allocated_bytes(self, path: PathText) -> int:
        return self.file_size(path)

    def modified_ms(self, path: PathText) -> int:
        return NOW_MS

    def set_modified_ms(self, path: PathText, modified_ms: int) -> None:
        pass

    def space(self, directory: PathText) -> DiskSpace:
        return DiskSpace(1 << 40, 1 << 39)

    def make_directory(self, path: PathText) -> None:
        pass

    def rename(self, old: PathText, new: PathText) -> None:
        if not self.exists(old):
            raise FileNotFoundError(old)
        self._change("rename", Path(old), Path(new))

    def remove(self, path: PathText) -> None:
        self._change("remove", Path(path))

    def remove_all(self, paths: Sequence[PathText]) -> dict[str, OSError]:
        return remove_each(self, paths)

    def remove_tree(self, path: PathText) -> None:
        for known in [known for known in self.names_now if Path(path) in known.parents]:
            self.remove(known)

    def sync_directory(self, path: PathText) -> None:
        for change in self.journal:
            self._apply(self.names_durable, change)
        self.journal.clear()

    def lock(self, path: PathText) -> "SimulatedDisk":
        return self

    def release(self) -> None:
        pass
