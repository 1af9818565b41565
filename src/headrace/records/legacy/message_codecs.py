"""The codecs of message formats 0 and 1: those of `compression` without zstd, and the lz4 of Kafka 0.8 and 0.9.

Those releases wrongly computed the checksum of an lz4 frame's descriptor over the frame's magic number too:

    04 22 4d 18 | flags | block size | [content size int64] | checksum | blocks…
                  right: XXH32 from here to the checksum, second byte
    wrong: from the very start

A reader of format 0 must accept both checksums. A writer must write the wrong one, because old readers refuse the right
one. From format 1 on, only the right one is valid. Source: KAFKA-3160, KafkaLZ4BlockOutputStream.
"""

from headrace.errors import CorruptMessage, UnsupportedCompressionType
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records.codecs.compression import Bytes, Codec, compress, decompress

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_DESCRIPTOR_AT = 4
_CHECKSUM_AT = 6
_CONTENT_SIZE_BIT, _CONTENT_SIZE_BYTES = 0x08, 8
_DICTIONARY_BIT, _DICTIONARY_BYTES = 0x01, 4

_MASK = 0xFFFFFFFF
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def check_codec(codec: Codec, magic: int) -> None:
    """Raise UnsupportedCompressionType for zstd, which messages of formats 0 and 1 cannot have."""
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionType(f"format {magic} does not support zstd: it requires format 2")


def compress_messages(codec: Codec, magic: int, data: Bytes, level: int | None = None) -> Bytes:
    """Compress a message set to the value of a wrapper of a format. Raises UnsupportedCompressionType for zstd."""
    check_codec(codec, magic)
    packed = compress(codec, data, level)
    return _with_checksum(packed, wrong=True) if codec is Codec.LZ4 and magic == 0 else packed


def decompress_messages(codec: Codec, magic: int, data: Bytes, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> Bytes:
    """The message set in the value of a wrapper of format `magic`.

    Raises CorruptMessage when it does not decompress to at most `max_bytes`, and UnsupportedCompressionType for zstd.
    """
    check_codec(codec, magic)
    if codec is Codec.LZ4 and magic == 0:
        data = _with_checksum(data, wrong=False)
    return decompress(codec, data, max_bytes)


def _with_checksum(frame: Bytes, wrong: bool) -> Bytes:
    """The lz4 frame with the wrong or the right checksum; the frame itself when it has that already."""
    if len(frame) <= _CHECKSUM_AT or frame[:_DESCRIPTOR_AT] != _LZ4_MAGIC:
        raise CorruptMessage(f"{len(frame)} bytes are not an lz4 frame")
    at = _CHECKSUM_AT
    flags = frame[_DESCRIPTOR_AT]
    at += _CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE_BIT else 0
    at += _DICTIONARY_BYTES if flags & _DICTIONARY_BIT else 0
    if len(frame) <= at:
        raise CorruptMessage(f"an lz4 frame ends inside its descriptor, after {len(frame)} bytes")
    checksum = _xxh32_of_short(bytes(frame[0 if wrong else _DESCRIPTOR_AT : at])) >> 8 & 0xFF
    if frame[at] == checksum:
        return frame
    copy = bytearray(frame)
    copy[at] = checksum
    return copy


def _xxh32_of_short(data: bytes) -> int:
    """XXH32, seed 0, of what a descriptor can hold: the four lanes for 16 bytes and more are the one loop left out."""
    one, two, three, four, five = _PRIMES
    if len(data) >= 16:  # content size and dictionary both, with the magic number: nobody writes that
        raise CorruptMessage("an lz4 frame requires a dictionary, which is not supported")
    mixed = (five + len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        mixed = (mixed + int.from_bytes(data[at : at + 4], "little") * three) & _MASK
        mixed = _rotated(mixed, 17) * four & _MASK
    for byte in data[whole:]:
        mixed = (mixed + byte * five) & _MASK
        mixed = _rotated(mixed, 11) * one & _MASK
    mixed = (mixed ^ mixed >> 15) * two & _MASK
    mixed = (mixed ^ mixed >> 13) * three & _MASK
    return mixed ^ mixed >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
