"""Zigzag varints, the numbers inside a record.

A signed number is mapped to an unsigned one, so that small magnitudes stay small. It is written with seven bits a byte,
least significant first. The top bit of a byte says that more bytes follow:

    folded:  (n << 1) ^ (n >> 63)          0 -> 0, -1 -> 1, 1 -> 2, -2 -> 3 …
    300  ->  folded 600 = 0b100_1011000 -> d8 04

A varint (int32) takes at most 5 bytes, a varlong (int64) at most 10. This is the readable form, for tests and for
docs/formats.md; the product has its own in `headrace.records.format2.kernel`. Source: Kafka's ByteUtils; Protocol
Buffers' sint32 and sint64.
"""

from headrace.errors import CorruptMessage


def zigzag(value: int) -> int:
    """The unsigned number for a signed one of up to 64 bits."""
    return (value << 1) ^ (value >> 63)


def unzigzag(folded: int) -> int:
    """The signed number for an unsigned one."""
    return (folded >> 1) ^ -(folded & 1)


def varint_size(value: int) -> int:
    """The number of bytes that `encode_varint` needs for a value, 1 to 10."""
    return max(1, (zigzag(value).bit_length() + 6) // 7)


def encode_varint(value: int) -> bytes:
    """Encode a signed number of up to 64 bits in 1 to 10 bytes."""
    folded = zigzag(value)
    out = bytearray()
    while folded >= 0x80:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def read_varint(buf: bytes | bytearray | memoryview, pos: int = 0) -> tuple[int, int]:
    """The int32 number at `pos`, and the position after it. Raises CorruptMessage when it is incomplete or wider."""
    return _read(buf, pos, 32)


def read_varlong(buf: bytes | bytearray | memoryview, pos: int = 0) -> tuple[int, int]:
    """The int64 number at `pos`, and the position after it. Raises CorruptMessage when it is incomplete or wider."""
    return _read(buf, pos, 64)


def _read(buf: bytes | bytearray | memoryview, pos: int, bits: int) -> tuple[int, int]:
    folded = 0
    for shift in range(0, bits, 7):
        if pos >= len(buf):
            raise CorruptMessage("a varint is cut off by the end of the data")
        byte = buf[pos]
        pos += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            if folded >> bits:
                break
            return unzigzag(folded), pos
    raise CorruptMessage(f"a varint does not fit into {bits} bits")
