"""Aborted transactions are left out, whatever lies between."""

from headrace.client.consumer.fetched_batches import ChunkRecords, ConsumerRecord, ReadOptions, columns_of
from headrace.client.consumer.fetching import READ_COMMITTED, READ_UNCOMMITTED, Fetched, following_offset
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.control import ABORT, COMMIT, Marker, encode_marker
from headrace.types import Offset, TopicPartition

P = TopicPartition("t", 0)


def data(offset: int, producer: int, *values: bytes) -> bytes:
    records = [Record(0, 0, None, value) for value in values]
    return bytes(encode_batch(records, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0,
                              is_transactional=producer >= 0))  # fmt: skip


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    kind = Marker(COMMIT if commit else ABORT, 0)
    return bytes(encode_marker(kind, base_offset=offset, producer_id=producer, producer_epoch=0, timestamp_ms=0))


# producer 1 aborts 0-1, commits 6; producer 2 commits 2; 4 is of no transaction
LOG = b"".join(
    [
        data(0, 1, b"aborted", b"aborted too"),
        data(2, 2, b"committed"),
        marker(3, 1, commit=False),
        data(4, -1, b"plain"),
        marker(5, 2, commit=True),
        data(6, 1, b"of the next transaction"),
        marker(7, 1, commit=True),
    ]
)


def fetched(records: bytes, aborted: tuple[tuple[int, int], ...]) -> Fetched:
    return Fetched(memoryview(records), Offset(8), Offset(8), Offset(0), aborted)


def values(found: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in found]


def test_a_committed_reader_sees_committed_records_only() -> None:
    answer = fetched(LOG, ((1, 0),))
    kept = [b"committed", b"plain", b"of the next transaction"]
    assert values(ChunkRecords(P, answer, Offset(0), READ_COMMITTED).take(100)) == kept
    columns = list(columns_of(answer, Offset(0), None, ReadOptions(isolation_level=READ_COMMITTED)))
    assert [c.values.value(row) for c in columns if c.values for row in range(c.count)] == kept
    assert columns[-1].next_offset == 8


def test_an_uncommitted_reader_sees_everything_but_markers() -> None:
    assert len(ChunkRecords(P, fetched(LOG, ((1, 0),)), Offset(0), READ_UNCOMMITTED).take(100)) == 5


def test_reading_may_start_inside_an_aborted_transaction() -> None:
    found = ChunkRecords(P, fetched(LOG, ((1, 0),)), Offset(1), READ_COMMITTED).take(100)
    assert values(found) == [b"committed", b"plain", b"of the next transaction"]


def test_a_chunk_of_nothing_but_aborted_records_moves_on() -> None:
    only = data(0, 1, b"x") + marker(1, 1, commit=False)
    assert list(columns_of(fetched(only, ((1, 0),)), Offset(0), None, ReadOptions(isolation_level=1))) == []
    assert following_offset(memoryview(only), Offset(0)) == 2


def test_the_following_offset_ignores_a_batch_that_is_cut_off() -> None:
    assert following_offset(memoryview(LOG)[:-1], Offset(0)) == 7
    assert following_offset(memoryview(LOG)[:20], Offset(0)) == 0
    assert following_offset(memoryview(b""), Offset(9)) == 9
