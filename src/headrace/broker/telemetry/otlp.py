"""A decoder of the metrics that clients push: OTLP's `MetricsData`, in protobuf's wire format.

    MetricsData      1 resource_metrics
    ResourceMetrics  1 resource (1 attributes)   2 scope_metrics
    ScopeMetrics     2 metrics
    Metric           1 name   5 gauge (1 points)   7 sum (1 points, 2 temporality: 1 delta 2 cumulative, 3 is_monotonic)
    NumberDataPoint  4 as_double fixed64   6 as_int sfixed64   7 attributes
    KeyValue         1 key   2 value (1 string, 2 bool, 3 int, 4 double)

Only numbers are read: clients push no histograms (KIP-714). Other fields are skipped, as protobuf demands. A payload of
more than `FIELDS_MAX` fields is refused. The decoder is written here, because protobuf's library builds a tree of the
whole payload before a limit can apply, and takes as long to import as a broker to start. Pure.
Source: OpenTelemetry's `metrics.proto`.
"""

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from headrace.errors import CorruptMessage

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA = 1
_VARINT_BITS_MAX = 63
_double, _int64 = Struct("<d"), Struct("<q")

FIELDS_MAX = 500_000
"""Fields of one payload, at all levels: about twenty for each value. They take half a second to read."""

Attributes = tuple[tuple[str, str], ...]
_Field = tuple[int, int, int | memoryview]
"""A field's number, wire type, and value: an integer, or the bytes of a fixed number or a submessage."""


class Metric(NamedTuple):
    """One metric with its points."""

    name: str
    is_counter: bool
    """Whether it is a monotonic sum."""
    is_delta: bool
    """Whether the points count from the client's previous push, not from its start."""
    points: list[tuple[Attributes, float]]
    resource: Attributes
    """The attributes of the client itself."""


def read_metrics(payload: bytes | bytearray | memoryview) -> list[Metric]:
    """The metrics of a payload, without those of a kind that is not read. Raises `CorruptMessage`."""
    try:
        return list(_Reader().metrics(memoryview(payload)))
    except (error, UnicodeDecodeError) as broken:
        raise CorruptMessage(f"the metrics are no OTLP: {broken}") from None


class _Reader:
    """Reads one payload, and counts its fields."""

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def metrics(self, message: memoryview) -> Iterator[Metric]:
        for number, kind, resource_metrics in self._fields(message):
            if number == 1:
                yield from self._resource_metrics(_submessage(kind, resource_metrics))

    def _resource_metrics(self, message: memoryview) -> Iterator[Metric]:
        resource: Attributes = ()
        scopes = []
        for number, kind, value in self._fields(message):
            if number == 1:
                resource = self._attributes(_submessage(kind, value), 1)
            elif number == 2:
                scopes.append(_submessage(kind, value))
        for scope in scopes:
            for number, kind, value in self._fields(scope):
                if number == 2:
                    found = self._metric(_submessage(kind, value), resource)
                    if found is not None:
                        yield found

    def _metric(self, message: memoryview, resource: Attributes) -> Metric | None:
        name, data, is_sum = "", None, False
        for number, kind, value in self._fields(message):
            if number == 1:
                name = _text(_submessage(kind, value))
            elif number in (5, 7):
                data, is_sum = _submessage(kind, value), number == 7
        if data is None:
            return None
        points, temporality, is_monotonic = [], 0, False
        for number, kind, value in self._fields(data):
            if number == 1:
                points.append(self._point(_submessage(kind, value)))
            elif number == 2 and is_sum:
                temporality = _integer(kind, value)
            elif number == 3 and is_sum:
                is_monotonic = bool(_integer(kind, value))
        return Metric(name, is_monotonic, is_sum and temporality == _DELTA, points, resource)

    def _point(self, message: memoryview) -> tuple[Attributes, float]:
        point = 0.0
        for number, kind, value in self._fields(message):
            if number == 4:
                point = _double.unpack(_fixed(kind, value))[0]
            elif number == 6:
                point = _int64.unpack(_fixed(kind, value))[0]
        return self._attributes(message, 7), point

    def _attributes(self, message: memoryview, field: int) -> Attributes:
        found = []
        for number, kind, value in self._fields(message):
            if number == field:
                key, text = "", ""
                for part, part_kind, part_value in self._fields(_submessage(kind, value)):
                    if part == 1:
                        key = _text(_submessage(part_kind, part_value))
                    elif part == 2:
                        text = self._any_value(_submessage(part_kind, part_value))
                found.append((key, text))
        return tuple(found)

    def _any_value(self, message: memoryview) -> str:
        for number, kind, value in self._fields(message):
            match number:
                case 1:
                    return _text(_submessage(kind, value))
                case 2:
                    return "true" if _integer(kind, value) else "false"
                case 3:
                    raw = _integer(kind, value)
                    return str(raw - (1 << 64) if raw >> 63 else raw)
                case 4:
                    return str(_double.unpack(_fixed(kind, value))[0])
        return ""

    def _fields(self, message: memoryview) -> Iterator[_Field]:
        pos, end = 0, len(message)
        while pos < end:
            self._left -= 1
            if self._left < 0:
                raise CorruptMessage(f"the metrics have more than {FIELDS_MAX} fields")
            tag, pos = _varint(message, pos)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, pos = _varint(message, pos)
                yield number, kind, value
                continue
            if kind == _BYTES:
                size, pos = _varint(message, pos)
            elif kind == _FIXED64:
                size = 8
            elif kind == _FIXED32:
                size = 4
            else:
                raise CorruptMessage(f"the metrics are no OTLP: field {number} has the unknown wire type {kind}")
            if size > end - pos:
                raise CorruptMessage(f"the metrics are no OTLP: field {number} of {size} bytes ends after its message")
            yield number, kind, message[pos : pos + size]
            pos += size


def _varint(message: memoryview, pos: int) -> tuple[int, int]:
    value = shift = 0
    while pos < len(message) and shift <= _VARINT_BITS_MAX:
        byte = message[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, pos
        shift += 7
    raise CorruptMessage("the metrics are no OTLP: a number is cut off or too long")


def _submessage(kind: int, value: int | memoryview) -> memoryview:
    if kind != _BYTES or not isinstance(value, memoryview):
        raise CorruptMessage("the metrics are no OTLP: a number is where a message should be")
    return value


def _fixed(kind: int, value: int | memoryview) -> memoryview:
    if kind != _FIXED64 or not isinstance(value, memoryview):
        raise CorruptMessage("the metrics are no OTLP: a point's value has the wrong type")
    return value


def _integer(kind: int, value: int | memoryview) -> int:
    if kind != _VARINT or not isinstance(value, int):
        raise CorruptMessage("the metrics are no OTLP: a field has the wrong type")
    return value


def _text(data: memoryview) -> str:
    return str(data, "utf-8")
