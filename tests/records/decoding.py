"""The records of batches of any format, decoded one by one."""

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records.any_format import iter_any_headers
from headrace.records.codecs.compression import Bytes
from headrace.records.format2.batch import Record, decode_records
from headrace.records.format2.header import MAGIC, crc_is_valid
from headrace.records.legacy.message_set import decode_message_set


def decode_any(
    buf: Bytes, *, check_crcs: bool = True, max_batch_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> list[Record]:
    """The records of all complete batches, whatever their formats, control batches left out.

    CorruptMessage when one is damaged, or decompresses to over `max_batch_bytes`.
    """
    records: list[Record] = []
    view = memoryview(buf)
    for pos, header in iter_any_headers(buf):
        batch = view[pos : pos + header.size_bytes]
        if header.magic < MAGIC:
            records += decode_message_set(batch, check_crcs=check_crcs, max_bytes=max_batch_bytes)
            continue
        if check_crcs and not crc_is_valid(batch, 0, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not match its CRC")
        if not header.is_control:
            records += decode_records(batch, header, max_batch_bytes)
    return records
