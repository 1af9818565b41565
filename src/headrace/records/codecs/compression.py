"""The four compression codecs of a record batch, with a bound on the decompressed size.

    1 gzip     RFC 1952, one member or several
    2 snappy   written xerial-framed, as Java's clients write it; read so, or raw, as other clients write it
                   82 'SNAPPY' 00 | version int32 | compatible int32 | (size int32 | raw snappy block)…
    3 lz4      the frame format; written with independent blocks of 64 KiB, all that Java's reader takes
                   04 22 4d 18 | 60 40 82 | (size uint32 LE, top bit: stored | block)… | 00000000
    4 zstd     one frame or several

A few kilobytes can decompress to gigabytes (zstd 32,680 times), and a frame may state a wrong size. So the size in a
frame is not trusted: output goes into a buffer that starts at a multiple of the input and grows in steps, up to the
caller's bound. Repeated work stays below a third of the whole. Source: Kafka's CompressionType,
KafkaLZ4BlockOutputStream, snappy-java's SnappyOutputStream. Left out: lz4 frames of 0.8 clients with a wrong header
checksum (they come with format 0; see `legacy.message_codecs`).

The library is imported at its first use, because most brokers store batches as sent, and the import slows the start.
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct

from headrace.errors import CorruptMessage, UnsupportedCompressionType
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX

Bytes = bytes | bytearray | memoryview
_DecompressInto = Callable[[Bytes, bytearray], int]

_FIRST_GUESS = 4  # times the input
_BELIEVED = 16  # times the input, of what a frame says that it holds
_FIRST_GUESS_BYTES_MIN = 16 * 1024
_GROWTH = 4

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_RATIO_MAX = 22  # a copy of 64 bytes takes 3

_LZ4_HEADER = bytes.fromhex("04224d18604082")  # version 1, independent blocks of 64 KiB, no checksums
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_END = bytes(4)

_int32 = Struct(">i")
_uint32_le = Struct("<I")


class Codec(IntEnum):
    """A batch's compression: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of_attributes(cls, attributes: int) -> "Codec":
        """The codec in a batch's attributes. UnsupportedCompressionType for the numbers 5 to 7."""
        number = attributes & 7
        if number > 4:
            raise UnsupportedCompressionType(f"unknown compression codec {number}")
        return _CODECS[number]


_CODECS = tuple(Codec)


def compress(codec: Codec, data: Bytes, level: int | None = None) -> bytes:
    """Compress `data` to one frame of `codec`. `level` is the codec's own level, None for Kafka's default."""
    import cramjam

    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, -1 if level is None else level, wbits=31)
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            return bytes(memoryview(cramjam.zstd.compress(data, 3 if level is None else level)))


