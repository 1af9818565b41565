"""The requests and responses of Kafka 0.7. Its request types have the numbers of other APIs today.

    request        size int32 | type int16 | body
    produce     0  PART                      PART: topic string | partition int32 | size int32 | messages
    fetch       1  PART                      PART: topic string | partition int32 | offset int64 | max bytes int32
    multifetch  2  count int16 | fetch PART …
    multiproduce 3 count int16 | produce PART …
    offsets     4  topic string | partition int32 | time int64 | max offsets int32

    response       size int32 | error int16 | body
    fetch          messages
    multifetch     a whole fetch response, with its size and error, for each part
    offsets        count int32 | offset int64 …

A string is an int16 length and UTF-8. A produce has no response. Requests have neither a version, a correlation id nor
a client id; responses come in the order of the requests. Partition -1 of a produce is any partition. Messages are those
of `records.legacy.format_07`. Source: Kafka 0.7.2's RequestKeys, ProducerRequest, FetchRequest, OffsetRequest,
MessageSetSend, ErrorMapping.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from headrace.errors import ErrorCode, InvalidRequest, known_code
from headrace.limits import INT32_MAX, REQUEST_PARTS_07_MAX

Bytes = bytes | bytearray | memoryview

ANY_PARTITION = -1
LATEST, EARLIEST = -1, -2
"""The times in an offsets request that stand for the end and the start of the log."""


class RequestType(IntEnum):
    """What a request asks for (int16)."""

    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4


class ErrorCode07(IntEnum):
    """The errors of Kafka 0.7 (int16)."""

    UNKNOWN = -1
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


_CODES = {
    ErrorCode.NONE: ErrorCode07.NO_ERROR,
    ErrorCode.OFFSET_OUT_OF_RANGE: ErrorCode07.OFFSET_OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE: ErrorCode07.INVALID_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode07.WRONG_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode07.WRONG_PARTITION,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode07.INVALID_FETCH_SIZE,
}


def code_07(code: int) -> ErrorCode07:
    """The error of Kafka 0.7 for one of today; UNKNOWN for those that it did not have."""
    return _CODES.get(known_code(code), ErrorCode07.UNKNOWN)


class ProducePart(NamedTuple):
    """Messages for one partition; -1 is any."""

    topic: str
    partition: int
    messages: Bytes


class FetchPart(NamedTuple):
    """A range of one partition: at most `max_bytes` from the position `offset` on."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class OffsetsPart(NamedTuple):
    """A question for up to `max_offsets` positions of segments last written by `time_ms`, LATEST or EARLIEST."""

    topic: str
    partition: int
    time_ms: int
    max_offsets: int


class ProduceRequest07(NamedTuple):
    """A produce or a multiproduce."""

    parts: Sequence[ProducePart]


class FetchRequest07(NamedTuple):
    """A fetch, or a multifetch, whose response has another form."""

    parts: Sequence[FetchPart]
    is_multi: bool


class OffsetsRequest07(NamedTuple):
    """An offsets request."""

    part: OffsetsPart


Request = ProduceRequest07 | FetchRequest07 | OffsetsRequest07

_SHORT, _PRODUCE, _FETCH, _OFFSETS = Struct(">h"), Struct(">ii"), Struct(">iqi"), Struct(">iqi")
_ERROR, _COUNT = Struct(">ih"), Struct(">i")


def read_request(frame: memoryview) -> Request:
    """The request in a frame, which has no size before it. Messages are views of the frame.

    Raises InvalidRequest for an unknown type, for a frame that is too short or too long for its content, and for more
    than REQUEST_PARTS_07_MAX parts.
    """
    number, pos = _short(frame, 0)
    if not 0 <= number < len(RequestType):
        raise InvalidRequest(f"request type {number} is not one of Kafka 0.7, which has 0 to {len(RequestType) - 1}")
    kind, count = RequestType(number), 1
    is_multi = kind in (RequestType.MULTIFETCH, RequestType.MULTIPRODUCE)
    if is_multi:
        count, pos = _short(frame, pos)
        if not 0 <= count <= REQUEST_PARTS_07_MAX:
            raise InvalidRequest(f"a request of Kafka 0.7 has {count} parts; the limit is {REQUEST_PARTS_07_MAX}")
    made: Request
    if kind in (RequestType.PRODUCE, RequestType.MULTIPRODUCE):
        produced = []
        for _ in range(count):
            each, pos = _produce_part(frame, pos)
            produced.append(each)
        made = ProduceRequest07(produced)
    elif kind is RequestType.OFFSETS:
        topic, partition, time_ms, offsets, pos = _with_numbers(frame, pos, _OFFSETS)
        made = OffsetsRequest07(OffsetsPart(topic, partition, time_ms, offsets))
    else:
        fetched = []
        for _ in range(count):
            topic, partition, offset, max_bytes, pos = _with_numbers(frame, pos, _FETCH)
            fetched.append(FetchPart(topic, partition, offset, max_bytes))
        made = FetchRequest07(fetched, is_multi)
    if pos != len(frame):
        raise InvalidRequest(f"a {kind.name.lower()} request of Kafka 0.7 has {len(frame) - pos} bytes too many")
    return made


def _short(frame: memoryview, pos: int) -> tuple[int, int]:
    if len(frame) - pos < _SHORT.size:
        raise InvalidRequest(f"a request of Kafka 0.7 ends after {len(frame)} bytes")
    return _SHORT.unpack_from(frame, pos)[0], pos + _SHORT.size


