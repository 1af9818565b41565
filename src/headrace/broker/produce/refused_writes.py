"""Late writes that the disk refused: what is told of them, to the log, in the counters and to the clients.

A plain produce of which the writes are put off has its answer built before they are made. If the disk refuses a log's,
they are taken back (`log.append_state`), and the answers are made again with KAFKA_STORAGE_ERROR for the batches of
that log: as if each had been appended by itself. Batches of other logs in the same requests are stored, and keep their
answers. No request pays for this while the disk works.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.partitions.refused_lines import RefusedLines
from headrace.broker.request.context import encode_response
from headrace.errors import ErrorCode, KafkaError, StorageError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.log.append_state import RefusedAppends

log = logging.getLogger(__name__)

_FLEXIBLE_FROM, _IDS_FROM = 9, 13

Where = tuple["str | bytes", int]
"""A topic's name or id, and a partition of it."""


class RefusedFrom(NamedTuple):
    """The offset from which on a partition's late batches were refused, and why."""

    offset: int
    error: KafkaError


class RefusedWrites:
    """What the disk refused of the last late writes."""

    __slots__ = ("_by_partition", "_lines")

    def __init__(self) -> None:
        self._by_partition: dict[Where, RefusedFrom] = {}
        self._lines = RefusedLines(log)

    def begin(self) -> None:
        """Forgets what was refused before."""
        self._by_partition.clear()

    def add(self, partition: Partition, refused: RefusedAppends) -> None:
        """Takes back what counts the batches of a partition as appended, and notes that they are not."""
        if partition.state.commits_at_once:  # with followers, it counts what is written
            partition.state.committed_to(refused.end_offset)
        partition.traffic.refused(refused.batches, refused.records, refused.size)
        found = RefusedFrom(
            refused.end_offset, StorageError(f"{partition.log.partition} could not be written: {refused.error}")
        )
        self._by_partition[partition.key] = found
        topic_id = partition.log.topic_id
        if topic_id is not None:
            self._by_partition[topic_id, partition.key.partition] = found
        self._lines.write(
            "%s: %d batches of %d bytes in all could not be written in %s: %s",
            partition.log.partition, refused.batches, refused.size, partition.log.directory, refused.error,
        )  # fmt: skip

    def error_of(self, where: Where, base_offset: int) -> KafkaError | None:
        """Why the batch of a partition that was to have this offset is not stored; None if it is."""
        found = self._by_partition.get(where)
        return found.error if found is not None and base_offset >= found.offset else None

    def answer(self, frame: memoryview, version: int) -> bytes:
        """The same answer to a plain produce of this version, with the errors of what was refused."""
        response, _ = m.ProduceResponse.decode(version, frame, 9 if version >= _FLEXIBLE_FROM else 8)
        for topic in response.responses:
            name = topic.topic_id if version >= _IDS_FROM else topic.name
            for each in topic.partition_responses:
                error = self.error_of((name, each.index), each.base_offset)
                if error is not None:
                    each.error_code, each.base_offset = ErrorCode.KAFKA_STORAGE_ERROR, -1
                    each.log_start_offset, each.error_message = -1, error.message
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        (answer,) = encode_response(ApiKey.PRODUCE, version, correlation_id, response)
        assert isinstance(answer, bytes)
        return answer
