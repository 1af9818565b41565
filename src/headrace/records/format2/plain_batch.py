# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The check of a produced batch that is as most are: no attributes, nothing to correct, nothing to refuse.

`is_plain` makes all checks of `validation.check_produced`. Where one fails it says only that: the general check finds
out why. So the rules of refusals stay in one place. The fields of the header that an append needs go into an array, and
no object is made. Compiled, because every small request has one such batch; it also runs uncompiled.

Source: see `validation` and `header`.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

from headrace.records.codecs.crc import crc32c
from headrace.records.format2.kernel import walk

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.records.codecs.crc32c_words import (
        crc32c_has_instruction,
        crc32c_prepare,
        crc32c_words,
    )

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Ints: TypeAlias = "array[int] | memoryview"

RECORD_COUNT, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, BATCH_FIELDS = range(6)
"""The places of a header's fields in the array, and their number."""

_COUNT, _MAX_TIMESTAMP, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE = 0, 1, 2, 3, 4  # the same, as C integers
_HEADER_BYTES, _LOG_OVERHEAD, _CHECKED_FROM, _MAGIC = 61, 12, 21, 2


def _has_instruction() -> bool:
    """Whether the processor computes CRC-32C, and there is a compiled form to have it do so."""
    if cython.compiled:
        crc32c_prepare()
        return bool(crc32c_has_instruction())
    return False


_BY_INSTRUCTION = _has_instruction()


def _crc(buf: Buffer, start: int, end: int) -> int:
    if cython.compiled:
        crc: int = crc32c_words(cython.address(buf[start]), end - start, _BY_INSTRUCTION)
        return crc
    return crc32c(buf[start:end])


def _uint32(buf: Buffer, pos: int) -> int:
    first = buf[pos]
    return first << 24 | buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]


def _int32(buf: Buffer, pos: int) -> int:
    value = _uint32(buf, pos)
    return value - (value >> 31 << 32)


def _int64(buf: Buffer, pos: int) -> int:
    return _int32(buf, pos) << 32 | _uint32(buf, pos + 4)


def is_plain(
    buf: Buffer,
    start: int,
    end: int,
    size_max: int,
    keys_required: bool,
    checks_records: bool,
    found: Ints,
    at: int = 0,
) -> bool:
    """Whether `buf[start:end]` is one batch without attributes that `check_produced` accepts, and does not correct.

    Fills `found`, from `at` on, with its fields: see `RECORD_COUNT` and the following."""
    size = end - start
    if size <= _HEADER_BYTES or size > size_max or buf[start + 16] != _MAGIC:
        return False
    if _int32(buf, start + 8) != size - _LOG_OVERHEAD or buf[start + 21] or buf[start + 22]:
        return False
    count = _int32(buf, start + 57)
    if count <= 0 or _int32(buf, start + 23) != count - 1:
        return False
    producer_id, base_sequence = _int64(buf, start + 43), _int32(buf, start + 53)
    if producer_id >= 0 and base_sequence < 0:
        return False
    if _crc(buf, start + _CHECKED_FROM, end) != _uint32(buf, start + 17):
        return False
    max_timestamp = _int64(buf, start + 35)
    if checks_records:
        problem, _, largest = walk(buf, start + _HEADER_BYTES, end, count, _int64(buf, start + 27), keys_required)
        if problem or largest != max_timestamp:
            return False
    found[at + _COUNT], found[at + _MAX_TIMESTAMP] = count, max_timestamp
    found[at + _PRODUCER_ID], found[at + _BASE_SEQUENCE] = producer_id, base_sequence
    found[at + _PRODUCER_EPOCH] = (buf[start + 51] << 8 | buf[start + 52]) - ((buf[start + 51] & 0x80) << 9)
    return True
