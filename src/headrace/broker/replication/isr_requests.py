"""Requests ISR changes of led partitions from the controller (AlterPartition, KIP-497).

    a follower caught up, or fell behind ──▶ pending ──▶ one request with all pending changes ──▶ granted or refused
                                                ▲                   │ no response, or NOT_CONTROLLER: repeated
                                                └───────────────────┘

One request is in flight at a time; changes that arise meanwhile are sent with the next. While a change is pending, the
high watermark waits for every replica that may be in the ISR (`replication.isr`), so a late response costs time only. A
response that a LeaderAndIsr has overtaken is dropped.
Source: Kafka's DefaultAlterPartitionManager, Partition.submitAlterPartition.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from itertools import islice

from headrace.broker.partitions.partition import Partition
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.metastore.store import StoreError
from headrace.protocol import messages as m
from headrace.replication.partition_state import AlterIsr
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

RETRY_PAUSE_S, RETRY_PAUSE_MAX_S = 0.05, 1.0
"""The pause after a failed request: it doubles from the first to the second."""

CHANGES_PER_REQUEST_MAX = 500
"""A follower that stands still makes the leaders of all its partitions ask at once. Each change costs some 20 µs."""

AlterPartition = Callable[["m.AlterPartitionRequest"], Awaitable["m.AlterPartitionResponse"]]


class IsrChanges:
    """Requests changes of the ISRs of the partitions that this broker leads."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        partitions: Iterable[Partition],
        alter_partition: AlterPartition,
        *,
        now_ms: Callable[[], int],
        advanced: Callable[[Partition], None],
        spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
    ) -> None:
        """`advanced` is called with a partition whose high watermark advanced."""
        self._broker_id, self._broker_epoch, self._partitions = broker_id, broker_epoch, partitions
        self._alter_partition, self._now_ms = alter_partition, now_ms
        self._advanced, self._spawn = advanced, spawn
        self._wanted: dict[TopicPartition, Partition] = {}
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False
        self.shrinks = self.expansions = 0
        """Granted changes since the start."""
        self.refusals = 0

    def submit(self, partition: Partition) -> None:
        """Requests the pending ISR change of a partition."""
        self._wanted[partition.key] = partition
        if not self._is_closed and (self._sending is None or self._sending.done()):
            self._sending = self._spawn(self._send_all())

    def close(self) -> None:
        """Stops; pending changes are left to the next leader."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()

    def shrink(self) -> Generator[None, None, None]:
        """Requests the removal of followers that are behind for too long, in slices. Called every half of
        `replica.lag.time.max.ms`, as in Apache Kafka."""
        now_ms = self._now_ms()
        for number, partition in enumerate(list(self._partitions), 1):
            if number % ELEMENTS_PER_SLICE == 0:
                yield
                now_ms = self._now_ms()
            if partition.is_leader and partition.state.propose_shrink(now_ms) is not None:
                self.submit(partition)

    async def _send_all(self) -> None:
        await asyncio.sleep(0)  # collects all changes of this turn of the event loop
        pause_s = RETRY_PAUSE_S
        while self._wanted:
            if await self._send_once():
                pause_s = RETRY_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(RETRY_PAUSE_MAX_S, 2 * pause_s)

    async def _send_once(self) -> bool:
        """Sends one request; returns whether the controller decided all changes."""
        some = list(islice(self._wanted, CHANGES_PER_REQUEST_MAX))
        wanted = {key: self._wanted.pop(key) for key in some}
        requested = {key: (partition, partition.state.pending_alter()) for key, partition in wanted.items()}
        try:
            answer = await self._alter_partition(self._request(requested.values()))
            refusal = known_code(answer.error_code)
        except KafkaError as error:
            answer, refusal = m.AlterPartitionResponse(), error.code
        except StoreError:  # the controller in this process has just lost its session
            answer, refusal = m.AlterPartitionResponse(), ErrorCode.NOT_CONTROLLER
        except Exception:
            log.exception("a request to change ISRs failed")
            answer, refusal = m.AlterPartitionResponse(), ErrorCode.UNKNOWN_SERVER_ERROR
        decisions = _by_partition(answer, requested) if not refusal else {}
        is_decided = not refusal
        if refusal:
            log.info("the controller did not change %d ISRs, trying again: %s", len(requested), refusal.name)
        for key, (partition, change) in requested.items():
            if partition.state.pending_alter() != change or not partition.is_leader:
                continue  # a LeaderAndIsr has overtaken the response
            found = decisions.get(key)
            if found is None:
                self._wanted.setdefault(key, partition)
                is_decided = False
            elif found.error_code:
                is_decided = not self._refused(partition, known_code(found.error_code)) and is_decided
            else:
                self._accepted(partition, found)
        return is_decided

    def _request(self, requested: Iterable[tuple[Partition, AlterIsr]]) -> m.AlterPartitionRequest:
        topics: dict[str, m.AlterPartitionRequest.TopicData] = {}
        for partition, change in requested:
            key, state = partition.key, partition.state
            if key.topic not in topics:
                topics[key.topic] = m.AlterPartitionRequest.TopicData(
                    topic_name=key.topic, topic_id=partition.log.topic_id or bytes(16), partitions=[]
                )
            members = [
                m.AlterPartitionRequest.BrokerState(
                    broker_id=each,
                    broker_epoch=self._broker_epoch()
                    if each == self._broker_id
                    else state.followers[each].broker_epoch,
                )
                for each in change.isr
                if each == self._broker_id or each in state.followers
            ]
            topics[key.topic].partitions.append(
                m.AlterPartitionRequest.PartitionData(
                    partition_index=key.partition,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=members,
                    partition_epoch=change.partition_epoch,
                )
            )
        return m.AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _accepted(self, partition: Partition, data: m.AlterPartitionResponse.PartitionData) -> None:
        before = partition.state.isr
        isr = tuple(BrokerId(each) for each in data.isr)
        moved = partition.state.alter_accepted(data.leader_epoch, data.partition_epoch, isr, self._now_ms())
        after = partition.state.isr
        self.shrinks += bool(before - after)
        self.expansions += bool(after - before)
        log.info("%s: the ISR changed to %s from %s", partition.key, sorted(after), sorted(before))
        if moved:
            self._advanced(partition)

    def _refused(self, partition: Partition, code: ErrorCode) -> bool:
        """Handles a refusal; returns whether the change is requested again."""
        self.refusals += 1
        log.info("%s: the controller refused to change the ISR: %s", partition.key, code.name)
        before = partition.high_watermark
        again = partition.state.alter_refused(code, self._now_ms())
        if again:
            self._wanted.setdefault(partition.key, partition)
        if partition.high_watermark > before:
            self._advanced(partition)
        return again


def _by_partition(
    answer: m.AlterPartitionResponse, requested: Mapping[TopicPartition, tuple[Partition, AlterIsr]]
) -> dict[TopicPartition, m.AlterPartitionResponse.PartitionData]:
    """The response by partition; from version 2 on it has topic ids instead of names."""
    names = {partition.log.topic_id: key.topic for key, (partition, _) in requested.items()}
    return {
        TopicPartition(topic.topic_name or names.get(topic.topic_id, ""), each.partition_index): each
        for topic in answer.topics
        for each in topic.partitions
    }
