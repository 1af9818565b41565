"""The partitions that live on this broker: opened, led, followed and dropped as the controller says.

    LeaderAndIsr   open or make the log; lead or follow, if the message is not older than what is known
    StopReplica    close, and delete when told so

A partition's high watermark begins where the log manager's checkpoint says; a leader without followers moves it to
the log's end at once.
A partition in a data directory that failed is offline: whoever asks for it gets KAFKA_STORAGE_ERROR, the controller
too, until this broker has started with that directory. Source: Kafka's `ReplicaManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.metrics.traffic import ConversionTimes, TrafficByTopic
from headrace.broker.partition import Partition
from headrace.config import TopicConfig
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.model import NO_UUID
from headrace.coordination.requests import EPOCH_DURING_DELETE
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, StorageError, UnknownTopicOrPartition
from headrace.log.flush import at_once
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.protocol import messages as m
from headrace.replication.partition_state import LeaderAndIsr, PartitionState, Transition
from headrace.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition

__all__ = ["Partition", "ReplicaManager"]

log = logging.getLogger(__name__)


class Following(Protocol):
    """Who keeps the partitions up that other brokers lead (`broker.replica_fetchers`)."""

    def follow(self, partition: Partition) -> None:
        """It has another leader, or its leader another epoch."""

    def leave(self, key: TopicPartition) -> None:
        """It is led here, or by nobody, or is not here any more."""

    def wake(self, key: TopicPartition) -> None:
        """Its log was flushed."""


class ReplicaManager:
    """Every partition of this broker."""

    following: Following | None = None
    """None for a broker that has no other beside it."""

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        metadata: MetadataCache,
        configs: TopicConfigs,
        *,
        now_ms: Callable[[], int],
        touch: Callable[[TopicPartition], None],
        lag_max_ms: int = 30_000,
        soon: Callable[[Callable[[], None]], object] = at_once,
    ) -> None:
        """`touch` is told of a partition whose leader or high watermark changed by other than an append, or that was
        flushed; `soon` calls a function when what has come at once is dealt with."""
        self._broker_id = broker_id
        self.logs = logs
        self.metadata = metadata
        self.configs = configs
        self._now_ms = now_ms
        self._touch = touch
        self._lag_max_ms = lag_max_ms
        self._soon = soon
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.names_by_id: dict[bytes, str] = {}
        """Topics by their ids, as the controller last said of a partition here: before everybody is told of a topic,
        its followers ask for it."""
        self.offline: set[tuple[str, int]] = set()
        """Partitions in data directories that failed."""
        self.refused: set[TopicPartition] = set()
        """Partitions that the disk did not let this broker make or delete, when the controller last wanted it."""
        self.traffic = TrafficByTopic()
        self.conversion_times = {"Fetch": ConversionTimes(), "Produce": ConversionTimes()}
        configs.on_change(self._on_config)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def get(self, topic: str, number: int) -> Partition:
        """The partition. Raises `UnknownTopicOrPartition`, `NotLeaderOrFollower` when other brokers have it, or
        `StorageError` when it is offline."""
        found = self._partitions.get((topic, number))
        if found is None:
            if (topic, number) in self.offline:
                raise StorageError(f"{topic}-{number} is in a data directory that failed")
            if self.metadata.partition(topic, number) is not None:
                raise NotLeaderOrFollower(f"{topic}-{number} is not on broker {self._broker_id}")
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{number}")
        return found

    def find(self, key: tuple[str, int]) -> Partition | None:
        """The partition, if this broker has it."""
        return self._partitions.get(key)

    def leader(self, topic: str, number: int) -> Partition:
        """The partition, which this broker leads. Raises as `get`, and `NotLeaderOrFollower`."""
        found = self._partitions.get((topic, number)) or self.get(topic, number)
        if not found.state.is_leader:
            raise NotLeaderOrFollower(f"{found.key} is led by broker {found.state.leader}")
        return found

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """What a topic sets itself, by Kafka's name."""
        return self.configs.overrides(topic)

    def take_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """These are in a data directory that has failed: whoever waits for one is answered."""
        for key in partitions:
            self.offline.add(key)
            if (partition := self._partitions.pop(key, None)) is not None:
                self._let_go(partition)

    # What the controller says

    async def make_logs(self, request: m.LeaderAndIsrRequest) -> None:
        """Makes the logs that `apply_leader_and_isr` will need, off the event loop: each waits for the disk.

        What cannot be made is left out; applying the request tries again and answers with the error.
        """
        missing = [
            (TopicPartition(topic.topic_name, state.partition_index), topic.topic_id)
            for topic in request.topic_states
            for state in topic.partition_states
            if self._broker_id in state.replicas and (state.is_new or not self.logs.offline)
        ]
        missing = [(key, topic_id) for key, topic_id in missing if self.logs.get(key) is None]
        new = {
            (topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
            if state.is_new
        }
        for key, _ in missing:
            if key not in new:
                log.warning("%s is in none of the data directories and begins empty: is a disk not mounted?", key)
        directories = self.logs.directories_for_new(key for key, _ in missing)
        run, now_ms = asyncio.get_running_loop().run_in_executor, self._now_ms()
        made = await asyncio.gather(
            *(
                run(None, self.logs.make, key, directory, None if topic_id == NO_UUID else topic_id, now_ms)
                for (key, topic_id), directory in zip(missing, directories, strict=True)
            ),
            return_exceptions=True,
        )
        for each in made:
            if isinstance(each, PartitionLog):
                self.logs.adopt(each)

    def apply_leader_and_isr(self, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
        """Leads and follows; an error for each partition. The topics' settings must have been loaded."""
        now_ms = self._now_ms()
        answers = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                errors.append(
                    m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=self._apply_one(key, topic.topic_id, state, now_ms),
                    )
                )
            answers.append(
                m.LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
            )
        return m.LeaderAndIsrResponse(topics=answers)

    def _apply_one(
        self, key: TopicPartition, topic_id: bytes, state: m.LeaderAndIsrRequest.LeaderAndIsrPartitionState, now_ms: int
    ) -> ErrorCode:
        if self._broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            partition = self._partitions.get(key) or self._open(key, topic_id, now_ms, is_new=state.is_new)
        except (OSError, KafkaError) as error:
            log.error("%s cannot be opened: %s", key, error)
            if self.logs.offline and not state.is_new:
                self.offline.add(key)
            else:
                self.refused.add(key)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition.log.topic_id not in (topic_id, None) and topic_id != NO_UUID:
            log.error("%s on disk is of another topic of that name: it was deleted and made anew", key)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        told = LeaderAndIsr(
            BrokerId(state.leader),
            LeaderEpoch(state.leader_epoch),
            tuple(BrokerId(each) for each in state.isr),
            state.partition_epoch,
            tuple(BrokerId(each) for each in state.replicas),
        )
        transition = partition.apply(told, now_ms)
        self._partitions[key] = partition
        if topic_id != NO_UUID:
            self.names_by_id[topic_id] = key.topic
        if transition is Transition.STALE:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if transition is not Transition.UNCHANGED:
            self._changed(partition, transition)
        return ErrorCode.NONE

    def _changed(self, partition: Partition, transition: Transition) -> None:
        """Follows its leader, if it has one that is not this broker; wakes those who wait for it."""
        if self.following is not None and transition is not Transition.ISR_CHANGED:
            if partition.is_leader or partition.state.leader == NO_LEADER:
                self.following.leave(partition.key)
            else:
                self.following.follow(partition)
        self._touch(partition.key)

    def _let_go(self, partition: Partition) -> None:
        """This broker has it no more."""
        if self.following is not None:
            self.following.leave(partition.key)
        self._touch(partition.key)

    def _open(self, key: TopicPartition, topic_id: bytes, now_ms: int, *, is_new: bool) -> Partition:
        config = self.configs.get(key.topic)
        opened = self.logs.create(key, None if topic_id == NO_UUID else topic_id, now_ms, is_new=is_new)
        state = PartitionState(
            self._broker_id,
            log_end_offset=opened.log_end_offset,
            high_watermark=opened.high_watermark,
            min_insync_replicas=config.min_insync_replicas,
            lag_max_ms=self._lag_max_ms,
            flush_count=config.flush_count,
        )
        partition = Partition(key, opened, state, self.traffic.of(key.topic))
        opened.soon = self._soon
        opened.on_flush = lambda: self._flushed(partition)
        return partition

    def _flushed(self, partition: Partition) -> None:
        partition.flushed(self._now_ms())
        if self.following is not None:
            self.following.wake(partition.key)
        self._touch(partition.key)

    def step_down(self) -> None:
        """This broker was taken for dead: others lead by now what it led, or nobody does, in a later epoch."""
        for partition in list(self._partitions.values()):
            if partition.is_leader:
                partition.state.step_down()
                self._touch(partition.key)

    def apply_stop_replica(self, request: m.StopReplicaRequest) -> m.StopReplicaResponse:
        """Lets go of partitions; an error for each."""
        now_ms = self._now_ms()
        errors = [
            m.StopReplicaResponse.StopReplicaPartitionError(
                topic_name=topic.topic_name,
                partition_index=state.partition_index,
                error_code=self._stop_one(TopicPartition(topic.topic_name, state.partition_index), state, now_ms),
            )
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        return m.StopReplicaResponse(partition_errors=errors)

    def _stop_one(
        self, key: TopicPartition, state: m.StopReplicaRequest.StopReplicaPartitionState, now_ms: int
    ) -> ErrorCode:
        partition = self._partitions.get(key)
        if partition is not None and EPOCH_DURING_DELETE != state.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if key in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            if state.delete_partition:
                self.logs.delete(key, now_ms)
        except (OSError, KafkaError) as error:
            log.error("%s cannot be deleted: %s", key, error)
            self.refused.add(key)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition is not None:
            if state.delete_partition:
                self.names_by_id.pop(partition.log.topic_id or NO_UUID, None)
            partition.state.is_leader = False
            del self._partitions[key]
            self._let_go(partition)
        return ErrorCode.NONE

    # Settings

    def _on_config(self, topic: str, config: TopicConfig) -> None:
        self.logs.configure(topic)
        for partition in self._partitions.values():
            if partition.key.topic == topic:
                partition.configure(config, self._now_ms())
                self._touch(partition.key)
