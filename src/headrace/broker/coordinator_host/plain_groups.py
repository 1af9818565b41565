# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The shortest ways of a group's member: its plain heartbeats and offset commits, from their frame to the answer.

    Heartbeat                of a stable classic group, by a member in its generation
    ConsumerGroupHeartbeat   of a member that tells nothing new and has nothing to learn
    ShareGroupHeartbeat      the same
    OffsetCommit             by a current member, of partitions that exist

What is decided is the coordinator's (`keep_alive`, `plain_committer`); this module reads and writes bytes. In any other
case, also under rules of access or quotas, it returns 0 with nothing done, and the dispatcher takes the frame. So the
rules of refusals are not repeated here; a test sends the same requests all ways.

A commit is answered when its batch is durable, as on the general way: at once if `__consumer_offsets` has no followers,
else when they have it (`waiting_commit`). If the log declines it (a roll, a disk that fails), nothing is done, and the
general way tries again; so it does where records wait for a flush. Compiled, since a group's members send these
requests all the time; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.cluster.features import GROUP_VERSION, SHARE_VERSION
from headrace.broker.coordinator_host.waiting_commit import WaitingCommit, WrittenCommit
from headrace.broker.produce.commit_queue import CommitQueues
from headrace.coordinators.groups.group import Committer, Group, GroupKind
from headrace.coordinators.groups.offset_batch import write_offset_batch
from headrace.coordinators.groups.offsets import NO_EXPIRY, NO_TOPIC_ID, CommittedOffset
from headrace.limits import INT64_MAX
from headrace.network.connection import WAITS, Connection, Shortcut
from headrace.network.request_times import AnsweredAtOnce, RequestTimes, Timed
from headrace.octets import Buffer
from headrace.protocol.apis import ApiKey
from headrace.protocol.plain_groups import (
    PARTITIONS_MAX,
    REQUEST_FIELDS,
    ROW_FIELDS,
    commit_answer_bytes,
    consumer_heartbeat_answer_bytes,
    read_plain_commit,
    read_plain_consumer_heartbeat,
    read_plain_heartbeat,
    read_plain_share_heartbeat,
    write_commit_answer,
    write_consumer_heartbeat_answer,
    write_heartbeat_answer,
)
from headrace.topics import OFFSETS_TOPIC
from headrace.types import TopicPartition

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if not cython.compiled:
    from headrace.octets import bytes_at, text_at

if TYPE_CHECKING:
    from headrace.broker.services import Services
    from headrace.coordinators.groups.consumer.steady import SteadyHeartbeats

BATCH_BYTES_MAX = 16 << 10
"""A commit whose batch is larger is not plain."""

_HEARTBEAT, _CONSUMER_HEARTBEAT, _SHARE_HEARTBEAT, _COMMIT = 12, 68, 76, 8
_SHARE_MEMBER_BYTES_MAX = 36  # see `handlers.share_group_heartbeat`
_VERSION, _CLIENT, _GROUP, _EPOCH, _MEMBER, _INSTANCE = 0, 2, 4, 6, 7, 9
_TOPIC_AT, _TOPIC_END, _OF_TOPIC, _INDEX, _OFFSET, _LEADER_EPOCH, _METADATA_AT, _METADATA_END = range(8)
_ROW_FIELDS, _IDS_FROM, _WAITS, _UNLIMITED = ROW_FIELDS, 10, WAITS, INT64_MAX


