"""The positions of one partition, compared with Kafka 0.7's log of the same messages, which is kept as plain bytes.

The model is every byte that the partition ever had. Whatever happens to the log and its index, every border between
messages keeps its position, and a read by position returns the model's bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.kafka07 import partition_positions
from headrace.broker.kafka07.partition_positions import PartitionPositions
from headrace.broker.partitions.partition import Partition
from headrace.errors import OffsetOutOfRange
from headrace.log import truncation, upkeep
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.log.positions import position_index, position_reads
from headrace.log.positions.position_file import FILE_NAME
from headrace.metastore.embedded import EmbeddedStore
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.control import COMMIT, Marker
from headrace.records.format2.header import read_header
from headrace.records.legacy.format_07 import encode_entry
from headrace.replication.partition_state import LeaderAndIsr, PartitionState
from headrace.types import BrokerId, LeaderEpoch, TopicPartition
from tests.examples import examples
from tests.log.support import NOW_MS, config

KEY = TopicPartition("t", 0)
T = TypeVar("T")

VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=60)), min_size=1, max_size=6)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])
STEPS = st.one_of(
    st.tuples(st.just("append"), VALUES, CODECS),
    st.tuples(st.just("append"), VALUES, CODECS),
    st.tuples(st.just("append old"), VALUES, st.sampled_from([0, 1])),
    st.tuples(st.just("control")),
    st.tuples(st.just("keep")),
    st.tuples(st.just("read"), st.integers(0, 1000), st.integers(0, 300)),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "file lost", "file torn"])),
    st.tuples(st.just("delete"), st.integers(0, 1000)),
    st.tuples(st.just("truncate"), st.integers(0, 1000)),
)


@contextlib.contextmanager
def small_steps() -> Iterator[None]:
    """Entries close together and short scans, so that small logs have many of both."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (position_index, position_reads):
            patched.setattr(module, "STEP_BYTES", 120)
        patched.setattr(partition_positions, "POSITIONS_STEP_BYTES", 300)
        yield


class Model:
    """One partition with its positions, and what they have to be."""

    def __init__(self, home: Path, store: EmbeddedStore) -> None:
        self.home, self.store, self.epoch = home, store, 0
        self.data = bytearray()
        self.positions = [0]  # of each offset
        self.open(is_clean=False)

    def open(self, *, is_clean: bool) -> None:
        self.log = PartitionLog.open(
            self.home / "t-0", KEY, config(kafka07_enable=True, segment_bytes=600), files=LocalFiles(), now_ms=NOW_MS,
            was_clean=is_clean, log_start_offset=getattr(self, "log_start", 0), topic_id=bytes(15) + b"\1",
        )  # fmt: skip
        self.partition = Partition(KEY, self.log, PartitionState(BrokerId(1), log_end_offset=self.log.log_end_offset))
        self.lead()
        self.kept = PartitionPositions(self.partition, self.store, on_a_thread)

    def lead(self) -> None:
        told = LeaderAndIsr(BrokerId(1), LeaderEpoch(self.epoch), (BrokerId(1),), self.epoch, (BrokerId(1),))
        self.partition.apply(told, NOW_MS)

    async def run(self, step: tuple[object, ...]) -> None:
        await getattr(self, f"do_{str(step[0]).replace(' ', '_')}")(*step[1:])

    async def do_append(self, values: list[bytes | None], codec: Codec) -> None:
        records = [Record(0, NOW_MS, b"key", value, ()) for value in values]
        batch = memoryview(encode_batch(records, codec=codec))
        self.partition.append(batch, read_header(batch), now_ms=NOW_MS, acks=1)
        self.note(values)

    async def do_append_old(self, values: list[bytes | None], magic: int) -> None:
        from headrace.broker.produce.formats import CheckedMessages, checked_records
        from headrace.records.binary import column_of, int64s
        from headrace.records.legacy.message_columns import build_message_set

        old = config(message_format_version="0.9.0" if magic == 0 else "0.10.2", segment_bytes=600)
        data = build_message_set(None, column_of(values), 0, len(values), int64s(len(values)), magic=magic)
        checked = checked_records(bytes(data), old, 2, NOW_MS, True)
        assert isinstance(checked, CheckedMessages)
        self.partition.append_set(checked, now_ms=NOW_MS, acks=1)
        self.note(values)

    async def do_control(self) -> None:
        self.partition.append_marker(
            Marker(COMMIT, 0), producer_id=1, producer_epoch=0, transaction_version=0, now_ms=NOW_MS
        )
        self.positions.append(len(self.data))

    def note(self, values: list[bytes | None]) -> None:
        for value in values:
            self.data += encode_entry(value or b"")
            self.positions.append(len(self.data))

    async def do_keep(self) -> None:
        await self.kept.keep()

    async def do_read(self, where: int, max_bytes: int) -> None:
        start, end = self.positions[self.log.log_start_offset], len(self.data)
        position = start + where % (end - start + 1)
        if position in self.positions:
            expected = bytes(self.data[position : position + max_bytes])
            assert await self.kept.read(position, max_bytes) == expected
        else:
            with pytest.raises(OffsetOutOfRange, match="no message begins"):
                await self.kept.read(position, max_bytes + 1)
        for outside in {start - 1, end + 1}:
            with pytest.raises(OffsetOutOfRange, match=f"has positions {start} to {end}, not {outside}"):
                await self.kept.read(outside, 10)

    async def do_restart(self, how: str) -> None:
        self.log.flusher.flush(NOW_MS)
        if how != "file lost":  # else the anchor alone is left of the positions of deleted records
            await self.kept.keep()
        await self.kept.keep()
        self.log_start = self.log.log_start_offset
        self.log.close(NOW_MS)
        file = self.home / "t-0" / FILE_NAME
        if how == "file lost":
            file.unlink(missing_ok=True)
        elif how == "file torn" and file.exists():
            file.write_bytes(file.read_bytes()[: random.Random(len(self.data)).randrange(file.stat().st_size)])
        self.open(is_clean=True)
        if how != "clean":  # else what is not even in the anchor would be lost together with the records
            await self.kept.keep()

    async def do_delete(self, where: int) -> None:
        """As DeleteRecords and retention, some time after the keeper."""
        await self.kept.keep()
        offset = self.log.log_start_offset + where % (self.log.log_end_offset - self.log.log_start_offset + 1)
        upkeep.delete_records_before(self.log, offset, NOW_MS)

    async def do_truncate(self, where: int) -> None:
        """As after an unclean election."""
        count = self.log.log_end_offset - self.log.log_start_offset
        offset = self.log.log_end_offset - where % (count + 1) // 3
        ends = [each for each in self.batch_ends() if each <= offset]
        if not ends:  # a leader's log is not emptied
            return
        end = ends[-1]
        offset = max(self.log.log_start_offset, end)
        truncation.truncate_to(self.log, offset, NOW_MS)
        gap = self.log.log_end_offset - end  # of a batch that is cut in two, nothing is left
        del self.positions[end + 1 :], self.data[self.positions[end] :]
        self.positions += [len(self.data)] * gap
        self.epoch += 1
        self.lead()

    def batch_ends(self) -> list[int]:
        from headrace.log.segment.batch_scan import read_headers

        return [header.last_offset + 1 for s in self.log.segments for _, header in read_headers(s.file, 0, s.size)]

    async def check(self) -> None:
        """Every border, read through the index of now and through one that is built anew."""
        await self.kept.keep()  # moves the anchor, should a truncation have taken it away
        fresh, before = PartitionPositions(self.partition, self.store, on_a_thread), self.log.positions
        for kept in (self.kept, fresh):
            for offset in range(self.log.log_start_offset, self.log.log_end_offset + 1):
                assert await kept.position_of(offset) == self.positions[offset]
            start = self.positions[self.log.log_start_offset]
            assert await kept.read(start, len(self.data) + 1) == bytes(self.data[start:])
            self.log.positions = None
        self.log.positions = before


