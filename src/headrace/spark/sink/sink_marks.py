"""Makes a repeated task write each row once, by the producer ids of its earlier runs.

    the first write of a task to a topic in a batch
                    group headrace-sink-WRITE-TASK commits the ends of the topic's partitions, with the metadata
                    "BATCH PRODUCER_ID"; nothing is sent before
    when that commit is there already, for this batch
                    the task runs again: the rows of earlier runs are in the batches after the committed ends that have
                    one of the producer ids. Each row found there is left out, as many times as it occurs. The new
                    producer id is added to the metadata

WRITE is the streaming query's id, which outlives restarts, or a batch write's `writeId` (without one, a name that only
repeated tasks of one job share); BATCH is the micro-batch; TASK the number of Spark's partition. Rows are compared by
content (topic, key, value, headers), so their order may differ from run to run. A producer that loses its id and gets
another one, as after an error, commits that as well before it continues. A producer id belongs to one run of a task.
The metadata of an offset is bounded (`offset.metadata.max.bytes`, 4096): when the ids come near it, the oldest ones
under which no row was found are dropped.

Guaranteed, for rows that are the same in each run of the task (which Spark asks of a query in any case): no row is
lost, and none is there twice after a task, a driver or a broker died and the batch was done again. Not guaranteed:

  - a task that is still alive while it runs again elsewhere (speculation, a driver cut off but not dead) can write
    behind the other's look; only transactions fence that off (`sink_transactions`)
  - a batch done again with other rows, or other numbers of partitions: rows of both runs are there, none is lost
  - readers in between see part of a batch: it is not one transaction
  - rows of an earlier run that appear only after the next run has looked, as they were not replicated before
  - a broker that forgets offsets (offsets.retention.minutes, 7 days) before the batch is done again

A first run costs three requests and one commit for each topic and task, and nothing for a record. An earlier version
marked each record by a header, which cost a fifth of the rate and 40 % of the log.
"""

import re
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Self

from headrace.client.consumer import reader
from headrace.client.consumer.arrow import to_record_batch
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import EARLIEST, LATEST, Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.sink.sink_errors import malformed, too_large
from headrace.types import TopicPartition

IDS_CHARS_MAX: Final = 3600
"""From this length of the list of producer ids on, ids without rows are dropped: leaves room for those of a run."""
_OWN: Final = re.compile(r"(\d+) (\d{1,19}(?:,\d{1,19})*)|rows \d+")
"""What the sink writes as metadata; the second form is the transactional mode's."""

Headers = Sequence[tuple[str, bytes | None]]


class Mark(NamedTuple):
    """One task of one batch of one write."""

    write: str
    batch: int
    task: int

    @property
    def group_id(self) -> str:
        return f"headrace-sink-{self.write}-{self.task}"

    @property
    def transactional_id(self) -> str:
        return self.group_id


