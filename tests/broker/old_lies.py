"""Message sets of formats 0 and 1 that lie: made by hand, so that every checksum is right but where that is the lie."""

import struct
import zlib

from headrace.records.codecs.compression import Codec
from headrace.records.legacy.message_codecs import compress_messages
from tests.broker.lies import bomb
from tests.wire import batch

NOW_MS = 1_700_000_000_000
LOG_APPEND_TIME = 0x08


def message(
    magic: int,
    value: bytes | None = b"value",
    key: bytes | None = b"key",
    *,
    offset: int = 0,
    attributes: int = 0,
    timestamp_ms: int = NOW_MS,
    crc_xor: int = 0,
) -> bytes:
    """One entry of a set."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic == 1 else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return entry(struct.pack(">I", zlib.crc32(body) ^ crc_xor) + body, offset)


def entry(body: bytes, offset: int = 0) -> bytes:
    """Offset and size before a message."""
    return struct.pack(">qi", offset, len(body)) + body


def wrapper(magic: int, inner: bytes, codec: Codec = Codec.GZIP, **how: int) -> bytes:
    """An entry that holds the set `inner`, compressed."""
    value = bytes(compress_messages(codec, magic, inner))
    return message(magic, value, None, **{"attributes": int(codec), **how})


def resealed(made: bytes, position: int, code: str, number: int) -> bytes:
    """One entry with a field changed and a right CRC."""
    changed = bytearray(made)
    struct.pack_into(code, changed, position, number)
    struct.pack_into(">I", changed, 12, zlib.crc32(changed[16:]))
    return bytes(changed)


def numbered(magic: int, count: int, *, relative: bool = True, start: int = 0) -> bytes:
    """A set of so many messages, numbered from `start`."""
    return b"".join(message(magic, b"v%d" % n, offset=start + (n if relative else 0)) for n in range(count))


def set_bomb(magic: int, codec: Codec, size: int) -> bytes:
    """A wrapper of a few KB that unpacks to `size` zeros."""
    return message(magic, bomb(codec, size)[61:], None, attributes=int(codec))


def old_lies(magic: int) -> dict[str, bytes]:
    """What a producer of that format should not send, by name."""
    key_at, value_at = (26, 33) if magic == 1 else (18, 25)
    one, inner = message(magic), numbered(magic, 3)
    other = numbered(1 - magic, 3)
    return {
        "wrong CRC": message(magic, crc_xor=1),
        "wrong CRC in the second": one + message(magic, crc_xor=1),
        "negative size": struct.pack(">qi", 0, -7) + one[12:],
        "size zero": struct.pack(">qi", 0, 0) + one[12:],
        "size too small": struct.pack(">qi", 0, 13) + one[12:25],
        "size past the end": struct.pack(">qi", 0, 1_000) + one[12:],
        "garbage behind": one + b"\xff" * 40,
        "half a message behind": one + one[:20],
        "negative key length": resealed(one, key_at, ">i", -2),
        "key length past the end": resealed(one, key_at, ">i", 1_000),
        "negative value length": resealed(one, value_at, ">i", -2),
        "value length past the end": resealed(one, value_at, ">i", 1_000),
        "value length too short": resealed(one, value_at, ">i", 1),
        "magic 3": resealed(one, 16, ">b", 3),
        "magic -1": resealed(one, 16, ">b", -1),
        "mixed magic": one + message(1 - magic),
        "v2 batch behind": one + batch([b"value"]),
        "codec 5": message(magic, inner, None, attributes=5),
        "zstd": message(magic, inner, None, attributes=4),
        "not compressed, says gzip": message(magic, inner, None, attributes=1),
        "wrapper without a value": message(magic, None, None, attributes=1),
        "empty wrapper": wrapper(magic, b""),
        "wrapper in a wrapper": wrapper(magic, wrapper(magic, inner)),
        "other magic in a wrapper": wrapper(magic, other),
        "v2 batch in a wrapper": wrapper(magic, batch([b"value"])),
        "inner wrong CRC": wrapper(magic, inner + message(magic, offset=3, crc_xor=1)),
        "inner cut off": wrapper(magic, inner[:-1]),
        "inner negative size": wrapper(magic, struct.pack(">qi", 0, -7) + one[12:]),
        "two wrappers": wrapper(magic, inner) + wrapper(magic, inner),
        "wrapper and message": wrapper(magic, inner) + one,
        "message and wrapper": one + wrapper(magic, inner),
        "truncated gzip": message(magic, bytes(compress_messages(Codec.GZIP, magic, inner))[:-9], None, attributes=1),
        "one byte too large": message(magic, b"x" * 100_001),
        "inner offsets go back": wrapper(magic, numbered(magic, 2, start=5) + numbered(magic, 2)),
    }
