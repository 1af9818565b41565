"""Record batches whose checksum is right and whose header or content is not: damage on the way cannot make these."""

import struct
import zlib
from collections.abc import Sequence

import cramjam
import crc32c

from headrace.records.codecs.compression import Codec, compress
from tests.wire import batch

# Where a batch's header has its fields, and how: see headrace.records.format2.header.
FIELDS = {
    "length": (8, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
CRC_AT, CHECKED_FROM = 17, 21
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08


def lying(values: Sequence[bytes | None] = (b"one", b"two"), records: bytes | None = None, **changes: int) -> bytes:
    """A batch of these values (or of these bytes in the place of records) with other header fields and a right CRC."""
    made = bytearray(batch(values))
    if records is not None:
        made[61:] = records
        struct.pack_into(">i", made, 8, len(made) - 12)
    for name, value in changes.items():
        position, code = FIELDS[name]
        struct.pack_into(code, made, position, value)
    struct.pack_into(">I", made, CRC_AT, crc32c.crc32c(bytes(made[CHECKED_FROM:])))
    return bytes(made)


def bomb(codec: Codec, size: int) -> bytes:
    """A batch that claims two records and unpacks to `size` zeros, made without making those first."""
    mebibyte = bytes(1 << 20)
    count = size >> 20
    if codec is Codec.GZIP:
        packer = zlib.compressobj(6, wbits=31)
        packed = b"".join(packer.compress(mebibyte) for _ in range(count)) + packer.flush()
    elif codec is Codec.SNAPPY:
        one = compress(codec, mebibyte)
        packed = one[:16] + one[16:] * count
    else:
        packed = bytes(memoryview(getattr(cramjam, codec.name.lower()).compress(bytes(size))))
    return lying(records=packed, attributes=codec)
