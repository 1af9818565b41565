# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The plain Produce: reads and answers the requests of most producers without an object per struct.

A request is plain if it has version 3-13, an ASCII client id or none, acks 1 or all, no transaction, no tagged field,
at least one topic and partition, and records in each partition. The general decoder reads all other requests, and
malformed ones, so this module never has to report what is wrong.

The module is compiled, because it is most of the cost of a producer that sends one record at a time: it reads a request
in a quarter of the time of the general decoder, which is Python. It also runs uncompiled, more slowly.

    request    header: key int16 | version int16 | correlation id int32 | client id int16-string | (tags)
               transactional id string? | acks int16 | timeout_ms int32 | topics [name string, 13+: id uuid
               | partitions [index int32 | records bytes | (tags)] | (tags)] | (tags)
    response   correlation id int32 | (tags) | topics [name, or id | partitions [index int32 | error int16
               | base offset int64 | log append time int64 | 5+: log start offset int64 | 8+: record errors []
               | 8+: error message string? | (tags)] | (tags)] | throttle_time_ms int32 | (tags)

The parts in parentheses exist from version 9 on. There, lengths are unsigned varints, and one more than the count.
Source: Kafka's ProduceRequest.json and ProduceResponse.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if not cython.compiled:
    from headrace.octets import int16_at, int32_at, is_ascii, length_at

VERSION_MIN, VERSION_MAX = 3, 13
_LOG_START_FROM, _MESSAGES_FROM, _FLEXIBLE_FROM, _IDS_FROM = 5, 8, 9, 13

_REQUEST_BYTES_MIN = 30
_CLIENT_AT = 10
_UUID_BYTES = 16
_PARTITIONS_MAX = 10_000
"""More of them are no plain request either: what is made of each is bounded elsewhere."""

_frame_head = Struct(">ii")
_count = Struct(">i")
_length = Struct(">h")
_placed_old = Struct(">ihqq")
_placed = Struct(">ihqqq")


class PlainBatch:
    """One partition's part of a request: `topic` (its name, or from version 13 on its id), `index`, and `records`, a
    view of the frame."""

    __slots__ = ("index", "records", "topic")

    def __init__(self, topic: str | bytes, index: int, records: memoryview) -> None:
        self.topic, self.index, self.records = topic, index, records


class PlainProduce:
    """A plain request, valid as long as its frame. `batches` are grouped by topic; `counts` has their number in each
    topic."""

    __slots__ = ("_client_end", "_frame", "acks", "api_version", "batches", "correlation_id", "counts", "timeout_ms")

    def __init__(
        self,
        api_version: int,
        correlation_id: int,
        acks: int,
        timeout_ms: int,
        batches: list[PlainBatch],
        counts: list[int],
        frame: memoryview,
        client_end: int,
    ) -> None:
        self._frame, self._client_end = frame, client_end
        self.api_version, self.correlation_id = api_version, correlation_id
        self.acks, self.timeout_ms = acks, timeout_ms
        self.batches, self.counts = batches, counts

    @property
    def client_id(self) -> str | None:
        """The client's own name for itself. Made when it is asked for, which few requests are."""
        return None if self._client_end < _CLIENT_AT else str(self._frame[_CLIENT_AT : self._client_end], "ascii")

    def is_all_of(self, topics: set[str | bytes]) -> bool:
        """Whether each batch is of one of these topics, by name or id."""
        for each in self.batches:  # noqa: SIM110 - compiled, a loop is cheaper than a generator
            if each.topic not in topics:
                return False
        return True


def read_plain_produce(frame: memoryview) -> PlainProduce | None:
    """The plain request in a frame; None for any other frame."""
    end = len(frame)
    if end < _REQUEST_BYTES_MIN or frame[0] or frame[1]:
        return None
    return _read(frame, frame, end)


