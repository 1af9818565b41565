"""Recovery by the window against recovery batch by batch, and the compiled loops against their own source."""

import importlib.util
import random
from array import array
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.producers.producer_state import Producers
from headrace.log.recovery import recovery_kernel as compiled
from headrace.log.recovery import recovery_scan
from headrace.log.recovery.recovery_scan import CheckedScan, producer_batches
from headrace.log.segment.aborted_transactions import end_transaction
from headrace.log.segment.batch_scan import read_checked, read_headers
from headrace.log.segment.txn_index import AbortedTransaction
from headrace.records.codecs.compression import Codec
from headrace.records.codecs.crc import crc32c
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.records.format2.control import ABORT, COMMIT, Marker, encode_marker, read_marker
from headrace.records.format2.header import BatchHeader, pack_header
from headrace.records.legacy.message_set import encode_message_set
from tests.log.support import Inode, SimulatedFile

BASE = 1000
NOW_MS = 1_700_000_000_000


def uncompiled() -> ModuleType:
    """The same source, run as plain Python."""
    source = Path(compiled.__file__).with_name("recovery_kernel.py")
    spec = importlib.util.spec_from_file_location("headrace_uncompiled_recovery_kernel", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = uncompiled()
kernels = st.sampled_from([compiled, plain])


def test_the_kernel_is_compiled_and_its_reference_is_not() -> None:
    assert compiled.COMPILED, "it would be compared with itself; `make setup` compiles it"
    assert not plain.COMPILED


@given(st.binary(max_size=300), st.booleans())
def test_the_checksum_is_the_same_with_and_without_the_processors_help(data: bytes, by_instruction: bool) -> None:
    assert compiled.crc32c_of(data, by_instruction) == plain.crc32c_of(data, by_instruction) == crc32c(data)


# What a file holds: pieces, each with the offset where the one before ended


class Pick(NamedTuple):
    """One piece of a file."""

    kind: str
    records: int
    size: int
    time: int
    leader_epoch: int
    producer: int
    is_transactional: bool
    gap: int


KINDS = {
    "batches": ["data"] * 5 + ["emptied", "marker"],
    "formats": ["data", "data", "emptied", "marker", "0", "1", "wrapper"],
}


def drawn(seed: int, kinds: list[str]) -> list[Pick]:
    """Pieces drawn by chance: Hypothesis itself prefers short lists, in which no producer has six batches."""
    chance = random.Random(seed)
    return [
        Pick(
            chance.choice(kinds),
            chance.randint(1, 4),
            chance.choice([0, 1, 20, 300]),
            chance.randint(-5, 5),
            chance.choice([-1, 0, 0, 0, 1, 2, 3, 4]),
            chance.choice([-1, 0, 0, 1, 2**40]),
            chance.random() < 0.4,
            chance.choice([0, 0, 0, 0, 0, 0, 0, 3]),
        )
        for _ in range(chance.randint(0, 60))
    ]


files = st.builds(drawn, st.integers(0, 2**32), st.sampled_from([*KINDS.values()]))


def data_batch(offset: int, pick: Pick) -> bytes:
    rows = [Record(0, NOW_MS + pick.time, None, b"v" * pick.size, ())] * pick.records
    batch = encode_batch(
        rows,
        base_offset=offset,
        leader_epoch=pick.leader_epoch,
        producer_id=pick.producer,
        producer_epoch=0 if pick.producer >= 0 else -1,
        base_sequence=offset if pick.producer >= 0 else -1,
        is_transactional=pick.is_transactional and pick.producer >= 0,
    )
    if pick.kind == "emptied":  # as compaction leaves the last batch of a producer
        pack_header(batch, 0, read_header(batch)._replace(batch_length=49, record_count=0))
        del batch[61:]
        pack_header(batch, 0, read_header(batch))
    return bytes(batch)


def piece(offset: int, pick: Pick) -> bytes:
    match pick.kind:
        case "marker":
            return bytes(
                encode_marker(
                    Marker(ABORT if pick.time % 2 else COMMIT, 0),
                    producer_id=max(0, pick.producer),
                    producer_epoch=0,
                    timestamp_ms=NOW_MS + pick.time,
                    base_offset=offset,
                    leader_epoch=pick.leader_epoch,
                )
            )
        case "0" | "1" | "wrapper":
            rows = [Record(0, NOW_MS + pick.time, None, b"v" * pick.size, ())] * pick.records
            magic, codec = (1, Codec.GZIP) if pick.kind == "wrapper" else (int(pick.kind), Codec.NONE)
            return bytes(encode_message_set(rows, magic=magic, codec=codec, base_offset=offset))
        case _:
            return data_batch(offset, pick)


def content_of(chosen: list[Pick]) -> bytes:
    content, offset = b"", BASE
    for pick in chosen:
        content += piece(offset, pick)
        headers = list(read_headers(SimulatedFile(Inode(bytearray(content))), 0, len(content)))
        offset = headers[-1][1].next_offset + pick.gap
    return content


damages = st.one_of(
    st.none(),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("flip"), st.floats(0, 1, exclude_max=True)),
    st.tuples(st.just("zeros"), st.floats(0, 1)),
    st.tuples(st.just("again"), st.floats(0, 1)),
)


