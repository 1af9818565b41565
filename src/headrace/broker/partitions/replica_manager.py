"""The replica manager: opens, leads, follows and drops the partitions of this broker at the controller's requests.

    LeaderAndIsr   opens or creates the log; leads or follows, unless the request is older than the known state
    StopReplica    closes the log, and deletes it if the request says so
    metadata       a leader that has a newer leader epoch and another leader there steps down: no request tells it so if
                   it was unreachable while its replica was moved away

A partition's high watermark starts at the log manager's checkpoint; a leader without followers advances it to the log
end offset at once.
A partition in a failed data directory is offline: all requests for it get KAFKA_STORAGE_ERROR, the controller's too,
until this broker has started with that directory again. Source: Kafka's `ReplicaManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from headrace.broker.metrics.traffic import ConversionTimes, TrafficByTopic
from headrace.broker.partitions.partition import Partition
from headrace.broker.partitions.refused_lines import RefusedLines
from headrace.config import TopicConfig
from headrace.controller.decisions.control_requests import EPOCH_DURING_DELETE
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, StorageError, UnknownTopicOrPartition
from headrace.in_slices import Turns, in_slices, in_turns
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.refused_sequences import RefusedSequences
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import NO_UUID
from headrace.metadata.topic_configs import TopicConfigs
from headrace.protocol import messages as m
from headrace.replication.partition_state import LeaderAndIsr, PartitionState, Transition
from headrace.types import BrokerId, LeaderEpoch, TopicPartition

__all__ = ["Partition", "ReplicaManager"]

log = logging.getLogger(__name__)


PARTITIONS_PER_TURN_MAX = 100
"""Partitions that begin to lead or to follow, or stop, in one turn of the event loop."""
STEP_DOWN_WEIGHT = 9
"""How many times longer it takes to step down than to see that there is no need, less one."""
LOGS_PER_WORK = 50
"""Logs that a thread creates, one after the other, before it hands them over."""
CREATING_THREADS = 2
"""Threads that create logs: each thread that does not wait for the disk delays the event loop."""


LeadershipListener = Callable[[TopicPartition, Partition | None], None]
"""Called with a partition whose leader, epoch or ISR changed; None: the partition was dropped."""


class ReplicaManager:
    """Every partition of this broker."""

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
    ) -> None:
        """`touch` is called with a partition that was flushed, or whose leader or high watermark changed other than by
        an append."""
        self._broker_id = broker_id
        self.logs = logs
        self.metadata = metadata
        self.configs = configs
        self._now_ms = now_ms
        self._touch = touch
        self._lag_max_ms = lag_max_ms
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.partitions: Mapping[tuple[str, int], Partition] = self._partitions
        self.names_by_id: dict[bytes, str] = {}
        """Topic names by id, from LeaderAndIsr: followers fetch a new topic by id before UpdateMetadata contains it."""
        self.offline: set[tuple[str, int]] = set()
        """Partitions in data directories that failed."""
        self.refused: set[TopicPartition] = set()
        """Partitions that could not be created or deleted at the controller's last request, because of the disk."""
        self.drops = 0
        """Partitions that were dropped since the start."""
        self.traffic = TrafficByTopic()
        self.refused_sequences = RefusedSequences()
        self._refused_lines = RefusedLines(log)
        self.conversion_times = {"Fetch": ConversionTimes(), "Produce": ConversionTimes()}
        self._stepped_down: dict[tuple[str, int], Partition] = {}
        """Partitions that this broker leads no more, of which the listeners do not know it yet."""
        self._on_leadership: list[LeadershipListener] = []
        self._on_flushed: list[Callable[[TopicPartition], None]] = []
        configs.on_change(self._on_config)
        configs.on_defaults_change(self._on_defaults)
        metadata.on_change(self._on_metadata)
        logs.on_flush(self._flushed)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def get(self, topic: str, number: int) -> Partition:
        """Returns the partition. Raises `UnknownTopicOrPartition`, `NotLeaderOrFollower` if only other brokers have
        replicas, or `StorageError` if it is offline."""
        found = self._partitions.get((topic, number))
        if found is None:
            if (topic, number) in self.offline:
                raise StorageError(f"{topic}-{number} is in a data directory that failed")
            if self.metadata.partition(topic, number) is not None:
                raise NotLeaderOrFollower(f"broker {self._broker_id} has no replica of {topic}-{number}")
            raise UnknownTopicOrPartition(f"partition {topic}-{number} does not exist")
        return found

    def find(self, key: tuple[str, int]) -> Partition | None:
        """Returns the partition if this broker has a replica of it, else None."""
        return self._partitions.get(key)

    def leader(self, topic: str, number: int) -> Partition:
        """Returns the partition if this broker leads it. Raises as `get`, and `NotLeaderOrFollower`."""
        found = self._partitions.get((topic, number)) or self.get(topic, number)
        if not found.state.is_leader:
            raise NotLeaderOrFollower(f"broker {found.state.leader} leads {found.key}")
        return found

    def batch_refused(
        self, topic: str | bytes, number: int, records: memoryview | bytes | None, error: KafkaError, now_ms: int
    ) -> None:
        """Notes that a client's batch was refused, so that later sequences of its producer are refused until its retry.
        `topic` is the topic's id while its name is not known. What the disk refused is logged: most clients try again
        and do not say why."""
        found = self._partitions.get((topic, number)) if isinstance(topic, str) else None
        known = found.log.producers.entries if found is not None else ()
        self.refused_sequences.note((topic, number), records, error.code, known, now_ms)
        if found is not None and isinstance(error.__cause__, OSError):
            self._refused_lines.write(
                "%s-%s: a batch of %d bytes could not be written in %s: %s",
                topic, number, len(records or b""), found.log.directory, error.__cause__,
            )  # fmt: skip

    def on_leadership(self, listener: LeadershipListener) -> None:
        """Calls `listener` from now on, within the callback that makes a change."""
        self._on_leadership.append(listener)

    def on_flushed(self, listener: Callable[[TopicPartition], None]) -> None:
        """Calls `listener` with each partition whose log was flushed, from now on."""
        self._on_flushed.append(listener)

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """Returns the settings that a topic overrides, by Kafka's names."""
        return self.configs.overrides(topic)

    def take_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes partitions of a failed data directory offline, and wakes the requests that wait for them."""
        for key in partitions:
            self.offline.add(key)
            if key in self._partitions:
                self._drop(key)

    # Requests of the controller

    async def make_logs(self, request: m.LeaderAndIsrRequest) -> None:
        """Creates the logs that `apply_leader_and_isr` will need, off the event loop, since each waits for the disk.

        A log that cannot be created is skipped; applying the request tries again and answers with the error.
        """
        missing = []
        turns = Turns()
        for topic in request.topic_states:
            for state in topic.partition_states:
                await turns.count()
                if self._broker_id not in state.replicas or (not state.is_new and self.logs.directories.offline):
                    continue
                key = TopicPartition(topic.topic_name, state.partition_index)
                if self.logs.get(key) is not None:
                    continue
                missing.append((key, topic.topic_id))
                if not state.is_new:
                    log.warning(
                        "%s is missing from all data directories and starts empty; check that all disks are mounted",
                        key,
                    )
        directories = self.logs.directories_for_new(key for key, _ in missing)
        wanted = [
            (key, directory, None if topic_id == NO_UUID else topic_id)
            for (key, topic_id), directory in zip(missing, directories, strict=True)
        ]
        works = iter([wanted[start : start + LOGS_PER_WORK] for start in range(0, len(wanted), LOGS_PER_WORK)])
        run, now_ms = asyncio.get_running_loop().run_in_executor, self._now_ms()

        async def make() -> None:
            for work in works:
                for each in await run(None, self._make_some, work, now_ms):
                    self.logs.adopt(each)

        await asyncio.gather(*(make() for _ in range(CREATING_THREADS)))

    def _make_some(
        self, wanted: Iterable[tuple[TopicPartition, Path, bytes | None]], now_ms: int
    ) -> list[PartitionLog]:
        """The logs that can be created. Any thread."""
        made = []
        for key, directory, topic_id in wanted:
            with suppress(KafkaError, OSError):
                made.append(self.logs.make(key, directory, topic_id, now_ms))
        return made

    async def apply_leader_and_isr(
        self, request: m.LeaderAndIsrRequest, refusal: Callable[[], ErrorCode] = lambda: ErrorCode.NONE
    ) -> m.LeaderAndIsrResponse:
        """Applies a LeaderAndIsr; returns an error for each partition. The topics' settings must be loaded.

        `refusal` is asked before each slice: the error on which the rest of the request is not applied."""
        now_ms = self._now_ms()
        answers: list[m.LeaderAndIsrResponse.LeaderAndIsrTopicError] = []
        left = 0
        for topic in request.topic_states:
            errors: list[m.LeaderAndIsrResponse.LeaderAndIsrPartitionError] = []
            for state in topic.partition_states:
                if left == 0:
                    if answers or errors:
                        await asyncio.sleep(0)
                    if code := refusal():
                        return m.LeaderAndIsrResponse(error_code=code)
                    left = PARTITIONS_PER_TURN_MAX
                left -= 1
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
            if self.logs.directories.offline and not state.is_new:
                self.offline.add(key)
            else:
                self.refused.add(key)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition.log.topic_id not in (topic_id, None) and topic_id != NO_UUID:
            log.error(
                "the log of %s belongs to a deleted topic of the same name; the new partition is refused",
                key,
            )
            return ErrorCode.INCONSISTENT_TOPIC_ID
        leader_and_isr = LeaderAndIsr(
            BrokerId(state.leader),
            LeaderEpoch(state.leader_epoch),
            tuple(BrokerId(each) for each in state.isr),
            state.partition_epoch,
            tuple(BrokerId(each) for each in state.replicas),
            tuple(BrokerId(each) for each in state.adding_replicas),
        )
        if key in self._stepped_down:  # before it leads or follows again
            self._announce(key, partition)
        transition = partition.apply(leader_and_isr, now_ms)
        self._partitions[key] = partition
        if topic_id != NO_UUID:
            self.names_by_id[topic_id] = key.topic
        if transition is Transition.STALE:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if transition is not Transition.UNCHANGED:
            self._announce(key, partition)
        return ErrorCode.NONE

    def _drop(self, key: TopicPartition) -> None:
        self._partitions.pop(key).is_dropped = True
        self.drops += 1
        self._announce(key, None)

    def _announce(self, key: TopicPartition, partition: Partition | None) -> None:
        self._stepped_down.pop(key, None)
        self._touch(key)
        for listener in self._on_leadership:
            listener(key, partition)

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
        self.logs.lasting.made()
        return Partition(key, opened, state, self.traffic.of(key.topic), self.refused_sequences)

    def _flushed(self, key: TopicPartition) -> None:
        partition = self._partitions.get(key)
        if partition is None:  # dropped meanwhile, or its log has no replica
            return
        partition.flushed(self._now_ms())
        for listener in self._on_flushed:
            listener(key)
        self._touch(key)

    def step_down(self) -> None:
        """Stops leading all partitions at once: the controller has fenced this broker, and later leader epochs exist.
        From now on nothing is appended or acknowledged. `announce_stepped_down` is to follow."""
        for key, partition in self._partitions.items():
            if partition.is_leader:
                partition.state.step_down()
                self._stepped_down[key] = partition

    async def announce_stepped_down(self) -> None:
        """Tells the listeners of `step_down`, and wakes the requests that wait, in slices."""
        turns = Turns(PARTITIONS_PER_TURN_MAX)
        while self._stepped_down:
            partition = self._stepped_down[next(iter(self._stepped_down))]
            self._announce(partition.key, partition)
            await turns.count()

    def _on_metadata(self, delta: MetadataDelta) -> Iterator[None]:
        """Steps down from partitions that another broker leads in a newer leader epoch. A replica that stays one gets a
        LeaderAndIsr, too. One that was moved away while this broker was unreachable gets nothing: clients that have not
        heard of the new leader would wait at this one for ever."""
        left = ELEMENTS_PER_SLICE
        for topic, numbers in delta.partitions_changed.items():
            for number in numbers:
                if left <= 0:
                    left = ELEMENTS_PER_SLICE
                    yield
                left -= 1
                partition = self._partitions.get((topic, number))
                if partition is None or not partition.is_leader:
                    continue
                known = self.metadata.partition(topic, number)
                if (
                    known is not None
                    and known.leader_epoch > partition.leader_epoch
                    and known.leader != self._broker_id
                ):
                    log.warning(
                        "%s: broker %d leads in leader epoch %d; this broker steps down from epoch %d",
                        partition.key,
                        known.leader,
                        known.leader_epoch,
                        partition.leader_epoch,
                    )
                    partition.state.step_down()
                    self._announce(partition.key, partition)
                    left -= STEP_DOWN_WEIGHT

    async def apply_stop_replica(self, request: m.StopReplicaRequest) -> m.StopReplicaResponse:
        """Drops partitions; returns an error for each. A thread renames the directories of deleted partitions, since a
        topic may have thousands; their files are removed after the response."""
        states = {
            TopicPartition(topic.topic_name, state.partition_index): state
            for topic in request.topic_states
            for state in topic.partition_states
        }
        errors: dict[TopicPartition, ErrorCode] = {}
        deleted = []
        for number, (key, state) in enumerate(states.items(), 1):
            errors[key] = self._stop_one(key, state)
            if errors[key] is ErrorCode.NONE and state.delete_partition:
                deleted.append(key)
            if number % PARTITIONS_PER_TURN_MAX == 0:
                await asyncio.sleep(0)
        deletion = self.logs.begin_deletion(deleted)
        await asyncio.get_running_loop().run_in_executor(None, deletion.run)
        for key, error in (await in_turns(self.logs.finish_deletion(deletion, self._now_ms()))).items():
            log.error("%s cannot be deleted: %s", key, error)
            self.refused.add(key)
            errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
        if deleted:  # a partition made anew comes after the response, and must not find the offsets of this one
            written = asyncio.Event()
            self.logs.when_written(written.set)
            await written.wait()
        return m.StopReplicaResponse(
            partition_errors=[
                m.StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=key.topic, partition_index=key.partition, error_code=code
                )
                for key, code in errors.items()
            ]
        )

    def _stop_one(self, key: TopicPartition, state: m.StopReplicaRequest.StopReplicaPartitionState) -> ErrorCode:
        partition = self._partitions.get(key)
        if partition is not None and EPOCH_DURING_DELETE != state.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if key in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition is not None:
            if state.delete_partition:
                self.names_by_id.pop(partition.log.topic_id or NO_UUID, None)
            partition.state.is_leader = False
            self._drop(key)
        return ErrorCode.NONE

    # Settings

    async def _on_defaults(self) -> None:
        """Applies changed defaults of the broker to every partition."""
        async for key, opened in in_slices(list(self.logs.logs.items()), PARTITIONS_PER_TURN_MAX):
            config = self.configs.get(key.topic)
            if opened.config != config:
                opened.configure(config)
        async for partition in in_slices(list(self._partitions.values()), PARTITIONS_PER_TURN_MAX):
            partition.configure(self.configs.get(partition.key.topic), self._now_ms())
            self._touch(partition.key)

    def _on_config(self, topic: str, config: TopicConfig) -> None:
        self.logs.configure(topic)
        for number in self.logs.partitions_of(topic):
            partition = self._partitions.get((topic, number))
            if partition is not None:
                partition.configure(config, self._now_ms())
                self._touch(partition.key)