class Attempt:
    """One run of a task: notes where it begins to write and under which producer ids, and finds earlier runs' rows."""

    def __init__(self, cluster: Cluster, mark: Mark) -> None:
        self._cluster, self._mark = cluster, mark
        self._groups = GroupAdmin(cluster)
        self._lock = threading.Lock()
        self._starts: dict[str, Mapping[TopicPartition, int]] = {}
        self._producer_ids: dict[str, list[int]] = {}
        self._own_id: int | None = None

    def begin(self, topic: str) -> Counter[bytes]:
        """Digests of the rows that earlier runs wrote to `topic`. Before it, nothing may be sent there.

        Raises KafkaError if the topic or the group cannot be reached.
        """
        admin = Admin(self._cluster)
        partitions = admin.partitions_of(topic)
        ends = {one: int(at.offset) for one, at in admin.list_offsets(dict.fromkeys(partitions, LATEST)).items()}
        begun, producer_ids = self._noted(topic)
        found: Counter[bytes] = Counter()
        starts = {partition: begun.get(partition, 0) for partition in ends} if begun else ends
        if producer_ids:
            wanted = _Wanted(producer_ids)
            for partition, end in ends.items():
                found.update(_written(self._cluster, partition, starts[partition], end, wanted))
            producer_ids = _within(producer_ids, wanted.found)
        with self._lock:
            self._starts[topic], self._producer_ids[topic] = starts, producer_ids
            if self._own_id is not None:
                self._note(topic, self._own_id)
        return found

    def note_producer_id(self, producer_id: int) -> None:
        """The task writes under this id from now on. Called by the producer's thread. Raises KafkaError."""
        with self._lock:
            for topic in self._starts:
                self._note(topic, producer_id)
            self._own_id = producer_id

    def _note(self, topic: str, producer_id: int) -> None:
        known = self._producer_ids[topic]
        if producer_id not in known:
            known.append(producer_id)
        metadata = f"{self._mark.batch} {_text(known)}"
        try:
            self._groups.commit(self._mark.group_id, self._starts[topic], metadata)
        except KafkaError as refused:
            if refused.code != ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            raise too_large(self._mark.group_id, len(known)) from refused

    def _noted(self, topic: str) -> tuple[dict[TopicPartition, int], list[int]]:
        """The offsets at which the first run began, and the producer ids of all runs; nothing if this is the first.

        Raises SinkGroupError if the group has anything that the sink does not write.
        """
        begun: dict[TopicPartition, int] = {}
        producer_ids: dict[int, None] = {}
        for partition, place in self._groups.committed(self._mark.group_id).items():
            if partition.topic != topic:
                continue
            own = _OWN.fullmatch(place.metadata)
            if own is None:
                raise malformed(self._mark.group_id, place.metadata)
            if own[1] is not None and int(own[1]) == self._mark.batch:
                begun[partition] = int(place.offset)
                producer_ids.update(dict.fromkeys(map(int, own[2].split(","))))
        return begun, list(producer_ids)


class _Wanted(frozenset[int]):
    """Producer ids; `found` are those of batches that were asked about."""

    found: set[int]

    def __new__(cls, producer_ids: Iterable[int]) -> Self:
        made = super().__new__(cls, producer_ids)
        made.found = set()
        return made

    def __contains__(self, producer_id: object) -> bool:
        is_wanted = super().__contains__(producer_id)
        if is_wanted and isinstance(producer_id, int):
            self.found.add(producer_id)
        return is_wanted


def _within(producer_ids: Sequence[int], found: Collection[int]) -> list[int]:
    """The ids that are noted further on: if they are too many, without the oldest ones that are not in `found`."""
    kept = dict.fromkeys(producer_ids)
    for one in producer_ids:
        if len(_text(kept)) <= IDS_CHARS_MAX:
            break
        if one not in found:
            del kept[one]
    return list(kept)


def _text(producer_ids: Iterable[int]) -> str:
    return ",".join(map(str, producer_ids))


def _written(
    cluster: Cluster, partition: TopicPartition, start: int, end: int, producer_ids: frozenset[int]
) -> Iterable[bytes]:
    """Digests of the rows that these producers wrote between two offsets."""
    log_start = Admin(cluster).list_offsets({partition: EARLIEST})[partition].offset
    options = reader.ReadOptions(headers=True, producer_ids=producer_ids)
    for columns in reader.read_range(cluster, partition, max(start, log_start), end, options):
        for row in to_record_batch(columns, *partition, ("key", "value", "headers")).to_pylist():
            headers = [(header["key"], header["value"]) for header in row["headers"]]
            yield digest(partition.topic, row["key"], row["value"], headers)


def digest(topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """The 16-byte digest of a row."""
    state = blake2b(digest_size=16)
    for part in (topic.encode(), key, value, *(part for name, content in headers for part in (name.encode(), content))):
        state.update(b"-" if part is None else b"%d:" % len(part))
        state.update(part or b"")
    return state.digest()


def left_over(digests: Iterable[bytes], found: Mapping[bytes, int]) -> tuple[list[int], Counter[bytes]]:
    """The numbers of the rows that are not in `found`, and the part of `found` that remains for later rows."""
    remaining = Counter(found)
    missing = []
    for row, one in enumerate(digests):
        if remaining[one] > 0:
            remaining[one] -= 1
        else:
            missing.append(row)
    return missing, remaining
