"""A Fetch answer as objects, with damage in it."""

import pytest

from headrace.client.chunks import ChunkRecords
from headrace.client.fetching import Fetched
from headrace.errors import CorruptMessage
from headrace.records.batch import Record, encode_batch
from headrace.types import Offset, TopicPartition


def answer(*batches: bytes) -> Fetched:
    return Fetched(memoryview(b"".join(batches)), Offset(100), Offset(100), Offset(0), ())


def batch(base_offset: int, count: int) -> bytearray:
    return encode_batch([Record(0, 1, None, b"v%d" % n) for n in range(count)], base_offset=base_offset)


def chunk(*batches: bytes, position: int = 0) -> ChunkRecords:
    return ChunkRecords(TopicPartition("t", 4), answer(*batches), Offset(position), 0)


def test_records_are_taken_across_batches_and_from_the_middle_of_one() -> None:
    reading = chunk(batch(0, 5), batch(5, 5), batch(20, 2), position=3)
    taken = [[record.offset for record in reading.take(3)] for _ in range(4)]
    assert taken == [[3, 4, 5], [6, 7, 8], [9, 20, 21], []]
    assert reading.is_done


def test_good_records_come_before_the_damage_and_the_damage_again_and_again() -> None:
    damaged = batch(5, 5)
    damaged[-1] ^= 1
    reading = chunk(batch(0, 5), damaged, batch(10, 5))
    assert [record.offset for record in reading.take(100)] == [0, 1, 2, 3, 4]
    for _ in range(2):
        assert not reading.is_done
        with pytest.raises(CorruptMessage, match="t-4: the batch at offset 5 does not match its CRC"):
            reading.take(100)