def on_a_thread(work: Callable[[], T]) -> Awaitable[T]:
    return asyncio.to_thread(work)


async def tell(steps: Iterable[tuple[object, ...]], home: Path) -> None:
    """Run the steps, and check everything at the end."""
    store = await EmbeddedStore.open(home)
    try:
        model = Model(home, store)
        for step in steps:
            await model.run(step)
        await model.check()
        model.log.close(NOW_MS)
    finally:
        await store.close()


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_positions_are_those_of_kafka_0_7_whatever_happens_to_the_log(steps: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as home, small_steps():
        asyncio.run(tell(steps, Path(home)))


def random_step(chance: random.Random) -> tuple[object, ...]:
    """Mostly appends, so that there is something that the other steps can take away."""
    where = chance.randrange(1000)
    values = [None if chance.random() < 0.2 else chance.randbytes(chance.randrange(60)) for _ in range(where % 6 + 1)]
    kinds = ["append", "append", "append", "keep", "read", "read", "control", "restart", "delete", "truncate"]
    match chance.choice(kinds):
        case "append":
            return "append", values, chance.choice([Codec.NONE, Codec.GZIP])
        case "read":
            return "read", where, chance.randrange(300)
        case "restart":
            return "restart", chance.choice(["clean", "clean", "file lost", "file torn"])
        case "delete":
            return "delete", where % 7
        case "truncate":
            return "truncate", where
        case other:
            return (other,)


@pytest.mark.parametrize("seed", range(6))
def test_positions_stay_over_a_long_life(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    with small_steps():
        asyncio.run(tell((random_step(chance) for _ in range(120)), tmp_path))


def test_segments_stay_until_the_positions_behind_them_are_known(tmp_path: Path) -> None:
    async def story() -> None:
        store = await EmbeddedStore.open(tmp_path)
        model = Model(tmp_path, store)
        for _ in range(20):
            await model.do_append([b"x" * 50], Codec.NONE)
        upkeep.delete_records_before(model.log, 15, NOW_MS)
        assert (model.log.log_start_offset, model.log.segments[0].base_offset) == (15, 0)
        await model.kept.keep()
        assert upkeep.delete_old_segments(model.log, NOW_MS) > 0
        assert 0 < model.log.segments[0].base_offset <= 15
        await model.check()
        await store.close()

    asyncio.run(story())
