"""What leaders here ask of the controller about their ISRs (AlterPartition, KIP-497).

    a follower caught up, or fell behind ──▶ wanted ──▶ one request with all that is wanted ──▶ granted or refused
                                                ▲                  │ no answer, or not for us: the same again
                                                └──────────────────┘

One request is under way at a time; what is wanted meanwhile leaves with the next. While a change is pending the
partition waits for everybody who may be in the ISR (`replication.isr`), so an answer that is late costs time and
nothing else. An answer to what is not asked any more, because LeaderAndIsr was faster, is dropped.
Source: Kafka's DefaultAlterPartitionManager, Partition.submitAlterPartition.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

from headrace.broker.partition import Partition
from headrace.coordination.tree import TreeError
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.replication.partition_state import AlterIsr
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

RETRY_PAUSE_S, RETRY_PAUSE_MAX_S = 0.05, 1.0
"""How long the controller is left alone after it could not be asked: doubled from the one to the other."""

AlterPartition = Callable[[m.AlterPartitionRequest], Awaitable[m.AlterPartitionResponse]]


class IsrChanges:
    """Asks for the changes of the ISRs of the partitions that this broker leads."""

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
        """`advanced` is called of a partition whose high watermark moved."""
        self._broker_id, self._broker_epoch, self._partitions = broker_id, broker_epoch, partitions
        self._alter_partition, self._now_ms = alter_partition, now_ms
        self._advanced, self._spawn = advanced, spawn
        self._wanted: dict[TopicPartition, Partition] = {}
        self._asking: asyncio.Task[None] | None = None
        self._is_closed = False
        self.shrinks = self.expansions = 0
        """How many were granted since the start."""
        self.refusals = 0

    def ask(self, partition: Partition) -> None:
        """The partition's state has a change pending that the controller is to hear of."""
        self._wanted[partition.key] = partition
        if not self._is_closed and (self._asking is None or self._asking.done()):
            self._asking = self._spawn(self._ask_all())

    def close(self) -> None:
        """Nothing is asked any more; what is pending, the next leader finds out."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()

    def shrink(self) -> None:
        """Looks for followers that have been behind for too long; to be called every half of that time."""
        now_ms = self._now_ms()
        for partition in self._partitions:
            if partition.is_leader and partition.state.propose_shrink(now_ms) is not None:
                self.ask(partition)

    async def _ask_all(self) -> None:
        await asyncio.sleep(0)  # what else this turn of the loop wants, leaves together
        pause_s = RETRY_PAUSE_S
        while self._wanted:
            if await self._ask_once():
                pause_s = RETRY_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(RETRY_PAUSE_MAX_S, 2 * pause_s)

    async def _ask_once(self) -> bool:
        """Whether all of it was decided."""
        asked = {key: (partition, partition.state.pending_alter()) for key, partition in self._wanted.items()}
        self._wanted.clear()
        try:
            answer = await self._alter_partition(self._request(asked.values()))
            refusal = ErrorCode(answer.error_code)
        except KafkaError as error:
            answer, refusal = m.AlterPartitionResponse(), error.code
        except TreeError:  # the controller is in this process, and has just lost its session
            answer, refusal = m.AlterPartitionResponse(), ErrorCode.NOT_CONTROLLER
        except Exception:
            log.exception("the ISR cannot be changed")
            answer, refusal = m.AlterPartitionResponse(), ErrorCode.UNKNOWN_SERVER_ERROR
        told = _by_partition(answer, asked) if not refusal else {}
        is_decided = not refusal
        if refusal:
            log.info("the controller cannot be asked to change %d ISRs now: %s", len(asked), refusal.name)
        for key, (partition, change) in asked.items():
            if partition.state.pending_alter() != change or not partition.is_leader:
                continue  # LeaderAndIsr has said meanwhile how things are
            found = told.get(key)
            if found is None:
                self._wanted.setdefault(key, partition)
                is_decided = False
            elif found.error_code:
                is_decided = not self._refused(partition, ErrorCode(found.error_code)) and is_decided
            else:
                self._granted(partition, found)
        return is_decided

    def _request(self, asked: Iterable[tuple[Partition, AlterIsr]]) -> m.AlterPartitionRequest:
        topics: dict[str, m.AlterPartitionRequest.TopicData] = {}
        for partition, change in asked:
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

    def _granted(self, partition: Partition, told: m.AlterPartitionResponse.PartitionData) -> None:
        before = partition.state.isr
        isr = tuple(BrokerId(each) for each in told.isr)
        moved = partition.alter_accepted(told.leader_epoch, told.partition_epoch, isr, self._now_ms())
        after = partition.state.isr
        self.shrinks += bool(before - after)
        self.expansions += bool(after - before)
        log.info("%s: the ISR is %s now, it was %s", partition.key, sorted(after), sorted(before))
        if moved:
            self._advanced(partition)

    def _refused(self, partition: Partition, code: ErrorCode) -> bool:
        """Whether it is asked again."""
        self.refusals += 1
        log.info("%s: the controller does not change the ISR: %s", partition.key, code.name)
        again = partition.state.alter_refused(code)
        if again:
            self._wanted.setdefault(partition.key, partition)
        return again


def _by_partition(
    answer: m.AlterPartitionResponse, asked: Mapping[TopicPartition, tuple[Partition, AlterIsr]]
) -> dict[TopicPartition, m.AlterPartitionResponse.PartitionData]:
    """The parts of the answer; from version 2 on it names topics by id."""
    names = {partition.log.topic_id: key.topic for key, (partition, _) in asked.items()}
    return {
        TopicPartition(topic.topic_name or names.get(topic.topic_id, ""), each.partition_index): each
        for topic in answer.topics
        for each in topic.partitions
    }