class PlainGroups(Shortcut):
    """The plain requests of members that come to a dispatcher."""

    __slots__ = (
        "_admission", "_batch", "_commits", "_consumer_heartbeats", "_coordinator", "_heartbeats", "_keys",
        "_metadata_bytes_max", "_names", "_request", "_rows", "_runtime", "_services", "_share_heartbeats", "_steady",
        "_throttling", "_times", "_wait_s", "queues", "taken", "waited",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        heartbeats: RequestTimes,
        consumer_heartbeats: RequestTimes,
        share_heartbeats: RequestTimes,
        commits: RequestTimes,
    ) -> None:
        """The times are those of all requests of the API."""
        super().__init__()
        self._services, self._admission, self._throttling = services, services.admission, services.throttling
        self._heartbeats, self._consumer_heartbeats, self._commits = heartbeats, consumer_heartbeats, commits
        self._share_heartbeats = share_heartbeats
        self._times = heartbeats  # of the last request
        self._coordinator, self._runtime = services.groups.coordinator, services.groups.runtime
        self._steady: SteadyHeartbeats | None = None
        self._metadata_bytes_max = services.config.offset_metadata_max_bytes
        self._request = memoryview(array("q", bytes(8 * REQUEST_FIELDS)))
        self._rows = memoryview(array("q", bytes(8 * ROW_FIELDS * PARTITIONS_MAX)))
        self._batch = memoryview(bytearray(BATCH_BYTES_MAX))
        self._keys: list[Any] = []  # the partitions of a commit
        self._names: list[bytes] = []  # of its topics
        self.queues = CommitQueues(services, ApiKey.OFFSET_COMMIT)
        self._wait_s = services.config.offsets_commit_timeout_ms / 1000
        self.taken = self.waited = 0
        """How many were answered at once, and how many had to wait."""

    def timed(self, connection: Connection) -> Timed:
        """See `Shortcut`."""
        now_ns = monotonic_ns()
        made = AnsweredAtOnce(self._times, connection.received_ns, connection.looked_ns, now_ns)
        connection.looked_ns = now_ns
        return made

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        """See `Shortcut`."""
        return self._answer(connection, octets, start, end, at)

    def offer(self, connection: Any, frame: memoryview) -> int:
        """As `answer`, for the whole `frame` of a connection of another kind, to the beginning of `out`."""
        return self._answer(connection, frame, 0, len(frame), 0)

    def _answer(self, connection: Any, octets: Buffer, start: int, end: int, at: int) -> int:
        if self._admission.has_rules or self._throttling.is_active:
            return 0
        key = octets[start + 1]
        if key == _HEARTBEAT:
            self._times = self._heartbeats
            at = self._heartbeat(octets, start, end, at)
        elif key == _CONSUMER_HEARTBEAT:
            self._times = self._consumer_heartbeats
            at = self._consumer_heartbeat(connection, octets, start, end, at)
        elif key == _SHARE_HEARTBEAT:
            self._times = self._share_heartbeats
            at = self._share_heartbeat(connection, octets, start, end, at)
        elif key == _COMMIT:
            self._times = self._commits
            at = self._commit(connection, octets, start, end, at)
        else:
            return 0
        if at:
            if at == _WAITS:
                self.waited += 1
            else:
                self.taken += 1
            self._times.by_version[self._request[_VERSION]] += 1
        return at

    # -- heartbeats

    def _heartbeat(self, octets: Buffer, start: int, end: int, at: int) -> int:
        request = self._request
        if not read_plain_heartbeat(octets, start, end, request):
            return 0
        group = self._coordinator.find(text_at(octets, request[_GROUP], request[_GROUP + 1]))
        if group is None:
            return 0
        member_id = text_at(octets, request[_MEMBER], request[_MEMBER + 1])
        instance_id = self._nullable(octets, request[_INSTANCE], request[_INSTANCE + 1])
        now_ms = self._runtime.now_ms()
        if not self._coordinator.classic.keep_alive(group, member_id, instance_id, request[_EPOCH], now_ms):
            return 0
        return write_heartbeat_answer(request, self.out, at)

    def _consumer_heartbeat(self, connection: Any, octets: Buffer, start: int, end: int, at: int) -> int:
        request = self._request
        if not read_plain_consumer_heartbeat(octets, start, end, request):
            return 0
        if at + consumer_heartbeat_answer_bytes(request) > len(self.out):
            return 0
        group = self._coordinator.find(text_at(octets, request[_GROUP], request[_GROUP + 1]))
        if group is None or group.kind is not GroupKind.CONSUMER or not self._services.features.level(GROUP_VERSION):
            return 0
        if self._steady is None:
            self._steady = self._coordinator.consumer.steady  # imported with the first consumer group
        interval_ms = self._steady.keep_alive(
            group,
            text_at(octets, request[_MEMBER], request[_MEMBER + 1]),
            request[_EPOCH],
            self._nullable(octets, request[_INSTANCE], request[_INSTANCE + 1]),
            self._nullable(octets, request[_CLIENT], request[_CLIENT + 1]) or "",
            "/" + connection.host,
            self._runtime.now_ms(),
        )
        if not interval_ms:
            return 0
        return write_consumer_heartbeat_answer(request, interval_ms, octets, self.out, at)

    def _share_heartbeat(self, connection: Any, octets: Buffer, start: int, end: int, at: int) -> int:
        request = self._request
        if not read_plain_share_heartbeat(octets, start, end, request):
            return 0
        if request[_MEMBER + 1] - request[_MEMBER] > _SHARE_MEMBER_BYTES_MAX:
            return 0
        if at + consumer_heartbeat_answer_bytes(request) > len(self.out):
            return 0
        group = self._coordinator.find(text_at(octets, request[_GROUP], request[_GROUP + 1]))
        if group is None or group.kind is not GroupKind.SHARE or not self._services.features.level(SHARE_VERSION):
            return 0
        interval_ms = self._coordinator.share.keep_alive(
            group,
            text_at(octets, request[_MEMBER], request[_MEMBER + 1]),
            request[_EPOCH],
            self._nullable(octets, request[_CLIENT], request[_CLIENT + 1]) or "",
            "/" + connection.host,
            self._runtime.now_ms(),
        )
        if not interval_ms:
            return 0
        return write_consumer_heartbeat_answer(request, interval_ms, octets, self.out, at)

    def _nullable(self, octets: Buffer, start: int, end: int) -> str | None:
        return None if start < 0 else text_at(octets, start, end)

    # -- offset commits

    def _commit(self, connection: Any, octets: Buffer, start: int, end: int, at: int) -> int:
        count = read_plain_commit(octets, start, end, self._request, self._rows)
        if count < 0 or at + commit_answer_bytes(self._rows, count) > len(self.out):
            return 0
        if self._runtime.is_idle and self._find(octets, count):
            at = self._commit_rows(connection, octets, count, at)
        else:
            at = 0
        self._keys.clear()
        self._names.clear()
        return at

    def _find(self, octets: Buffer, count: int) -> bool:
        """Whether so many partitions exist, each named once, and their metadata is not too large. Fills `_keys` and
        `_names`."""
        rows, row, number, snapshot = self._rows, 0, 0, self._services.metadata.snapshot
        topic = ""
        partitions: Any = None
        while number < count:
            if rows[row + _OF_TOPIC]:
                name = bytes_at(octets, rows[row + _TOPIC_AT], rows[row + _TOPIC_END])
                if self._request[_VERSION] < _IDS_FROM:
                    topic = name.decode("ascii")
                else:
                    found = snapshot.names_by_id.get(name)
                    if found is None:
                        return False
                    topic = found
                    name = topic.encode()
                if name in self._names:
                    return False
                self._names.append(name)
                known = snapshot.topics.get(topic)
                if known is None:
                    return False
                partitions = known.partitions
            if rows[row + _METADATA_END] - rows[row + _METADATA_AT] > self._metadata_bytes_max:
                return False
            index = rows[row + _INDEX]
            if index not in partitions:
                return False
            key = tuple.__new__(TopicPartition, (topic, index))
            if rows[row + _OF_TOPIC] != 1 and key in self._keys:
                return False
            self._keys.append(key)
            row += _ROW_FIELDS
            number += 1
        return True

    def _commit_rows(self, connection: Any, octets: Buffer, count: int, at: int) -> int:
        """Appends the partitions of `_keys`, and answers or waits. 0 with nothing done if the log or the group does not
        take them."""
        request = self._request
        committer = Committer(
            text_at(octets, request[_MEMBER], request[_MEMBER + 1]),
            self._nullable(octets, request[_INSTANCE], request[_INSTANCE + 1]),
            request[_EPOCH],
            request[_VERSION],
        )
        group_id = text_at(octets, request[_GROUP], request[_GROUP + 1])
        group: Group | None = self._coordinator.plain_committer(group_id, committer, self._keys)
        if group is None:
            return 0
        partition = self._services.replicas.partitions.get((OFFSETS_TOPIC, group.partition))
        if partition is None:
            return 0
        state, log, traffic = partition.state, partition.log, partition.traffic
        if not state.is_leader or log.stamps or not (state.commits_at_once or _may_wait(partition.state)):
            return 0
        now_ms = self._runtime.now_ms()
        size = write_offset_batch(octets, request, self._rows, count, self._names, now_ms, self._batch)
        if not size:
            return 0
        base_offset = log.append_plain(self._batch, 0, size, state.leader_epoch, now_ms, count, now_ms, -1, -1, -1)
        if base_offset < 0:
            return 0
        if state.commits_at_once:
            state.committed_to(base_offset + count)
        else:
            partition.state.on_leader_append(base_offset + count, now_ms)
        traffic.appended(count, size)
        purgatory = self._services.purgatory
        if purgatory.watched:
            partition.touch_appended(purgatory)
        offsets = self._offsets(octets, count, now_ms, base_offset)
        answer_end = write_commit_answer(request, self._rows, count, octets, self.out, at)
        if state.high_watermark >= base_offset + count:
            self._coordinator.committed_at_once(group, committer, offsets, now_ms)
        else:
            self._coordinator.commit_begins(group, committer, offsets, now_ms)
            written = WrittenCommit(group.offsets, offsets, partition.key, base_offset)
            self._wait(connection, partition, written, base_offset + count, bytes_at(self.out, at, answer_end))
            answer_end = _WAITS
        self._runtime.run(())  # sets the timer, if a deadline comes before it
        return answer_end

    def _wait(self, connection: Any, partition: Any, written: WrittenCommit, commit_to: int, frame: bytes) -> None:
        """Waits until followers have the batch, which ends at `commit_to`."""
        queues = self.queues
        version, deadline = self._request[_VERSION], queues.now() + self._wait_s
        waiting = WaitingCommit(connection, self._times, version, frame, written, deadline)
        queues.of(partition).add_request(waiting, partition, commit_to)

    def _offsets(
        self, octets: Buffer, count: int, now_ms: int, record_offset: int
    ) -> dict[TopicPartition, CommittedOffset]:
        rows, row, number = self._rows, 0, 0
        topic_id: bytes = NO_TOPIC_ID
        made: dict[Any, Any] = {}
        time_ms: object = now_ms
        at_offset: object = record_offset
        while number < count:
            if rows[row + _OF_TOPIC] and self._request[_VERSION] >= _IDS_FROM:
                topic_id = bytes_at(octets, rows[row + _TOPIC_AT], rows[row + _TOPIC_END])
            metadata = text_at(octets, rows[row + _METADATA_AT], rows[row + _METADATA_END])
            made[self._keys[number]] = tuple.__new__(
                CommittedOffset,
                (rows[row + _OFFSET], rows[row + _LEADER_EPOCH], metadata, time_ms, NO_EXPIRY, at_offset, topic_id),
            )
            row += _ROW_FIELDS
            number += 1
        return made


def _may_wait(state: Any) -> bool:
    """Whether a commit may wait for the followers of this partition, and for nothing else."""
    may: bool = state.flush_count == _UNLIMITED and state.has_min_isr
    return may