def _read(octets: memoryview, frame: memoryview, end: int) -> PlainProduce | None:
    """`octets` and `frame` are the same bytes: the first for parsing, the second for views of the records."""
    buf = cython.address(octets[0]) if cython.compiled else octets
    version = int16_at(buf, 2)
    if version < VERSION_MIN or version > VERSION_MAX:
        return None
    is_flexible = version >= _FLEXIBLE_FROM
    string_width, array_width = (0, 0) if is_flexible else (2, 4)
    length, pos = length_at(buf, 8, end, 2)
    if length > 0:
        if length > end - pos or not is_ascii(buf, pos, pos + length):
            return None
        pos += length
    elif length < -1:
        return None
    client_end = pos if length >= 0 else 0
    if is_flexible:
        if pos >= end or buf[pos]:  # tagged fields of the header
            return None
        pos += 1
    length, pos = length_at(buf, pos, end, string_width)
    if pos < 0 or length != -1 or end - pos < 6:
        return None
    acks = int16_at(buf, pos)
    if acks != 1 and acks != -1:
        return None
    timeout_ms = int32_at(buf, pos + 2)
    topics, pos = length_at(buf, pos + 6, end, array_width)
    if pos < 0 or topics < 1 or topics > _PARTITIONS_MAX:
        return None
    batches: list[PlainBatch] = []
    counts: list[int] = []
    while topics > 0:
        topics -= 1
        if version >= _IDS_FROM:
            start, pos = pos, pos + _UUID_BYTES
            if pos > end:
                return None
            topic: str | bytes = frame[start:pos].tobytes()
        else:
            length, start = length_at(buf, pos, end, string_width)
            if start < 0 or length < 1 or length > end - start or not is_ascii(buf, start, start + length):
                return None
            pos = start + length
            topic = str(frame[start:pos], "ascii")
        partitions, pos = length_at(buf, pos, end, array_width)
        if pos < 0 or partitions < 1 or partitions > _PARTITIONS_MAX:
            return None
        counts.append(partitions)
        while partitions > 0:
            partitions -= 1
            if end - pos < 4:
                return None
            index = int32_at(buf, pos)
            length, start = length_at(buf, pos + 4, end, array_width)
            if start < 0 or length < 1 or length > end - start:
                return None
            pos = start + length
            batches.append(PlainBatch(topic, index, frame[start:pos]))
            if is_flexible:
                if pos >= end or buf[pos]:
                    return None
                pos += 1
        if is_flexible:
            if pos >= end or buf[pos]:
                return None
            pos += 1
    if is_flexible:
        if pos >= end or buf[pos]:
            return None
        pos += 1
    if pos != end:
        return None
    return PlainProduce(version, int32_at(buf, 4), acks, timeout_ms, batches, counts, frame, client_end)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_plain_answer(request: PlainProduce, placed: Sequence[tuple[int, int, int]]) -> bytes:
    """The whole frame that answers a request of which every batch was appended.

    `placed` has for each batch its base offset, its log append time (-1: its own times hold) and its log's start.
    """
    version = request.api_version
    is_flexible = version >= _FLEXIBLE_FROM
    counts, batches = request.counts, request.batches
    pieces = [b"\0" + _uvarint(len(counts) + 1) if is_flexible else _count.pack(len(counts))]
    number = 0
    for partitions in counts:
        topic = batches[number].topic
        if isinstance(topic, str):
            name = topic.encode("ascii")
            pieces.append(_uvarint(len(name) + 1) if is_flexible else _length.pack(len(name)))
            pieces.append(name)
        else:
            pieces.append(topic)
        pieces.append(_uvarint(partitions + 1) if is_flexible else _count.pack(partitions))
        for _ in range(partitions):
            base_offset, append_time_ms, log_start_offset = placed[number]
            index = batches[number].index
            number += 1
            if version >= _LOG_START_FROM:
                pieces.append(_placed.pack(index, 0, base_offset, append_time_ms, log_start_offset))
                if is_flexible:
                    pieces.append(b"\1\0\0")  # no record errors, no message, no tags
                elif version >= _MESSAGES_FROM:
                    pieces.append(b"\0\0\0\0\xff\xff")
            else:
                pieces.append(_placed_old.pack(index, 0, base_offset, append_time_ms))
        if is_flexible:
            pieces.append(b"\0")
    pieces.append(b"\0\0\0\0\0" if is_flexible else b"\0\0\0\0")
    body = b"".join(pieces)
    return _frame_head.pack(len(body) + 4, request.correlation_id) + body
