"""One partition on this broker: its log, and what is known of its replicas, moved together."""

from collections.abc import Callable, Hashable

from headrace.broker.metrics.traffic import Traffic
from headrace.broker.produce_formats import CheckedMessages
from headrace.config import TopicConfig
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, OffsetOutOfRange
from headrace.log.partition_log import AppendResult, PartitionLog
from headrace.records.header import MAGIC, NO_TIMESTAMP, BatchHeader
from headrace.replication.partition_state import FollowerFetched, LeaderAndIsr, PartitionState, Transition
from headrace.types import NO_EPOCH, BrokerId, LeaderEpoch, TopicPartition

ACKS_ALL = -1
HIGH_WATERMARK = -1
"""In place of an offset up to which records are to be deleted."""


def end_key(key: TopicPartition) -> Hashable:
    """What those wait on who wait for a partition's log to grow, committed or not: its followers."""
    return key, "end"


class Partition:
    """A live partition. Requests wait on `key` for its high watermark, and on `end_key` for its log's end."""

    __slots__ = ("end_key", "key", "log", "state", "traffic")

    def __init__(
        self, key: TopicPartition, log: PartitionLog, state: PartitionState, traffic: Traffic | None = None
    ) -> None:
        self.key = key
        self.end_key = end_key(key)
        self.log = log
        self.state = state
        self.traffic = traffic or Traffic()  # its topic's

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads it."""
        return self.state.is_leader

    @property
    def is_in_sync(self) -> bool:
        """Whether this broker's replica is in the ISR, as far as it was told."""
        return self.state.local_id in self.state.isr

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The epoch of the leader that this broker follows, or is."""
        return self.state.leader_epoch

    @property
    def high_watermark(self) -> int:
        """The end of what is committed, exclusive."""
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of what a reader of committed transactions may see, exclusive."""
        return self.log.last_stable_offset(self.state.high_watermark)

    def append(self, batch: memoryview, header: BatchHeader, *, now_ms: int, acks: int) -> AppendResult:
        """Appends as leader. Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, and what the log raises."""
        state = self.state
        if not state.is_leader or (acks == ACKS_ALL and not state.has_min_isr):
            raise self._refusal()
        log = self.log
        result = log.append(batch, header, leader_epoch=state.leader_epoch, now_ms=now_ms)
        if state.on_leader_append(log.log_end_offset, now_ms):
            log.update_high_watermark(state.high_watermark)
        else:
            self._wait_for_disk(now_ms)
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
        result = log.append_set(placed, log_append_time_ms=append_time_ms, now_ms=now_ms)
        if state.on_leader_append(log.log_end_offset, now_ms):
            log.update_high_watermark(state.high_watermark)
        else:
            self._wait_for_disk(now_ms)
        traffic = self.traffic
        traffic.produces += 1
        traffic.messages_in += messages.checked.record_count
        traffic.bytes_in += len(placed.data)
        return result

    def _wait_for_disk(self, now_ms: int) -> None:
        """What is not committed yet waits for followers, or for a flush, which it is to get."""
        self.log.update_high_watermark(self.state.high_watermark)
        self.log.flush_by_count(now_ms)

    def flushed(self, now_ms: int) -> None:
        """A flush of the log has ended, well or not."""
        if self.state.on_flush(self.log.recovery_point, now_ms):
            self.log.update_high_watermark(self.state.high_watermark)

    def configure(self, config: TopicConfig, now_ms: int) -> None:
        """Goes on with the topic's settings of now. What was committed before they asked for a flush stays so."""
        state = self.state
        state.min_insync_replicas = config.min_insync_replicas
        if state.set_flush_count(config.flush_count, now_ms):
            self.log.update_high_watermark(state.high_watermark)
        if state.is_leader:
            self.log.flush_by_count(now_ms)

    def _refusal(self) -> KafkaError:
        """Why nothing is appended."""
        state = self.state
        if not state.is_leader:
            return NotLeaderOrFollower(f"{self.key} is led by broker {state.leader}")
        return KafkaError(
            f"The size of the current ISR {sorted(state.isr)} is insufficient to satisfy the min.isr requirement "
            f"of {state.min_insync_replicas} for partition {self.key}",
            ErrorCode.NOT_ENOUGH_REPLICAS,
        )

    def check_leader_epoch(self, epoch: int) -> None:
        """Raises FENCED_LEADER_EPOCH when the asker's leader epoch is older, UNKNOWN_LEADER_EPOCH when it is newer."""
        if epoch in (NO_EPOCH, self.state.leader_epoch):
            return
        is_old = epoch < self.state.leader_epoch
        raise KafkaError(
            f"{self.key} is in leader epoch {self.state.leader_epoch}, not {epoch}",
            ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
        )

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the last epoch not above `epoch` that wrote records, where those end, exclusive); (-1, -1) when not known.

        Apache Kafka notes a leader's epoch when its term begins; the log here does so with the first record of the
        term, which spares a file per partition at each start. Until then the term before ends where the log does.
        Of a topic that stores messages of an older format nothing is known: they carry no epoch.
        """
        if epoch > self.state.leader_epoch or self.log.config.magic < MAGIC:
            return -1, -1
        if epoch == self.state.leader_epoch and self.state.is_leader:
            return epoch, self.log.log_end_offset
        latest = self.log.leader_epochs.latest
        return self.log.leader_epochs.end_offset_for(min(epoch, latest), self.log.log_end_offset)

    def delete_records(self, offset: int, now_ms: int) -> int:
        """Has the log begin at `offset` (-1: at the high watermark), or where it begins if that is later; where.

        Raises NOT_LEADER_OR_FOLLOWER; POLICY_VIOLATION where only the cleaner may take records away;
        OFFSET_OUT_OF_RANGE beyond the high watermark.
        """
        if not self.state.is_leader:
            raise NotLeaderOrFollower(f"{self.key} is led by broker {self.state.leader}")
        if self.log.config.is_compacted and not self.log.config.is_deleted_by_age:
            raise KafkaError(
                f"Records of partition {self.key} can not be deleted due to the configured policy",
                ErrorCode.POLICY_VIOLATION,
            )
        wanted = self.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            raise OffsetOutOfRange(f"the offset {offset} for partition {self.key} is not valid")
        return self.log.delete_records_before(wanted, now_ms)

    def touch_appended(self, touch: Callable[[Hashable], None]) -> None:
        """Wakes those who wait for what has been appended: followers, and readers as far as it is committed."""
        if self.state.followers:
            touch(self.end_key)
            if self.state.high_watermark < self.log.log_end_offset:
                return  # the followers' fetches will move it, and wake the readers
        touch(self.key)

    def follower_fetched(
        self,
        follower: BrokerId,
        offset: int,
        now_ms: int,
        *,
        log_start_offset: int = -1,
        broker_epoch: int = -1,
        may_join: bool = True,
    ) -> FollowerFetched | None:
        """As `PartitionState.follower_fetched`."""
        fetched = self.state.follower_fetched(
            follower,
            offset,
            now_ms,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            may_join=may_join,
        )
        if fetched is not None and fetched.high_watermark_moved:
            self.log.update_high_watermark(self.state.high_watermark)
        return fetched

    def alter_accepted(self, leader_epoch: int, partition_epoch: int, isr: tuple[BrokerId, ...], now_ms: int) -> bool:
        """As `PartitionState.alter_accepted`."""
        moved = self.state.alter_accepted(leader_epoch, partition_epoch, isr, now_ms)
        if moved:
            self.log.update_high_watermark(self.state.high_watermark)
        return moved

    def apply(self, told: LeaderAndIsr, now_ms: int) -> Transition:
        """Takes over what the controller says."""
        self.state.log_end_offset = self.log.log_end_offset
        self.state.flushed_offset = self.log.recovery_point
        transition = self.state.apply(told, now_ms)
        if transition is not Transition.STALE:
            self.log.update_high_watermark(self.state.high_watermark)
            if self.state.is_leader:
                self.log.flush_by_count(now_ms)  # what a follower took over may not be on the disk
        return transition
