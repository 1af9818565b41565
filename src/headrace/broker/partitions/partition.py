"""One partition on this broker: keeps its log and its replication state in step."""

from collections.abc import Hashable

from headrace.broker.metrics.traffic import Traffic
from headrace.broker.partitions.local_replica import LocalReplica
from headrace.broker.produce.formats import CheckedMessages
from headrace.config import TopicConfig
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, OffsetOutOfRange
from headrace.log import appending, upkeep
from headrace.log.appending import AppendOrigin, AppendResult
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.refused_sequences import RefusedSequences
from headrace.log.producers.verification import Verification
from headrace.records.format2.control import Marker
from headrace.records.format2.header import NO_TIMESTAMP, BatchHeader
from headrace.replication.partition_state import LeaderAndIsr, PartitionState, Transition
from headrace.types import NO_EPOCH, LeaderEpoch, TopicPartition

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
HIGH_WATERMARK = -1
"""The offset in DeleteRecords that stands for the high watermark."""


def end_key(key: TopicPartition) -> Hashable:
    """Returns the purgatory key for the log end offset of a partition, which followers wait for."""
    return key, "end"


class Partition(LocalReplica):
    """A live partition. Requests wait on `key` for its high watermark, and on `end_key` for its log's end."""

    __slots__ = ("_refused",)

    log: PartitionLog
    state: PartitionState

    def __init__(
        self,
        key: TopicPartition,
        log: PartitionLog,
        state: PartitionState,
        traffic: Traffic | None = None,
        refused: RefusedSequences | None = None,
    ) -> None:
        """`traffic` belongs to the topic, `refused` to the broker."""
        super().__init__(key, end_key(key), log, state, traffic or Traffic())
        log.committed_by(state)
        self._refused = refused or RefusedSequences()

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.state.is_leader

    @property
    def is_in_sync(self) -> bool:
        """Whether this broker's replica is in the ISR, by the last LeaderAndIsr."""
        return self.state.local_id in self.state.isr

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch of the current leader, this broker or another."""
        return self.state.leader_epoch

    @property
    def high_watermark(self) -> int:
        """The end of the committed records, exclusive."""
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that a read_committed consumer may see, exclusive."""
        return self.log.last_stable_offset(self.state.high_watermark)

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        now_ms: int,
        acks: int,
        verification: Verification | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        """Appends as leader. A transactional batch has a `verification`, unless its transaction is open here.

        Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, and what the log raises.
        """
        state = self.state
        if not state.is_leader or (acks == ACKS_ALL and not state.has_min_isr):
            raise self._refusal()
        log = self.log
        if self._refused.entries and header.producer_id >= 0 and header.producer_id not in log.producers.entries:
            self._refused.check(self.key, header, now_ms)
            if log.topic_id is not None:  # a client may have produced by topic id before this broker knew the topic
                self._refused.check((log.topic_id, self.key.partition), header, now_ms)
        result = appending.append(
            log,
            batch,
            header,
            leader_epoch=state.leader_epoch,
            now_ms=now_ms,
            verification=verification,
            origin=origin,
        )
        if not state.on_leader_append(log.log_end_offset, now_ms):
            log.flusher.flush_by_count(now_ms)  # the high watermark waits for followers, or for this flush
        traffic = self.traffic
        traffic.produces += 1
        traffic.messages_in += header.record_count
        traffic.bytes_in += len(batch)
        return result

    def append_set(self, messages: CheckedMessages, *, now_ms: int, acks: int) -> AppendResult:
        """Appends messages of format 0 or 1, as `append`."""
        state = self.state
        if not state.is_leader or (acks == ACKS_ALL and not state.has_min_isr):
            raise self._refusal()
        log = self.log
        placed = messages.at(log.log_end_offset, log.config, now_ms)
        is_stamped = messages.checked.magic > 0 and log.config.message_timestamp_type == "LogAppendTime"
        append_time_ms = placed.max_timestamp if is_stamped else NO_TIMESTAMP
        result = appending.append_set(log, placed, log_append_time_ms=append_time_ms, now_ms=now_ms)
        if not state.on_leader_append(log.log_end_offset, now_ms):
            log.flusher.flush_by_count(now_ms)  # the high watermark waits for followers, or for this flush
        traffic = self.traffic
        traffic.produces += 1
        traffic.messages_in += messages.checked.record_count
        traffic.bytes_in += len(placed.data)
        return result

    def append_marker(
        self, marker: Marker, *, producer_id: int, producer_epoch: int, transaction_version: int, now_ms: int
    ) -> AppendResult:
        """Appends the marker that ends a producer's transaction, with acks=all. Raises as `append`."""
        state = self.state
        if not state.is_leader or not state.has_min_isr:
            raise self._refusal()
        log = self.log
        result = appending.append_marker(
            log,
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
            leader_epoch=state.leader_epoch,
            now_ms=now_ms,
        )
        if not state.on_leader_append(log.log_end_offset, now_ms):
            log.flusher.flush_by_count(now_ms)  # the high watermark waits for followers, or for this flush
        return result

    def flushed(self, now_ms: int) -> None:
        """Updates the high watermark after a flush of the log, successful or not."""
        self.state.on_flush(self.log.flusher.recovery_point, now_ms)

    def configure(self, config: TopicConfig, now_ms: int) -> None:
        """Applies the topic's new settings. Records committed before the settings required a flush stay committed."""
        state = self.state
        state.min_insync_replicas = config.min_insync_replicas
        state.set_flush_count(config.flush_count, now_ms)
        if state.is_leader:
            self.log.flusher.flush_by_count(now_ms)

    def _refusal(self) -> KafkaError:
        """The error for an append that the state refuses."""
        state = self.state
        if not state.is_leader:
            return NotLeaderOrFollower(f"{self.key} is led by broker {state.leader}")
        return KafkaError(
            f"The size of the current ISR {sorted(state.isr)} is insufficient to satisfy the min.isr requirement "
            f"of {state.min_insync_replicas} for partition {self.key}",
            ErrorCode.NOT_ENOUGH_REPLICAS,
        )

    def check_leader_epoch(self, epoch: int) -> None:
        """Raises FENCED_LEADER_EPOCH for an older leader epoch, UNKNOWN_LEADER_EPOCH for a newer one."""
        if epoch in (NO_EPOCH, self.state.leader_epoch):
            return
        is_old = epoch < self.state.leader_epoch
        raise KafkaError(
            f"{self.key} is in leader epoch {self.state.leader_epoch}, but the request has {epoch}",
            ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
        )

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that wrote records, and its end offset, exclusive; (-1, -1) if not known.

        Apache Kafka records a leader epoch when it begins. This log records it with the first batch of the epoch, which
        saves one file write per partition at each start; until then the previous epoch ends at the log end offset, and
        every epoch in a log that never had a batch: a consumer that waits there must not take its position for lost.
        After a message of an older format nothing is known, since it carries no epoch.
        """
        state, log = self.state, self.log
        if not 0 <= epoch <= state.leader_epoch:
            return -1, -1
        latest, end_offset = log.leader_epochs.latest, log.log_end_offset
        is_without_epochs = latest < 0 and log.log_start_offset == end_offset
        if state.is_leader and (epoch == state.leader_epoch or is_without_epochs):
            return epoch, end_offset
        return log.leader_epochs.end_offset_for(min(epoch, latest), end_offset)

    def delete_records(self, offset: int, now_ms: int) -> int:
        """Moves the log start offset up to `offset` (-1: the high watermark), never down; returns the log start offset.

        Raises NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for a topic that is only compacted, and OFFSET_OUT_OF_RANGE for
        an offset above the high watermark.
        """
        if not self.state.is_leader:
            raise NotLeaderOrFollower(f"broker {self.state.leader} leads {self.key}")
        if self.log.config.is_compacted and not self.log.config.is_deleted_by_age:
            raise KafkaError(
                f"Records of partition {self.key} can not be deleted due to the configured policy",
                ErrorCode.POLICY_VIOLATION,
            )
        wanted = self.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            raise OffsetOutOfRange(
                f"records of {self.key} cannot be deleted up to offset {offset}: "
                f"the high watermark is {self.state.high_watermark}"
            )
        return upkeep.delete_records_before(self.log, wanted, now_ms)

    def apply(self, leader_and_isr: LeaderAndIsr, now_ms: int) -> Transition:
        """Applies the state that the controller sent."""
        self.state.log_end_offset = self.log.log_end_offset
        self.state.flushed_offset = self.log.flusher.recovery_point
        transition = self.state.apply(leader_and_isr, now_ms)
        if transition is not Transition.STALE and self.state.is_leader:
            self.log.flusher.flush_by_count(now_ms)  # records appended as a follower may not be flushed
        return transition
