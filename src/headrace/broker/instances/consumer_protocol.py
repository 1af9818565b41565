"""The names of topics in the bytes that the members of a classic consumer group send each other.

    subscription   version int16 | topics [string] | user data bytes? | 1+: owned [topic string, partitions [int32]]
                   | 2+: generation int32 | 3+: rack string?
    assignment     version int16 | assigned [topic string, partitions [int32]] | user data bytes?

The broker reads them too: offsets of subscribed topics do not expire, and a group may go over to the protocol of
KIP-848. What is not read here, such as the user data of an assignor, stays as it is. Bytes that are not of this form
are not changed at all: nobody else reads them either. So whatever the broker can read has to be read here, or a member
could name the topics of others.
Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct

_int16, _int32 = Struct(">h"), Struct(">i")
_OWNED_FROM = 1
_NAMES_PER_SLICE = 1000
_STRING_BYTES_MAX = 32767

Rename = Callable[[str], str | None]
"""The other name of a topic; None leaves the topic out."""
Renaming = Generator[None, None, bytes]
"""Yields after every slice; returns the bytes with other names."""


class _Malformed(ValueError):
    """Bytes that are not of the protocol."""


def subscription(data: bytes, rename: Rename) -> Renaming:
    """The subscription of a member with other names."""
    try:
        version = _number(_int16, data, 0)
        out = bytearray(data[:2])
        pos = yield from _topics(data, 2, out, rename, has_partitions=False)
        end = _behind_bytes(data, pos)
        out += data[pos:end]
        if version >= _OWNED_FROM:
            end = yield from _topics(data, end, out, rename, has_partitions=True)
        out += data[end:]
    except (_Malformed, UnicodeDecodeError):
        return data
    return bytes(out)


def assignment(data: bytes, rename: Rename) -> Renaming:
    """The assignment of a member with other names."""
    try:
        out = bytearray(data[:2])
        end = yield from _topics(data, 2, out, rename, has_partitions=True)
        out += data[end:]
    except (_Malformed, UnicodeDecodeError):
        return data
    return bytes(out)


def _topics(
    data: bytes, pos: int, out: bytearray, rename: Rename, *, has_partitions: bool
) -> Generator[None, None, int]:
    """Appends an array of topics with other names; returns the position behind it. What it appends to is one piece of
    memory: an object for each name would be a hundred times the bytes that a client has to send."""
    count = _number(_int32, data, pos)
    pos += 4
    if not 0 <= count <= len(data):
        raise _Malformed(count)
    at, kept = len(out), 0
    out += _int32.pack(0)
    for number in range(count):
        length = _number(_int16, data, pos)
        end = pos + 2 + length
        if length < 0 or end > len(data):
            raise _Malformed(length)
        name = rename(str(data[pos + 2 : end], "utf-8"))
        pos = end
        if has_partitions:
            end += 4 + 4 * max(0, _number(_int32, data, end))
            if end > len(data):
                raise _Malformed(end)
        if name is not None:
            encoded = name.encode()
            if len(encoded) > _STRING_BYTES_MAX:
                encoded = data[pos - length : pos]  # no topic has such a name, whoever's it is
            out += _int16.pack(len(encoded))
            out += encoded
            out += data[pos:end]
            kept += 1
        pos = end
        if number % _NAMES_PER_SLICE == _NAMES_PER_SLICE - 1:
            yield
    _int32.pack_into(out, at, kept)
    return pos


def _behind_bytes(data: bytes, pos: int) -> int:
    """The position behind a value of type bytes, which may be null."""
    end = pos + 4 + max(0, _number(_int32, data, pos))
    if end > len(data):
        raise _Malformed(end)
    return end


def _number(kind: Struct, data: bytes, pos: int) -> int:
    if pos + kind.size > len(data):
        raise _Malformed(pos)
    number: int = kind.unpack_from(data, pos)[0]
    return number
