"""What keeping the positions of Kafka 0.7 costs the event loop, and how many partitions are kept at a time."""

from __future__ import annotations

import asyncio
import sys
import threading
from array import array
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from headrace.broker.kafka07.partition_positions import PartitionPositions
from headrace.broker.kafka07.positions import KEPT_AT_ONCE, PositionIndexes
from headrace.controller.decisions.topics import RequestedTopic
from headrace.log.files import Bytes, LocalFiles, PathText
from headrace.log.positions.position_file import FILE_NAME, Pair, Unwritten, read_positions, write_positions
from headrace.log.positions.position_index import WRITTEN_AT_ONCE_MAX, PositionIndex
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import Node, Watch
from headrace.records.codecs.compression import Codec
from headrace.types import TopicPartition
from tests.broker.test_positions import Model, on_a_thread, small_steps
from tests.controller.node import Node as BrokerNode


def filled(count: int) -> PositionIndex:
    index = PositionIndex(Pair(0, 0), 3)
    for row in range(1, count):
        index.add(Pair(row, row * (1 << 20)))
    return index


def steps_of(work: Callable[[], object]) -> int:
    """How many calls of Python functions and resumptions of generators the work takes on this thread."""
    count = 0

    def on_event(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_the_owner_does_as_much_for_a_large_file_as_for_a_small_one(tmp_path: Path) -> None:
    """Restoring an index, and choosing what to write: the rows are read, checked and encoded on a thread."""
    steps = []
    for count in (10, 5 * WRITTEN_AT_ONCE_MAX):
        index, files = filled(count), LocalFiles()
        while (entries := index.unwritten(count)) is not None:
            assert len(entries.offsets) <= WRITTEN_AT_ONCE_MAX
            assert write_positions(files, tmp_path, entries)
            index.written(entries)
        stored = read_positions(files, tmp_path)
        assert stored is not None and (stored.generation, len(stored.offsets)) == (3, count - 1)
        restored = PositionIndex.restored(stored)
        assert list(restored.pairs()) == list(filled(count - 1).pairs())
        steps.append(steps_of(lambda found=stored: PositionIndex.restored(found).unwritten(1 << 60)))  # type: ignore[misc]
    assert steps[1] <= steps[0]


def test_a_write_behind_rows_that_are_gone_says_so(tmp_path: Path) -> None:
    rows = array("q", [5]), array("q", [50])
    assert not write_positions(LocalFiles(), tmp_path, Unwritten(1, 4, *rows))
    assert not write_positions(LocalFiles(), tmp_path / "gone", Unwritten(1, 0, *rows))
    assert not list(tmp_path.iterdir())


class Watching(LocalFiles):
    """The real disk, which notes the threads that read and write the file of positions."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.before_write: Callable[[], None] = lambda: None

    def open_readonly(self, path: PathText):  # type: ignore[no-untyped-def]
        self._note(path)
        return super().open_readonly(path)

    def open(self, path: PathText, *, create: bool = False):  # type: ignore[no-untyped-def]
        self._note(path)
        return super().open(path, create=create)

    def replace(self, path: PathText, data: Bytes, *, sync: bool = True) -> None:
        self._note(path)
        super().replace(path, data, sync=sync)

    def _note(self, path: PathText) -> None:
        if Path(path).name == FILE_NAME:
            self.threads.append(threading.get_ident())


def tell(story: Callable[[EmbeddedStore], Coroutine[object, object, None]], home: Path) -> None:
    async def told() -> None:
        store = await EmbeddedStore.open(home)
        try:
            with small_steps():
                await story(store)
        finally:
            await store.close()

    asyncio.run(told())


def test_the_file_is_read_and_written_on_threads(tmp_path: Path) -> None:
    async def story(store: EmbeddedStore) -> None:
        model, files = Model(tmp_path, store), Watching()
        model.log.files = files
        for _ in range(20):
            await model.do_append([b"x" * 50], Codec.NONE)
        model.log.flusher.flush(0)
        await model.kept.keep()
        model.log.positions = None
        fresh = PartitionPositions(model.partition, store, on_a_thread)
        assert await fresh.position_of(20) == 20 * 60
        assert len(files.threads) >= 2 and threading.get_ident() not in files.threads
        await model.check()

    tell(story, tmp_path)


@pytest.mark.parametrize("what", ["truncated", "deleted"])
def test_rows_that_a_truncation_or_a_deletion_overtakes_are_not_written(what: str, tmp_path: Path) -> None:
    """The thread begins only after the log has changed: the file must not name what is gone."""

    async def story(store: EmbeddedStore) -> None:
        model = Model(tmp_path, store)
        for _ in range(20):
            await model.do_append([b"x" * 50], Codec.NONE)
        model.log.flusher.flush(0)
        await model.kept.position_of(20)
        file = tmp_path / "t-0" / FILE_NAME

        async def late(work: Callable[[], bool]) -> bool:
            if what == "truncated":
                await model.do_truncate(10)
            else:
                model.log.fail("t-0 is deleted")
            return await asyncio.to_thread(work)

        model.kept._on_a_thread = late  # type: ignore[assignment]
        assert model.log.positions is not None
        await model.kept._write_entries(model.log.positions)
        assert not file.exists()

    tell(story, tmp_path)


class Counting:
    """A store that counts how many reads wait at the same time."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store, self._now, self.most = store, 0, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        self._now += 1
        self.most = max(self.most, self._now)
        for _ in range(5):  # as a round trip
            await asyncio.sleep(0)
        self._now -= 1
        return await self._store.get(path, watch)


@contextmanager
def closed(positions: PositionIndexes):  # type: ignore[no-untyped-def]
    try:
        yield positions
    finally:
        positions.close()


@pytest.mark.slow
async def test_many_partitions_are_kept_at_a_time_and_not_all(tmp_path: Path) -> None:
    node = await BrokerNode.start(tmp_path)
    try:
        count = 2 * KEPT_AT_ONCE + 5
        await node.controller.create_topics([RequestedTopic("t", count, configs={"headrace.kafka07.enable": "true"})])
        store = Counting(node.store)
        made = PositionIndexes(node.replicas, node.metadata, store, asyncio.get_running_loop(), asyncio.ensure_future)  # type: ignore[arg-type]
        with closed(made) as positions:
            await positions.keep_once()
            assert store.most == KEPT_AT_ONCE
            for number in range(count):
                partition = node.replicas.find(TopicPartition("t", number))
                assert partition is not None and partition.log.positions is not None
    finally:
        await node.close()
