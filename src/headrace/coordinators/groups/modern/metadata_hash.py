"""The hash of topics' metadata: a group's record has that of its topics, so that a change of them is noticed even if
another broker coordinates the group by then.

    topic   0 int8 | id, two int64 | name | partitions int32 | for each: partition int32, racks: length int32, rack
    group   the topics' hashes, int64 each, in the order of the names
    text    UTF-16, then its length in code units int32

All little-endian, but for the id, whose halves are numbers first. Source: Kafka's `Utils.computeTopicHash` and
`computeGroupHash`, and XXH3 of hash4j.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from struct import Struct
from typing import Protocol

NO_TOPICS_HASH = 0
MAGIC = b"\0"

_ID_IN, _ID_OUT, _INT32 = Struct(">qq"), Struct("<qq"), Struct("<i")


class HashedTopic(Protocol):
    """A topic whose hash is known."""

    @property
    def name(self) -> str: ...

    @property
    def hash(self) -> int: ...


def metadata_hash(topics: Iterable[HashedTopic]) -> int:
    """The signed 64-bit hash of these topics; 0 without topics. Their order does not matter."""
    # Names of topics are ASCII, which sorts as Java does: it compares strings by UTF-16 code units.
    hashes = [each.hash for each in sorted(topics, key=attrgetter("name"))]
    return _xxh3(Struct(f"<{len(hashes)}q").pack(*hashes)) if hashes else NO_TOPICS_HASH


def topic_hash(name: str, topic_id: bytes, racks: Sequence[Sequence[str]]) -> int:
    """The signed 64-bit hash of one topic; `racks` has the sorted racks of each partition's replicas."""
    data = bytearray(MAGIC)
    data += _ID_OUT.pack(*_ID_IN.unpack(topic_id))
    data += _text(name)
    data += _INT32.pack(len(racks))
    for partition, names in enumerate(racks):
        data += _INT32.pack(partition)
        for rack in names:
            encoded = _text(rack)
            data += encoded[-_INT32.size :] + encoded
    return _xxh3(bytes(data))


def _text(text: str) -> bytes:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded + _INT32.pack(len(encoded) // 2)


def _xxh3(data: bytes) -> int:
    import xxhash  # compiled, and used by groups of KIP-848 only

    unsigned = xxhash.xxh3_64_intdigest(data)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned
