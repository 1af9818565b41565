"""Encoding of the partitions of many topics in a record of a group, straight to bytes.

    target   topics uvarint + 1, for each: id uuid | partitions uvarint + 1, int32 each | no tagged fields
    owned    the same, with tagged field 0: the epochs in which the partitions were assigned, uvarint + 1, int32 each

A member may have ten thousand topics, which are written in one turn of the event loop; message objects would take four
times as long. The records are otherwise encoded, and read, by `protocol.messages`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from struct import Struct
from typing import TYPE_CHECKING

from headrace.protocol.codec.wire import check_uuid, write_numbers, write_uvarint

if TYPE_CHECKING:
    from headrace.coordinators.assignors.assignor import TopicId

NO_TAGS = b"\0"
_ONE = Struct(">16sBiB")  # most topics of a member with many have one partition
_ONE_OWNED = Struct(">16sBiBBBBi")


def write_partitions(topics: Mapping[TopicId, Collection[int]]) -> bytes:
    """The array of topics with their partitions, in ascending order."""
    pieces = [write_uvarint(len(topics) + 1)]
    for topic_id, partitions in topics.items():
        check_uuid(topic_id)
        if len(partitions) == 1:
            (number,) = partitions
            pieces.append(_ONE.pack(topic_id, 2, number, 0))
        else:
            pieces += (topic_id, _numbers(sorted(partitions)), NO_TAGS)
    return b"".join(pieces)


def write_owned(topics: Mapping[TopicId, Mapping[int, int]]) -> bytes:
    """The array of topics with their partitions, one at least, and the epoch in which each was assigned."""
    pieces = [write_uvarint(len(topics) + 1)]
    for topic_id, partitions in topics.items():
        check_uuid(topic_id)
        if len(partitions) == 1:
            ((number, epoch),) = partitions.items()
            pieces.append(_ONE_OWNED.pack(topic_id, 2, number, 1, 0, 5, 2, epoch))
        else:
            epochs = _numbers(list(partitions.values()))
            pieces += (topic_id, _numbers(list(partitions)), b"\1\0", write_uvarint(len(epochs)), epochs)
    return b"".join(pieces)


def _numbers(values: list[int]) -> bytes:
    return write_uvarint(len(values) + 1) + write_numbers("i", values)
