"""The check of plain batches, compiled and uncompiled: the checksum at every length, and the fields."""

import random
import struct
from array import array

import pytest

from headrace.records.codecs.crc import crc32c
from headrace.records.format2 import plain_batch
from headrace.records.format2.plain_batch import BATCH_FIELDS, MAX_TIMESTAMP, PRODUCER_EPOCH, PRODUCER_ID
from tests.uncompiled import uncompiled

HEADER_BYTES = 61
SIZE_MAX = 1 << 20
FORMS = [plain_batch, uncompiled(plain_batch)]


def batch_of(body: bytes, *, producer_id: int = -1, producer_epoch: int = -1) -> bytes:
    """A batch of one record with this body, which nothing is to parse."""
    checked = struct.pack(">hiqqqhii", 0, 0, 7, 7, producer_id, producer_epoch, 5, 1) + body
    return struct.pack(">qiibI", 0, 9 + len(checked), 3, 2, crc32c(checked)) + checked


@pytest.mark.parametrize("form", FORMS, ids=["compiled", "uncompiled"])
def test_the_checksum_is_right_at_every_length_and_place(form: object) -> None:
    noise = random.Random(1)
    found = array("q", bytes(8 * BATCH_FIELDS))
    for size in [*range(1, 1200), *range(4000, 4300, 7), 15360, 65536, 100_001]:
        before = noise.randrange(16)
        data = bytearray(noise.randbytes(before) + batch_of(noise.randbytes(size)))
        end = len(data)
        assert form.is_plain(data, before, end, SIZE_MAX, False, False, found)  # type: ignore[attr-defined]
        data[before + HEADER_BYTES + noise.randrange(size)] ^= 1 << noise.randrange(8)
        assert not form.is_plain(data, before, end, SIZE_MAX, False, False, found)  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", FORMS, ids=["compiled", "uncompiled"])
@pytest.mark.parametrize("producer_epoch", [-1, 0, 1, 0x7FFF, -0x8000])
def test_the_fields_are_signed(form: object, producer_epoch: int) -> None:
    found = array("q", bytes(8 * BATCH_FIELDS))
    data = batch_of(b"x", producer_id=(1 << 62) + 5, producer_epoch=producer_epoch)
    assert form.is_plain(data, 0, len(data), SIZE_MAX, False, False, found)  # type: ignore[attr-defined]
    assert found[PRODUCER_ID] == (1 << 62) + 5
    assert (found[PRODUCER_EPOCH], found[MAX_TIMESTAMP]) == (producer_epoch, 7)
