"""The shortest way of a read finds the range that `PartitionLog.read` finds, or leaves it to it."""

import random
from array import array
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from headrace.errors import KafkaError
from headrace.log import plain_read as compiled
from headrace.log import truncation, upkeep
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.log.plain_read import PLACE_FIELDS, POSITION, SIZE
from tests.log.cleaning import clean, open_compacted, put
from tests.log.support import NOW_MS, append, config, open_log
from tests.uncompiled import uncompiled

FORMS = pytest.mark.parametrize("form", [compiled, uncompiled(compiled)], ids=["compiled", "uncompiled"])


class Asked(NamedTuple):
    """The arguments of a read."""

    offset: int
    max_bytes: int
    end_offset: int
    at_least_one: bool


def found_plainly(form: ModuleType, log: PartitionLog, asked: Asked) -> tuple[object, int, int] | None:
    place = memoryview(array("q", bytes(8 * PLACE_FIELDS)))
    file = form.read_plain(log, *asked, place)
    return None if file is None else (file, place[POSITION], place[SIZE])


def agrees(form: ModuleType, log: PartitionLog, asked: Asked) -> bool:
    """Whether the shortest way found the range; asserts that it is the right one."""
    found = found_plainly(form, log, asked)
    if found is None:
        return False
    offset, max_bytes, end_offset, at_least_one = asked
    expected = log.read(offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one)
    if expected.size:
        assert found == (expected.file, expected.position, expected.size), asked
    else:
        assert found[2] == 0, asked
    return True


def drawn(chance: random.Random, log: PartitionLog) -> Asked:
    start, end = log.log_start_offset, log.log_end_offset
    offset = chance.randint(start - 1, end + 1) if chance.random() < 0.9 else chance.choice((-1, start, end))
    most = chance.choice((0, 1, 61, 100, 500, 3_000, 1 << 20))
    end_offset = end if chance.random() < 0.5 else chance.randint(start, end)
    return Asked(offset, most, end_offset, chance.random() < 0.5)


@FORMS
@pytest.mark.parametrize("seed", range(4))
def test_both_reads_find_the_same(tmp_path: Path, form: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    settings = config(segment_bytes=6_000, index_interval_bytes=300)
    log = open_log(tmp_path, settings)
    taken = asked = 0
    for step in range(160):
        append(log, *(bytes(chance.randrange(300)) for _ in range(chance.choice((1, 1, 3)))))
        if chance.random() < 0.03:
            truncation.truncate_to(
                log, chance.randint(max(log.log_start_offset, log.log_end_offset - 9), log.log_end_offset), NOW_MS
            )
        if chance.random() < 0.03:
            log.restore_high_watermark(log.log_end_offset)
            upkeep.delete_records_before(log, chance.randint(log.log_start_offset, log.log_end_offset), NOW_MS)
        if step == 100:
            log.close(NOW_MS)
            log = open_log(tmp_path, settings, was_clean=True)
        for _ in range(12):
            one = drawn(chance, log)
            asked += 1
            taken += agrees(form, log, one)
    assert taken > asked * 0.6, "the shortest way took next to nothing"


@FORMS
def test_a_compacted_log_with_gaps_is_read_alike(tmp_path: Path, form: ModuleType) -> None:
    chance = random.Random(5)
    log = open_compacted(tmp_path, LocalFiles(), segment_bytes=1_500, index_interval_bytes=200)
    taken = 0
    for turn in range(6):
        for number in range(40):
            put(log, (f"k{chance.randrange(12)}", "v" * chance.randrange(90) + str(number)))
        clean(log, NOW_MS + turn)
        for _ in range(120):
            one = drawn(chance, log)
            taken += agrees(form, log, one)
    assert len(log.segments) > 1
    assert taken > 100


@FORMS
def test_what_has_to_be_opened_or_refused_is_left_alone(tmp_path: Path, form: ModuleType) -> None:
    log = open_log(tmp_path, config(segment_bytes=2_000))
    for _ in range(60):
        append(log, bytes(100))
    log.close(NOW_MS)
    log = open_log(tmp_path, config(segment_bytes=2_000), was_clean=True)
    first = Asked(0, 100, log.log_end_offset, True)
    assert found_plainly(form, log, first) is None, "the file is not open yet"
    log.read(0, 100, end_offset=log.log_end_offset, at_least_one=True)
    assert agrees(form, log, first)
    for offset in (-1, log.log_end_offset + 1):
        asked = Asked(offset, 100, log.log_end_offset, True)
        assert found_plainly(form, log, asked) is None
        with pytest.raises(KafkaError):
            log.read(offset, 100, end_offset=log.log_end_offset, at_least_one=True)


@FORMS
def test_an_index_entry_that_names_no_batch_is_left_to_the_general_read(tmp_path: Path, form: ModuleType) -> None:
    log = open_log(tmp_path, config(segment_bytes=4_000, index_interval_bytes=200))
    for _ in range(60):
        append(log, bytes(100))
    index = log.segments[0].indexes.offset_index
    asked = Asked(8, 100, log.log_end_offset, True)
    assert agrees(form, log, asked)
    for number in range(len(index.values)):
        index.values[number] += 7
    assert found_plainly(form, log, asked) is None
    log.read(8, 100, end_offset=log.log_end_offset, at_least_one=True)  # rebuilds the indexes
    assert agrees(form, log, asked)
