"""A Fetch answer as objects, with damage in it."""

import pytest

from headrace.client.consumer.fetched_batches import ChunkRecords, columns_of
from headrace.client.consumer.fetching import Fetched, following_offset
from headrace.errors import CorruptMessage
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message_set import encode_message_set
from headrace.types import Offset, TopicPartition


def answer(*batches: bytes | bytearray) -> Fetched:
    return Fetched(memoryview(b"".join(batches)), Offset(100), Offset(100), Offset(0), ())


def batch(base_offset: int, count: int) -> bytearray:
    return encode_batch([Record(0, 1, None, b"v%d" % n) for n in range(count)], base_offset=base_offset)


def chunk(*batches: bytes | bytearray, position: int = 0) -> ChunkRecords:
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


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_of_every_format_are_taken_one_behind_the_other(codec: Codec) -> None:
    records = [
        Record(0, 7, b"key", b"value"), Record(1, 8, None, b""), Record(2, 9, b"", None), Record(3, 9, b"k", b"v")
    ]  # fmt: skip
    first = encode_message_set([each._replace(timestamp_ms=-1) for each in records], magic=0, codec=codec)
    second = encode_message_set(records, magic=1, codec=codec, base_offset=4)
    third = encode_batch(records, codec=codec, base_offset=8)
    reading = chunk(first, second, third, position=1)
    taken = [record for _ in range(5) for record in reading.take(3)]
    assert [each.offset for each in taken] == list(range(1, 12))
    assert [(each.key, each.value, each.headers) for each in taken] == [(r.key, r.value, ()) for r in records * 3][1:]
    assert [each.timestamp_ms for each in taken] == [-1] * 3 + [7, 8, 9, 9] * 2
    columns = list(columns_of(answer(first, second, third), Offset(1)))
    assert [offset for each in columns for offset in each.offsets] == list(range(1, 12))


def test_the_next_fetch_begins_behind_the_last_message_of_an_old_format() -> None:
    records = [Record(0, 7, b"key", b"value")] * 3
    messages = encode_message_set(records, magic=1, codec=Codec.GZIP, base_offset=4)
    assert following_offset(memoryview(messages), Offset(0)) == 7
