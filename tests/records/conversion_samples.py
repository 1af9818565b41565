"""Logs of mixed formats for the tests of conversion: some by hand, any at random."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.records.codecs.compression import Codec, compress
from headrace.records.format2.batch import Record, encode_batch, read_header, set_log_append_time
from headrace.records.format2.control import COMMIT, Marker, encode_marker
from headrace.records.format2.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, pack_header
from headrace.records.legacy.message_set import encode_message_set
from tests.records.varint import encode_varint

NOW_MS = 1_700_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@dataclass(frozen=True)
class Piece:
    """Records that were written together: one batch, one wrapper, or messages."""

    magic: int
    codec: Codec
    records: tuple[Record, ...]
    append_time_ms: int | None = None
    is_control: bool = False

    @property
    def data(self) -> bytes:
        """Its bytes."""
        if self.is_control:
            marker = Marker(COMMIT, 0)
            return bytes(
                encode_marker(
                    marker, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS, base_offset=self.records[0].offset
                )
            )
        if self.magic < 2:
            return bytes(
                encode_message_set(
                    self.records, magic=self.magic, codec=self.codec, base_offset=None,
                    log_append_time_ms=self.append_time_ms,
                )
            )  # fmt: skip
        batch = with_gaps(self.records, self.codec)
        if self.append_time_ms is not None:
            set_log_append_time(batch, read_header(batch), self.append_time_ms)
        return bytes(batch)

    def seen_as(self, to_magic: int) -> list[Record]:
        """What a reader of that format reads of it."""
        if self.is_control:
            return []
        headers = self.magic == to_magic == 2
        return [
            Record(row.offset, self._time_of(row, to_magic), row.key, row.value, row.headers if headers else ())
            for row in self.records
        ]

    def _time_of(self, row: Record, to_magic: int) -> int:
        if self.magic == 0 or to_magic == 0:
            return -1
        return row.timestamp_ms if self.append_time_ms is None else self.append_time_ms


def with_gaps(records: Sequence[Record], codec: Codec = Codec.NONE) -> bytearray:
    """A batch of format 2 whose offsets are the records' own: what compaction leaves of one. Written out by hand."""
    base, first_ms = records[0].offset, records[0].timestamp_ms
    if all(row.offset == base + i for i, row in enumerate(records)):
        return encode_batch(records, base_offset=base, codec=codec)
    body = bytearray()
    for row in records:
        one = bytearray(1) + encode_varint(row.timestamp_ms - first_ms) + encode_varint(row.offset - base)
        for part in (row.key, row.value):
            one += encode_varint(-1 if part is None else len(part)) + (part or b"")
        one += encode_varint(len(row.headers))
        for name, value in row.headers:
            one += encode_varint(len(name)) + name.encode()
            one += encode_varint(-1 if value is None else len(value)) + (value or b"")
        body += encode_varint(len(one)) + one
    packed = compress(codec, bytes(body))
    batch = bytearray(HEADER_BYTES) + packed
    header = BatchHeader(
        base, len(batch) - LOG_OVERHEAD_BYTES, -1, 2, 0, codec, records[-1].offset - base, first_ms,
        max(row.timestamp_ms for row in records), -1, -1, -1, len(records),
    )  # fmt: skip
    pack_header(batch, 0, header)
    return batch


def random_pieces(rng: random.Random, count: int, *, magics: Sequence[int] = (0, 1, 2)) -> list[Piece]:
    """Pieces of a log in order, with gaps between and inside them, no zstd."""
    pieces: list[Piece] = []
    offset = rng.randrange(3)
    for _ in range(count):
        magic = rng.choice(magics)
        rows = []
        for _ in range(rng.choice((1, 1, 2, 5, 30))):
            rows.append(_random_record(rng, offset, magic))
            offset += rng.choice((1, 1, 1, 1, 4))
        offset = rows[-1].offset + rng.choice((1, 1, 3))
        if magic == 2 and rng.random() < 0.2:
            pieces.append(Piece(2, Codec.NONE, (Record(rows[0].offset, NOW_MS, None, None),), is_control=True))
            continue
        append_time_ms = NOW_MS + rng.randrange(1000) if magic > 0 and rng.random() < 0.3 else None
        pieces.append(Piece(magic, rng.choice(OLD_CODECS), tuple(rows), append_time_ms))
    return pieces


def _random_record(rng: random.Random, offset: int, magic: int) -> Record:
    headers = (
        tuple((f"h{n}", rng.choice((None, b"", b"x"))) for n in range(rng.choice((0, 0, 2)))) if magic == 2 else ()
    )
    key = rng.choice((None, b"", rng.randbytes(rng.randrange(1, 12))))
    value = rng.choice((None, b"", rng.randbytes(rng.randrange(1, 200)), b"text " * rng.randrange(30)))
    return Record(offset, rng.choice((-1, 0, NOW_MS + rng.randrange(-5000, 5000))), key, value, headers)