def decompress(codec: Codec, data: Bytes, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> Bytes:
    """Decompresses `data`; returns `data` itself for Codec.NONE.

    Raises CorruptMessage if it does not decompress, or to more than `max_bytes`. Never allocates much more than that.
    """
    import cramjam

    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                raise _too_large(codec, max_bytes)
            return data
        case Codec.GZIP:
            return _decompress_in_steps(codec, cramjam.gzip.decompress_into, data, max_bytes, _gzip_size(data))
        case Codec.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        case Codec.LZ4:
            return _decompress_in_steps(codec, cramjam.lz4.decompress_into, data, max_bytes)
        case Codec.ZSTD:
            return _decompress_in_steps(codec, cramjam.zstd.decompress_into, data, max_bytes)


def _gzip_size(data: Bytes) -> int:
    """The size that the last member states."""
    return _uint32_le.unpack_from(data, len(data) - 4)[0] if len(data) > 4 else 0


def _decompress_in_steps(
    codec: Codec, decompress_into: _DecompressInto, data: Bytes, max_bytes: int, said_bytes: int = 0
) -> bytearray:
    """Decompresses into a buffer that grows, up to `max_bytes`, while the output overruns it.

    It starts at the size that the frame states, if that is plausible.

    The library does not reliably tell an overrun from malformed data, so malformed data is tried again with a larger
    buffer too. That costs a third more time and no more memory.
    """
    import cramjam

    said_bytes = min(said_bytes, len(data) * _BELIEVED)
    room = min(max_bytes, max(_FIRST_GUESS_BYTES_MIN, len(data) * _FIRST_GUESS, said_bytes))
    while True:
        out = bytearray(room)
        try:
            size = decompress_into(data, out)
        except cramjam.DecompressionError as problem:
            if room == max_bytes:
                name = f"{codec.name.lower()} data of {len(data)} bytes"
                raise CorruptMessage(
                    f"{name} data cannot be decompressed to at most {max_bytes} bytes: {problem}"
                ) from None
        else:
            del out[size:]
            return out
        del out  # before the next one is made
        room = min(max_bytes, room * _GROWTH)


def _compress_lz4(data: Bytes, level: int | None) -> bytes:
    """One frame of independent blocks, each stored as it is where compression does not shorten it.

    The library's blocks have no level: with one, each block is taken out of a frame of its own.
    """
    import cramjam

    view = memoryview(data)
    parts: list[Bytes] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        block = view[start : start + _LZ4_BLOCK_BYTES]
        if level is not None:
            frame = memoryview(cramjam.lz4.compress(block, level=level))
            size = _uint32_le.unpack_from(frame, len(_LZ4_HEADER))[0] & ~_LZ4_STORED
            parts.append(frame[len(_LZ4_HEADER) : len(_LZ4_HEADER) + _uint32_le.size + size])
            continue
        packed = memoryview(cramjam.lz4.compress_block(block, mode="fast", acceleration=1, store_size=False))
        if len(packed) < len(block):
            parts += (_uint32_le.pack(len(packed)), packed)
        else:
            parts += (_uint32_le.pack(len(block) | _LZ4_STORED), block)
    parts.append(_LZ4_END)
    return b"".join(parts)


def _compress_xerial(data: Bytes) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[Bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        packed = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_int32.pack(len(packed)), packed)
    return b"".join(parts)


def _decompress_snappy(data: Bytes, max_bytes: int) -> bytearray:
    """Decompress data that is xerial-framed or raw, as its first bytes tell."""
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    size = sum(_snappy_size(block) for block in _xerial_blocks(view))
    if size > max_bytes:
        raise _too_large(Codec.SNAPPY, max_bytes)
    out = bytearray(size)
    room = memoryview(out)
    at = 0
    for block in _xerial_blocks(view):
        end = at + _snappy_size(block)
        _decompress_snappy_into(block, room[at:end])
        at = end
    room.release()
    return out


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """The raw blocks of one stream, or of several that follow one another."""
    pos = 0
    while pos < len(view):
        if view[pos : pos + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # a stream may follow another
            pos += len(_XERIAL_HEADER)
            continue
        if pos + 4 > len(view):
            raise CorruptMessage("the xerial snappy frame ends inside the size of a block")
        size = _int32.unpack_from(view, pos)[0]
        pos += 4
        if not 0 < size <= len(view) - pos:
            raise CorruptMessage(f"a xerial snappy block claims {size} bytes, but only {len(view) - pos} are left")
        yield view[pos : pos + size]
        pos += size


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytearray:
    size = _snappy_size(block)
    if size > max_bytes:
        raise _too_large(Codec.SNAPPY, max_bytes)
    out = bytearray(size)
    _decompress_snappy_into(block, memoryview(out))
    return out


def _snappy_size(block: memoryview) -> int:
    """The decompressed size that a raw block states, if a block of its length can have that size."""
    import cramjam

    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as problem:
        raise CorruptMessage(f"a snappy block has no valid size: {problem}") from None
    if size > len(block) * _SNAPPY_RATIO_MAX:
        raise CorruptMessage(f"a snappy block of {len(block)} bytes claims to decompress to {size} bytes")
    return size


def _decompress_snappy_into(block: memoryview, room: memoryview) -> None:
    """Decompress a raw block into `room`, which has the stated size."""
    import cramjam

    try:
        written = cramjam.snappy.decompress_raw_into(block, room)
    except cramjam.DecompressionError as problem:
        raise CorruptMessage(f"a snappy block cannot be decompressed: {problem}") from None
    if written != len(room):
        raise CorruptMessage(f"a snappy block decompresses to {written} bytes, but claims {len(room)}")


def _too_large(codec: Codec, max_bytes: int) -> CorruptMessage:
    return CorruptMessage(f"{codec.name.lower()} data holds more than {max_bytes} bytes")
