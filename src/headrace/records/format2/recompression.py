"""Recompresses a batch with another codec, for topics whose `compression.type` is not `producer`.

The bytes of the records stay the same; only the compression, the codec bits and the CRC change. Source: Kafka's
LogValidator, which rebuilds every record instead.
"""

from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records.codecs.compression import Bytes, Codec, compress
from headrace.records.format2.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, pack_header, records_of

_CODEC_BITS = 0x07


def recompress(
    batch: Bytes,
    header: BatchHeader,
    codec: Codec,
    level: int | None = None,
    max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> tuple[memoryview, BatchHeader]:
    """A writable copy of the batch at the start of `batch`, with records compressed by `codec`, and its new header.

    `level` is the codec's level, None for Kafka's default. Raises CorruptMessage when the records do not decompress to
    at most `max_bytes`.
    """
    data, start, end = records_of(batch, 0, header, max_bytes)
    packed = compress(codec, memoryview(data)[start:end], level)
    copy = bytearray(HEADER_BYTES)
    copy += packed
    changed = header._replace(
        batch_length=len(copy) - LOG_OVERHEAD_BYTES, attributes=header.attributes & ~_CODEC_BITS | codec
    )
    return memoryview(copy), pack_header(copy, 0, changed)
