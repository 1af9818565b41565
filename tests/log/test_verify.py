"""Damage in segments: found, told with what it costs, cut out, and nothing else touched."""

import random
import shutil
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.directories.checkpoints import RECOVERY_POINT, read_offsets, write_offsets
from headrace.log.directories.data_directory import DataDirectory, DataDirectoryRefused
from headrace.log.files import LocalFiles
from headrace.offline import repair as repairs
from headrace.offline.usage import usage_of
from headrace.offline.verify import BadIndex, CheckedSegment, Damage, Finding, Leftover, verify
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, iter_headers
from headrace.records.legacy.message_set import encode_message_set
from tests.examples import examples
from tests.log.support import NOW_MS, PARTITION, append, config, open_log, read_all


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of three segments."""
    directory = tmp_path_factory.mktemp("data") / "flights-0"
    log = open_log(directory, config(segment_bytes=2500))
    for number in range(60):
        append(log, b"value %d" % number, b"x" * 20, codec=Codec(number % 5))
    log.close(NOW_MS)
    return directory


@pytest.fixture
def partition(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "flights-0"))


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def places(path: Path) -> list[tuple[int, int, int, int]]:
    """Position, size, first and last offset of each batch."""
    data = path.read_bytes()
    return [(at, header.size_bytes, header.base_offset, header.last_offset) for at, header in iter_headers(data)]


def flip(path: Path, position: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bit
    path.write_bytes(data)


def hit(path: Path, part: float) -> tuple[int, int, int]:
    """The byte at such a part of a whole file: its position, the number of its batch, and its position in that."""
    place = int(part * path.stat().st_size)
    starts = [at for at, *_ in places(path)]
    batch = bisect_right(starts, place) - 1
    return place, batch, place - starts[batch]


def found(path: Path, kind: type, **more: Any) -> list[Finding]:
    return [finding for finding in verify(path, **more) if isinstance(finding, kind)]


def test_whole_files_are_good(whole: Path) -> None:
    findings = list(verify(whole.parent, deep=True))
    assert len(findings) == len(segments(whole)) > 2
    assert sum(each.batches for each in findings if isinstance(each, CheckedSegment)) == 60
    assert all(isinstance(each, CheckedSegment) and not each.damages for each in findings)


@pytest.mark.parametrize("place", [0, 7, 8, 11, 12, 16, 17, 23, 57, 61, 70])
def test_a_damaged_batch_in_the_middle_is_told_with_its_place_and_its_offsets(partition: Path, place: int) -> None:
    path = segments(partition)[1]
    position, size, first, last = places(path)[3]
    flip(path, position + place, 4)
    damages = found(path, Damage)
    if place == 12:  # the leader epoch is covered by no checksum, and names no place
        assert damages == []
        return
    [damage] = damages
    assert damage[:5] == (path, position, size, first, last)
    assert isinstance(damage, Damage)
    assert damage.loss == f"offsets {first} to {last}, at most 2 records"


@pytest.mark.parametrize("has_gap", [False, True], ids=["one by one", "behind a gap"])
def test_of_batches_that_contradict_each_other_the_one_with_the_wrong_offset_is_told(
    partition: Path, has_gap: bool
) -> None:
    """No checksum covers a base offset, and a flipped one may be that of the batch before."""
    path = segments(partition)[1]
    pristine = path.read_bytes()
    every = places(path)
    for number in range(2, len(every) - 1):
        position, size, first, last = every[number]
        for bit in range(8):
            if has_gap:  # as compaction leaves: what is before the batch before is gone
                gone = every[number - 2]
                path.write_bytes(pristine[: gone[0]] + pristine[gone[0] + gone[1] :])
                at = position - gone[1]
            else:
                path.write_bytes(pristine)
                at = position
            flip(path, at + 7, 1 << bit)
            assert [each[1:5] for each in found(path, Damage)] == [(at, size, first, last)], bit


def test_a_wrong_offset_behind_a_damaged_batch_is_not_believed(partition: Path) -> None:
    path = segments(partition)[1]
    (position, size, first, _), (behind, more, _, last) = places(path)[3:5]
    flip(path, position + 70)
    flip(path, behind + 5)
    assert [each[1:5] for each in found(path, Damage)] == [(position, size + more, first, last)]


def test_the_end_of_a_log_that_is_torn_or_garbage(partition: Path) -> None:
    path = segments(partition)[-1]
    position, size, first, _ = places(path)[-1]
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    assert [each[1:5] for each in found(partition, Damage)] == [(position, size - 5, first, None)]
    path.write_bytes(data + bytes(3_000_000))
    assert [each[1:5] for each in found(partition, Damage)] == [(len(data), 3_000_000, first + 2, None)]
    path.write_bytes(data + random.Random(1).randbytes(100_000))
    assert [each[1:4] for each in found(partition, Damage)] == [(len(data), 100_000, first + 2)]


def test_zeros_between_good_batches_lose_what_lay_there(partition: Path) -> None:
    path = segments(partition)[0]
    all_places = places(path)
    start, stop = all_places[2], all_places[5]
    data = bytearray(path.read_bytes())
    data[start[0] : stop[0]] = bytes(stop[0] - start[0])
    path.write_bytes(data)
    [damage] = found(partition, Damage)
    assert damage[1:5] == (start[0], stop[0] - start[0], start[2], stop[2] - 1)


def test_records_that_are_none_are_found_when_looked_for(partition: Path) -> None:
    """A right checksum over records that do not parse: what a broken producer could have written."""
    path = segments(partition)[0]
    position = places(path)[0][0]
    from headrace.records.format2.header import pack_header, read_header

    data = bytearray(path.read_bytes())
    size = places(path)[0][1]
    batch = bytearray(data[position : position + size])
    batch[61] ^= 0x55
    pack_header(batch, 0, read_header(batch))
    data[position : position + size] = batch
    path.write_bytes(data)
    assert not found(partition, Damage)
    assert len(found(partition, Damage, deep=True)) == 1


def test_indexes_that_do_not_fit_are_told(partition: Path) -> None:
    index = next(path for path in sorted(partition.glob("*.index")) if path.stat().st_size)
    flip(index, 7, 1)
    times = next(path for path in sorted(partition.glob("*.timeindex"), reverse=True) if path.stat().st_size)
    times.write_bytes(times.read_bytes()[:-1])
    (partition / "00000000000000000000.log.cleaned").write_bytes(b"")
    (partition / "00000000000000000007.snapshot").write_bytes(b"nonsense")
    bad = {each.file for each in found(partition, BadIndex) if isinstance(each, BadIndex)}
    assert bad == {index, times, partition / "00000000000000000007.snapshot"}
    assert len(found(partition, Leftover)) == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_older_formats_are_verified_too(tmp_path: Path, magic: int) -> None:
    path = tmp_path / f"{0:020d}.log"
    times = -1 if magic == 0 else NOW_MS
    sets = [encode_message_set([Record(n, times, b"k", b"v%d" % n)], magic=magic, base_offset=None) for n in range(9)]
    path.write_bytes(b"".join(sets))
    assert not found(path, Damage, deep=True)
    flip(path, 3 * len(sets[0]) + 20)
    assert [each[1:5] for each in found(path, Damage)] == [(3 * len(sets[0]), len(sets[0]), 3, 3)]


# Repair


def repair_all(path: Path, save: Path) -> list[Path]:
    return [saved for each in repairs.plan(list(verify(path))) for saved in repairs.apply(LocalFiles(), each, save)]


def test_repair_cuts_the_damage_out_and_keeps_a_copy(partition: Path, tmp_path: Path) -> None:
    log = open_log(partition, config(segment_bytes=2500), was_clean=True)
    before = read_all(log)
    path = segments(partition)[1]
    position, size, first, last = places(path)[3]
    flip(path, position + 70)
    damaged = path.read_bytes()[position : position + size]
    [saved] = repair_all(partition, tmp_path / "cut")
    assert saved == tmp_path / "cut" / "flights-0" / f"{path.name}@{position}+{size}"
    assert saved.read_bytes() == damaged
    assert not found(partition, Damage) and not found(partition, BadIndex)
    for was_clean in (True, False):
        again = open_log(partition, config(segment_bytes=2500), was_clean=was_clean)
        assert read_all(again) == [record for record in before if not first <= record.offset <= last]
        assert again.log_end_offset == 120
    assert not list(partition.glob("*.cleaned"))


def test_a_second_repair_saves_beside_the_first(partition: Path, tmp_path: Path) -> None:
    pristine = segments(partition)[0].read_bytes()
    names = []
    for _ in range(2):
        segments(partition)[0].write_bytes(pristine)
        flip(segments(partition)[0], places(segments(partition)[0])[0][0] + 65)
        names += [path.name for path in repair_all(partition, tmp_path / "cut")]
    assert len(set(names)) == 2


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 0.999), st.integers(0, 7)), min_size=1, max_size=6))
def test_whatever_bits_flip_all_records_outside_of_what_was_told_survive(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, float, int]]
) -> None:
    directory = tmp_path_factory.mktemp("flipped") / "flights-0"
    shutil.copytree(whole, directory)
    before = read_all(open_log(directory, config(segment_bytes=2500), was_clean=True))
    last_batch = len(places(segments(directory)[2])) - 1
    hits = [hit(segments(directory)[number], part) for number, part, _ in flips]
    for (number, _, bit), (place, batch, inside) in zip(flips, hits, strict=True):
        path = segments(directory)[number]
        # No checksum has the base offset: only the batches beside tell that it is wrong, unless they are damaged too.
        alone = not any(
            other == number and abs(at - batch) == 1 for (other, *_), (_, at, _) in zip(flips, hits, strict=True)
        )
        is_last = number == 2 and batch == last_batch
        if inside >= 8 or (alone and not is_last):
            flip(path, place, 1 << bit)
    damages = [each for each in verify(directory) if isinstance(each, Damage)]
    recovery_points = directory.parent / RECOVERY_POINT
    write_offsets(LocalFiles(), recovery_points, {PARTITION: 0})
    repair_all(directory, directory.parent / "cut")
    assert not found(directory, Damage)
    lost = {
        offset
        for each in damages
        for offset in range(each.first_offset, (120 if each.last_offset is None else each.last_offset + 1))
    }
    recovery_point = read_offsets(LocalFiles(), recovery_points)[PARTITION]
    after = read_all(open_log(directory, config(segment_bytes=2500), recovery_point=recovery_point))
    assert after == [record for record in before if record.offset not in lost]
    shutil.rmtree(directory.parent)


def test_bad_indexes_are_made_again(partition: Path, tmp_path: Path) -> None:
    index = next(path for path in sorted(partition.glob("*.index")) if path.stat().st_size)
    good = index.read_bytes()
    flip(index, 7, 1)
    assert repair_all(partition, tmp_path / "cut") == []
    assert index.exists()
    assert index.read_bytes() != good
    assert not found(partition, BadIndex)


def test_a_directory_that_a_broker_has_is_refused(tmp_path: Path) -> None:
    held = DataDirectory(LocalFiles(), tmp_path)
    with pytest.raises(DataDirectoryRefused, match="in use by a running broker"):
        repairs.lock(LocalFiles(), tmp_path)
    held.release()
    lock = repairs.lock(LocalFiles(), tmp_path)
    assert lock is not None
    lock.release()
    assert repairs.lock(LocalFiles(), tmp_path / "elsewhere") is None


def test_what_a_partition_takes(partition: Path) -> None:
    (partition / "00000000000000000000.log.deleted").write_bytes(b"x" * 1000)
    usage = usage_of(LocalFiles(), partition)
    assert usage.log_bytes == sum(path.stat().st_size for path in segments(partition))
    assert usage.other_bytes >= 1000
    assert usage.total_bytes == sum(path.stat().st_size for path in partition.iterdir())
    assert usage.segments == len(segments(partition))
