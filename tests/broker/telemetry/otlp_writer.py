"""Writes OTLP metrics, for tests of the decoder, which must not depend on the decoder's own reading."""

import struct
from collections.abc import Mapping

GAUGE, SUM, HISTOGRAM = 5, 7, 9
DELTA, CUMULATIVE = 1, 2


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def attribute(field: int, key: str, value: str) -> bytes:
    return message(field, message(1, key.encode()) + message(2, message(1, value.encode())))


def point(value: float, attributes: Mapping[str, str]) -> bytes:
    """An integer or a floating point number, with times that are skipped."""
    number = struct.pack("<Bq", 6 << 3 | 1, value) if isinstance(value, int) else struct.pack("<Bd", 4 << 3 | 1, value)
    times = struct.pack("<BQBQ", 2 << 3 | 1, 10**18, 3 << 3 | 1, 10**18 + 1)
    return times + number + b"".join(attribute(7, key, text) for key, text in attributes.items())


def metric(
    name: str,
    points: Mapping[tuple[tuple[str, str], ...], float],
    kind: int = GAUGE,
    temporality: int = DELTA,
    *,
    is_monotonic: bool = True,
) -> bytes:
    body = b"".join(message(1, point(value, dict(attributes))) for attributes, value in points.items())
    if kind == SUM:
        body += varint(2 << 3) + varint(temporality) + varint(3 << 3) + varint(is_monotonic)
    return message(1, name.encode()) + message(2, b"described") + message(kind, body)


def payload(*metrics: bytes, **resource: str) -> bytes:
    resource_body = b"".join(attribute(1, key, text) for key, text in resource.items())
    scope = message(1, message(1, b"scope")) + b"".join(message(2, each) for each in metrics)
    return message(1, message(1, resource_body) + message(2, scope))