def damaged(content: bytes, damage: tuple[str, float] | None) -> bytes:
    if damage is None or not content:
        return content
    what, share = damage
    at = int(share * len(content))
    match what:
        case "cut":
            return content[:at]
        case "flip":
            return content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
        case "zeros":
            return content + bytes(at)
        case _:
            return content + content[:at]


def pairs(column: Iterable[int]) -> Iterable[tuple[int, int]]:
    numbers = iter(column)
    return zip(numbers, numbers, strict=True)


def model(headers: list[tuple[int, BatchHeader]], interval: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The entries of both indexes, batch by batch, as an append makes them."""
    places: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    unindexed, largest = 0, (-1, BASE)
    for position, header in headers:
        latest_ms = header.max_timestamp if header.record_count else -1
        if latest_ms > largest[0]:
            largest = latest_ms, header.last_offset
        if unindexed > interval:
            unindexed = 0
            places.append((header.last_offset - BASE, position))
            if largest[0] > (times[-1][0] if times else -1):
                times.append((largest[0], largest[1] - BASE))
        unindexed += header.size_bytes
    return places, times


def replay(content: bytes, headers: list[tuple[int, BatchHeader]]) -> tuple[object, list[AbortedTransaction]]:
    """What the producers are after some batches, and the transactions that were aborted."""
    producers = Producers()
    aborted: list[AbortedTransaction] = []
    for position, header in headers:
        if not header.is_control:
            producers.append(header, header.base_offset, NOW_MS)
            continue
        marker = read_marker(content[position : position + header.size_bytes])
        end_transaction(producers, header, header.base_offset, marker, NOW_MS, aborted.append)
    entries = {
        each.producer_id: (each.epoch, each.batches, each.coordinator_epoch, each.open_since, each.seen_ms)
        for each in producers.entries.values()
    }
    return (entries, producers.transactions.first_unstable_offset(0)), aborted


@settings(deadline=None)
@given(files, damages, st.sampled_from([61, 200, 1000, 1 << 20]), st.sampled_from([0, 100, 4096]), kernels)
def test_a_scan_by_the_window_finds_what_one_batch_by_batch_finds(
    chosen: list[Pick], damage: tuple[str, float] | None, window: int, interval: int, kernel: ModuleType
) -> None:
    content = damaged(content_of(chosen), damage)
    file = SimulatedFile(Inode(bytearray(content)))
    expected = list(read_checked(file, len(content), BASE))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery_scan, "kernel", kernel)
        patch.setattr(recovery_scan, "WINDOW_BYTES", window)
        patch.setattr(recovery_scan, "ENTRIES_MAX", 2)
        patch.setattr(recovery_scan, "EPOCHS_MAX", 1)
        patch.setattr(recovery_scan, "NOTED_MAX", 40)
        scan = CheckedScan(file, len(content), BASE, interval_bytes=interval, leader_epoch=1)
        stretches = list(scan.run())

    assert scan.position == sum(each.size_bytes for each in stretches) == sum(h.size_bytes for _, h in expected)
    assert scan.next_offset == (expected[-1][1].next_offset if expected else BASE)
    places, times = model(expected, interval)
    assert [pair for each in stretches for pair in pairs(each.places)] == places
    assert [pair for each in stretches for pair in pairs(each.times)] == times
    timestamps = [h.max_timestamp if h.record_count else -1 for _, h in expected]
    assert scan.largest_timestamp_ms == max([-1, *timestamps])
    if scan.largest_timestamp_ms >= 0:
        assert scan.offset_of_largest == expected[timestamps.index(max(timestamps))][1].last_offset
    latest, epochs = 1, []
    for _, header in expected:
        if header.leader_epoch > latest:
            latest = header.leader_epoch
            epochs.append((latest, header.base_offset))
    assert [pair for each in stretches for pair in pairs(each.epochs)] == epochs

    headers = dict(expected)
    kept = [(position, headers[position]) for position in scan.producer_positions]
    assert kept == sorted(kept)
    assert replay(content, kept) == replay(content, [each for each in expected if each[1].producer_id >= 0])


@settings(deadline=None)
@given(files, st.integers(0, 150), st.integers(0, 150), st.sampled_from([61, 200, 1000, 1 << 20]), kernels)
def test_the_batches_of_producers_are_found_between_two_offsets(
    chosen: list[Pick], first: int, count: int, window: int, kernel: ModuleType
) -> None:
    content = content_of(chosen)
    file = SimulatedFile(Inode(bytearray(content)))
    expected = []
    for position, header in read_headers(file, 0, len(content)):
        if header.base_offset >= BASE + first + count:
            break
        if header.producer_id >= 0 and header.base_offset >= BASE + first:
            expected.append((position, header))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery_scan, "kernel", kernel)
        patch.setattr(recovery_scan, "WINDOW_BYTES", window)
        patch.setattr(recovery_scan, "NOTED_MAX", 40)
        found = list(producer_batches(file, 0, len(content), BASE + first, BASE + first + count))

    assert set(found) <= set(expected)
    assert found == sorted(found)
    assert replay(content, found) == replay(content, expected)


def test_of_a_producers_many_batches_few_are_looked_at() -> None:
    content = b"".join(
        encode_batch(
            [Record(0, NOW_MS, None, b"v", ())],
            base_offset=BASE + number,
            producer_id=number % 3,
            producer_epoch=0,
            base_sequence=number // 3,
        )
        for number in range(900)
    )
    scan = CheckedScan(SimulatedFile(Inode(bytearray(content))), len(content), BASE, interval_bytes=4096)
    for _ in scan.run():
        pass
    assert (scan.position, scan.next_offset) == (len(content), BASE + 900)
    assert len(scan.producer_positions) == 15


@given(st.binary(max_size=400), st.integers(-3, 500), st.integers(-3, 500), st.binary(max_size=40))
def test_no_bytes_lead_the_compiled_loops_astray(content: bytes, pos: int, end: int, numbers: bytes) -> None:
    outcomes = []
    for kernel in (compiled, plain):
        state = kernel.new_state(0, 2**31 - 1, 0, -1)
        columns = [array("q", bytes(8 * len(numbers)))[: len(numbers) // size * size] for size in (2, 2, 2, 1)]
        table = array("q", bytes(8 * kernel.table_size(len(numbers))))
        outcomes.append((kernel.take(content, pos, end, 0, state, *columns, table), state, columns))
    assert outcomes[0] == outcomes[1]
