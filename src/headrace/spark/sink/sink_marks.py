"""Makes a repeated task write each row once, by marks in the log and committed offsets that bound the search for them.

    every record    a header  headrace-batch: WRITE/BATCH/TASK
    before a task writes to a topic for the first time in a batch
                    group headrace-sink-WRITE-TASK commits the ends of its partitions, with BATCH beside them
    when that commit is there already, for this batch
                    the task runs again: earlier runs wrote the records with this mark after the committed ends;
                    each row found there is left out, as many times as it occurs

WRITE is the streaming query's id, which outlives restarts, or a batch write's `writeId` (without one, a name that only
repeated tasks of one job share); BATCH is the micro-batch; TASK the number of Spark's partition. Rows are compared by
content (topic, key, value, headers), so their order may differ from run to run.

Guaranteed, for rows that are the same in each run of the task (which Spark asks of a query in any case): no row is
lost, and none is there twice after a task, a driver or a broker died and the batch was done again. Not guaranteed:

  - a task that is still alive while it runs again elsewhere (speculation, a driver cut off but not dead) can write
    behind the other's look; only transactions fence that off (`sink_transactions`)
  - a batch done again with other rows, or other numbers of partitions: rows of both runs are there, none is lost
  - readers in between see part of a batch: it is not one transaction
  - a broker that forgets offsets (offsets.retention.minutes, 7 days) before the batch is done again

A first run costs two questions and one commit for each topic and task, and about 60 bytes a record before compression.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from headrace.client.consumer import reader
from headrace.client.consumer.arrow import to_record_batch
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import EARLIEST, LATEST, Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.records.format2.columns import BinaryColumn, HeadersColumn
from headrace.types import TopicPartition

HEADER: Final = "headrace-batch"
Headers = Sequence[tuple[str, bytes | None]]
_READ = reader.ReadOptions(headers=True)


class Mark(NamedTuple):
    """One task of one batch of one write."""

    write: str
    batch: int
    task: int

    @property
    def header(self) -> tuple[str, bytes]:
        return HEADER, f"{self.write}/{self.batch}/{self.task}".encode()

    @property
    def group_id(self) -> str:
        return f"headrace-sink-{self.write}-{self.task}"

    @property
    def transactional_id(self) -> str:
        return self.group_id


def found_of(cluster: Cluster, mark: Mark, topic: str) -> Counter[bytes]:
    """Digests of the rows that earlier runs wrote to `topic`. The first run commits the ends of the partitions.

    Raises KafkaError if the topic or the group cannot be reached.
    """
    groups = GroupAdmin(cluster)
    partitions = Admin(cluster).partitions_of(topic)
    ends = {one: at.offset for one, at in Admin(cluster).list_offsets(dict.fromkeys(partitions, LATEST)).items()}
    begun = {
        partition: int(place.offset)
        for partition, place in groups.committed(mark.group_id).items()
        if partition.topic == topic and place.metadata == str(mark.batch)
    }
    if not begun:
        groups.commit(mark.group_id, ends, metadata=str(mark.batch))
        return Counter()
    found: Counter[bytes] = Counter()
    for partition, end in ends.items():
        found.update(_marked(cluster, mark, partition, begun.get(partition, 0), int(end)))
    return found


def _marked(cluster: Cluster, mark: Mark, partition: TopicPartition, start: int, end: int) -> Iterable[bytes]:
    log_start = Admin(cluster).list_offsets({partition: EARLIEST})[partition].offset
    for columns in reader.read_range(cluster, partition, max(start, log_start), end, _READ):
        rows = to_record_batch(columns, *partition, ("key", "value", "headers")).to_pylist()
        for row in rows:
            headers = [(header["key"], header["value"]) for header in row["headers"]]
            if mark.header in headers:
                headers.remove(mark.header)
                yield digest(partition.topic, row["key"], row["value"], headers)


def digest(topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """The 16-byte digest of a row."""
    state = blake2b(digest_size=16)
    for part in (topic.encode(), key, value, *(part for name, content in headers for part in (name.encode(), content))):
        state.update(b"-" if part is None else b"%d:" % len(part))
        state.update(part or b"")
    return state.digest()


def headers_of_all(mark: Mark, count: int) -> HeadersColumn:
    """Headers for `count` rows, each with the mark only."""
    name, value = mark.header
    return HeadersColumn(array("i", range(count + 1)), _repeated(name.encode(), count), _repeated(value, count))


def _repeated(data: bytes, count: int) -> BinaryColumn:
    return BinaryColumn(array("i", range(0, len(data) * count + 1, len(data))), data * count, None, 0)


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
