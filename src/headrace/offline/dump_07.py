"""Dumps a segment of Kafka 0.7 as rows, for `headrace log dump`.

00…0.kafka        message: position, offset, size, magic, codec, number of messages in it, whether the CRC is correct
                  record (if deep): the payload of each message
"""

from collections.abc import Iterator
from pathlib import Path

from headrace.errors import CorruptMessage, KafkaError
from headrace.log.filenames import offset_of
from headrace.log.files import Files
from headrace.offline.segments_07 import ENTRY_BYTES_MAX
from headrace.records.legacy.format_07 import LENGTH_BYTES, entry_size, payloads_of, read_entry

Value = str | int | bool | None | list[str]
Row = dict[str, Value]


def dump_segment_07(files: Files, path: Path, deep: bool) -> Iterator[Row]:
    """The messages of a file up to the first damage. `deep` adds the messages inside wrappers."""
    file = files.open_readonly(path)
    base_offset, size, position = offset_of(path.name), file.size(), 0
    while position < size:
        try:
            head = file.read(LENGTH_BYTES, position)
            if len(head) < LENGTH_BYTES:
                raise CorruptMessage("the length of a message is cut off by the end of the file")
            whole = entry_size(head, 0)
            if whole > min(size - position, ENTRY_BYTES_MAX):
                raise CorruptMessage(
                    f"a message of {whole - LENGTH_BYTES} bytes is cut off by the end of the file, or its length is bad"
                )
            entry = read_entry(file.read(whole, position))
            payloads = payloads_of(entry) if entry.crc_is_valid else []
        except KafkaError as error:
            yield {
                "kind": "damage",
                "position": position,
                "bytes_behind": size - position,
                "reason": error.message,
            }
            return
        offset = base_offset + position
        yield {
            "kind": "message",
            "position": position,
            "offset": offset,
            "size_bytes": whole,
            "magic": entry.magic,
            "codec": entry.codec.name.lower(),
            "record_count": len(payloads),
            "crc": entry.crc,
            "is_valid": entry.crc_is_valid,
        }
        for payload in payloads if deep else ():
            text = bytes(payload).decode("utf-8", "backslashreplace")
            yield {"kind": "record", "offset": offset, "value_bytes": len(payload), "value": text}
        position += whole
