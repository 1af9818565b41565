"""Metrics as OTLP's `MetricsData`, in protobuf's wire format: what a push carries. Pure.

    MetricsData      1 resource_metrics
    ResourceMetrics  1 resource (1 attributes)   2 scope_metrics
    ScopeMetrics     2 metrics
    Metric           1 name   5 gauge (1 points)   7 sum (1 points, 2 temporality: 1 delta 2 cumulative, 3 is_monotonic)
    NumberDataPoint  2 start_time_unix_nano fixed64   3 time_unix_nano fixed64   4 as_double fixed64   7 attributes
    KeyValue         1 key   2 value (1 string)

Written here, because the libraries for it take longer to import than the client. Source: OpenTelemetry's
`metrics.proto`, KIP-714.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import NamedTuple

_BYTES, _FIXED64, _VARINT = 2, 1, 0
_GAUGE, _SUM = 5, 7
_DELTA, _CUMULATIVE = 1, 2
_times_and_value = Struct("<BQBQBd")
_TIMES_AND_VALUE_TAGS = tuple(field << 3 | _FIXED64 for field in (2, 3, 4))


class Point(NamedTuple):
    """One value."""

    name: str
    attributes: Mapping[str, str]
    value: float
    is_sum: bool
    """Whether it counts something, and never decreases; otherwise it is what it is at the moment."""
    start_ns: int
    """When a sum began to count, in nanoseconds since 1970."""


def metrics_data(points: Iterable[Point], resource: Mapping[str, str], now_ns: int, *, is_delta: bool) -> bytes:
    """The values, one metric each. `resource`: attributes of the client. `is_delta`: sums count from the last push."""
    metrics = b"".join(_message(2, _metric(point, now_ns, is_delta=is_delta)) for point in points)
    return _message(1, _message(1, _attributes(1, resource)) + _message(2, metrics))


def _metric(point: Point, now_ns: int, *, is_delta: bool) -> bytes:
    start, time, value = _TIMES_AND_VALUE_TAGS
    numbers = _times_and_value.pack(start, point.start_ns, time, now_ns, value, point.value)
    data = _message(1, numbers + _attributes(7, point.attributes))
    if point.is_sum:
        data += bytes([2 << 3 | _VARINT, _DELTA if is_delta else _CUMULATIVE, 3 << 3 | _VARINT, True])
    return _message(1, point.name.encode()) + _message(_SUM if point.is_sum else _GAUGE, data)


def _attributes(field: int, attributes: Mapping[str, str]) -> bytes:
    return b"".join(
        _message(field, _message(1, key.encode()) + _message(2, _message(1, text.encode())))
        for key, text in attributes.items()
    )


def _message(field: int, body: bytes) -> bytes:
    return bytes([field << 3 | _BYTES]) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