def _string(frame: memoryview, pos: int) -> tuple[str, int]:
    length, pos = _short(frame, pos)
    if not 0 <= length <= len(frame) - pos:
        raise InvalidRequest(f"a topic's name of {length} bytes does not fit a request of {len(frame)} bytes")
    try:
        return str(frame[pos : pos + length], "utf-8"), pos + length
    except UnicodeDecodeError:
        raise InvalidRequest("a topic's name is not UTF-8") from None


def _with_numbers(frame: memoryview, pos: int, numbers: Struct) -> tuple[str, int, int, int, int]:
    topic, pos = _string(frame, pos)
    if len(frame) - pos < numbers.size:
        raise InvalidRequest(f"a request of Kafka 0.7 ends after {len(frame)} bytes")
    first, second, third = numbers.unpack_from(frame, pos)
    return topic, first, second, third, pos + numbers.size


def _produce_part(frame: memoryview, pos: int) -> tuple[ProducePart, int]:
    topic, pos = _string(frame, pos)
    if len(frame) - pos < _PRODUCE.size:
        raise InvalidRequest(f"a request of Kafka 0.7 ends after {len(frame)} bytes")
    partition, size = _PRODUCE.unpack_from(frame, pos)
    pos += _PRODUCE.size
    if not 0 <= size <= len(frame) - pos:
        raise InvalidRequest(f"a message set of {size} bytes does not fit a request of {len(frame)} bytes")
    return ProducePart(topic, partition, frame[pos : pos + size]), pos + size


def encode_request(request: Request) -> bytes:
    """Encode a request with its size. One part makes a plain request, unless `is_multi`."""
    if isinstance(request, OffsetsRequest07):
        topic, *numbers = request.part
        return _sized(RequestType.OFFSETS, [_encode_string(topic), _OFFSETS.pack(*numbers)])
    if isinstance(request, FetchRequest07):
        parts = [_encode_string(topic) + _FETCH.pack(*numbers) for topic, *numbers in request.parts]
        kind = RequestType.MULTIFETCH if request.is_multi else RequestType.FETCH
        return _sized(kind, _counted(parts, is_multi=request.is_multi))
    parts = [
        b"".join((_encode_string(topic), _PRODUCE.pack(partition, len(messages)), messages))
        for topic, partition, messages in request.parts
    ]
    is_multi = len(parts) != 1
    kind = RequestType.MULTIPRODUCE if is_multi else RequestType.PRODUCE
    return _sized(kind, _counted(parts, is_multi=is_multi))


def _counted(parts: list[bytes], *, is_multi: bool) -> list[bytes]:
    return [_SHORT.pack(len(parts)), *parts] if is_multi else parts


def _encode_string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _sized(kind: RequestType, chunks: Iterable[bytes]) -> bytes:
    body = b"".join((_SHORT.pack(kind), *chunks))
    return _COUNT.pack(len(body)) + body


class FetchedPart07(NamedTuple):
    """The answer to one part of a fetch."""

    error: ErrorCode07
    messages: Bytes = b""


def encode_fetched(parts: Sequence[FetchedPart07], *, is_multi: bool) -> bytes:
    """Encode the response to a fetch, which has one part, or to a multifetch, with its size."""
    chunks: list[Bytes] = []
    for error, messages in parts:
        chunks += (_ERROR.pack(len(messages) + _SHORT.size, error), messages)
    if is_multi:
        size = sum(map(len, chunks)) + _SHORT.size
        if size > INT32_MAX:
            raise ValueError(f"a response of {size} bytes is too large")
        chunks.insert(0, _ERROR.pack(size, ErrorCode07.NO_ERROR))
    return b"".join(chunks)


def encode_offsets(error: ErrorCode07, offsets: Sequence[int]) -> bytes:
    """Encode the response to an offsets request, with its size."""
    body = Struct(f">i{len(offsets)}q").pack(len(offsets), *offsets)
    return _ERROR.pack(len(body) + _SHORT.size, error) + body


def read_fetched(frame: Bytes, *, is_multi: bool) -> list[FetchedPart07]:
    """The parts of the response to a fetch or a multifetch, which has no size before it. Raises InvalidRequest."""
    view = memoryview(frame)
    error, pos = _short(view, 0)
    if not is_multi:
        return [FetchedPart07(ErrorCode07(error), view[pos:])]
    if error:
        raise InvalidRequest(f"the multifetch failed with error {error} of Kafka 0.7")
    found = []
    while pos < len(view):
        if len(view) - pos < _ERROR.size:
            raise InvalidRequest("the response to a multifetch is cut off")
        size, error = _ERROR.unpack_from(view, pos)
        end = pos + _COUNT.size + size
        if size < _SHORT.size or end > len(view):
            raise InvalidRequest("the response to a multifetch is cut off")
        found.append(FetchedPart07(ErrorCode07(error), view[pos + _ERROR.size : end]))
        pos = end
    return found


def read_offsets(frame: Bytes) -> tuple[ErrorCode07, list[int]]:
    """The error and the offsets of the response to an offsets request. Raises InvalidRequest."""
    view = memoryview(frame)
    error, pos = _short(view, 0)
    if error:
        return ErrorCode07(error), []
    if len(view) - pos < _COUNT.size:
        raise InvalidRequest("the response to an offsets request is cut off")
    (count,) = _COUNT.unpack_from(view, pos)
    numbers = Struct(f">{max(0, count)}q")
    if len(view) - pos - _COUNT.size != numbers.size:
        raise InvalidRequest(f"{count} offsets do not fit a response of {len(view)} bytes")
    return ErrorCode07(error), list(numbers.unpack_from(view, pos + _COUNT.size))
