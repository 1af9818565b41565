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
else:
    from headrace.octets import int16_at, int32_at, int64_at, uint32_at

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


def _crc(buf: Buffer, size: int) -> int:
    if cython.compiled:
        crc: int = crc32c_words(buf, size, _BY_INSTRUCTION)
        return crc
    return crc32c(buf)


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
    if size <= _HEADER_BYTES or size > size_max:
        return False
    batch = cython.address(buf[start]) if cython.compiled else memoryview(buf)[start:end]
    if batch[16] != _MAGIC or int32_at(batch, 8) != size - _LOG_OVERHEAD or batch[21] or batch[22]:
        return False
    count = int32_at(batch, 57)
    if count <= 0 or int32_at(batch, 23) != count - 1:
        return False
    producer_id, base_sequence = int64_at(batch, 43), int32_at(batch, 53)
    if producer_id >= 0 and base_sequence < 0:
        return False
    checked = cython.address(batch[_CHECKED_FROM]) if cython.compiled else batch[_CHECKED_FROM:]
    if _crc(checked, size - _CHECKED_FROM) != uint32_at(batch, 17):
        return False
    max_timestamp = int64_at(batch, 35)
    if checks_records:
        problem, _, largest = walk(buf, start + _HEADER_BYTES, end, count, int64_at(batch, 27), keys_required)
        if problem or largest != max_timestamp:
            return False
    found[at + _COUNT], found[at + _MAX_TIMESTAMP] = count, max_timestamp
    found[at + _PRODUCER_ID], found[at + _BASE_SEQUENCE] = producer_id, base_sequence
    found[at + _PRODUCER_EPOCH] = int16_at(batch, 51)
    return True
