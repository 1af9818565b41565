"""One controller epoch: the cluster state that the controller knows, its writes, and its requests to brokers.

write     multi[ check /controller_epoch ; ... ]     a controller that was replaced writes nothing
change    writes leaderships, each with a version check, in several multis at once; reads those that another writer
          changed again, and leaves them to the caller
send      sends leaders to replicas and metadata to every live broker, through one channel per broker; never waits
over      the session was lost or another controller was elected: nothing is written, sent or answered any more
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from headrace.controller.broker_channels import Channel, OnAnswer, SendRequest
from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.control_requests import ControllerIdentity, stop_state
from headrace.controller.decisions.partition_states import LeaderState, MetadataState, leader_state, metadata_state
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata import znodes
from headrace.metadata.model import Broker, PartitionLeadership
from headrace.metastore.store import BadVersion, Check, Create, MetadataStore, NoNode, Op, OpResult, SessionLost, Set
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

OPS_PER_MULTI_MAX = 1000
BYTES_PER_MULTI_MAX = 512 * 1024
"""Keeps a multi below ZooKeeper's limit on a request (`jute.maxbuffer`, 1 MiB)."""

_OP_OVERHEAD_BYTES = 64
_WITH_DATA = (Create, Set)

TOPICS_PER_SLICE = 10
"""Topics whose partitions are put into requests in one turn of the event loop: each may have hundreds."""


class NotController(KafkaError):
    """This broker is not the controller."""

    code = ErrorCode.NOT_CONTROLLER


class ControllerEpoch:
    """What a controller knows, writes and sends from its election to the next one."""

    def __init__(
        self,
        store: MetadataStore,
        sender: ControllerIdentity,
        epoch_version: int,
        *,
        send: SendRequest,
        on_answer: OnAnswer,
        on_over: Callable[[], None],
        listener: str | None = None,
    ) -> None:
        """`epoch_version` is the version of the node /controller_epoch. `on_over` is called when a write finds another
        controller."""
        self.state = ClusterState()
        self.store = store
        self.sender = sender
        self.is_over = False
        self.guard = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._send, self._on_answer, self._on_over, self._listener = send, on_answer, on_over, listener
        self._channels: dict[BrokerId, Channel] = {}

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.sender.controller_epoch

    def end(self) -> None:
        """Ends the epoch and drops what is not yet sent."""
        self.is_over = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # Writing

    async def write(self, ops: Sequence[Op]) -> list[OpResult]:
        """Writes in order, in several multis if one would be too large. Raises `NotController`, and what the metadata
        store raises."""
        results: list[OpResult] = []
        for chunk in chunked(ops):
            results += await self._multi(chunk)
        return results

    async def _multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if self.is_over:
            raise NotController(f"controller epoch {self.epoch} is over")
        try:
            return (await self.store.multi([self.guard, *ops]))[1:]
        except BadVersion as error:
            if error.index:
                error.index -= 1
                raise
            self._on_over()
            raise NotController(f"another controller was elected after epoch {self.epoch}") from None
        except SessionLost:
            raise NotController("the session with the metadata store ended; the write may have succeeded") from None

    async def change(self, changes: Mapping[TopicPartition, PartitionLeadership]) -> dict[TopicPartition, None]:
        """Writes leaderships, each over the one with the same `partition_epoch`. Returns the partitions written, in the
        order of `changes`.

        Another writer has changed the other partitions; they are read again into `state`.
        """
        ops: list[Set] = []
        async for each, new in in_slices(changes.items()):
            ops.append(Set(znodes.partition_state(*each), znodes.encode_leadership(new), new.partition_epoch))
        partitions = list(changes)
        writing = []
        done = 0
        for chunk in chunked(ops):
            writing.append(self._change(chunk, partitions[done : done + len(chunk)], changes))
            done += len(chunk)
        written: set[TopicPartition] = set()
        for result in await asyncio.gather(*writing, return_exceptions=True):  # no write outlives another's failure
            if isinstance(result, BaseException):
                raise result
            written |= result
        return dict.fromkeys(each for each in changes if each in written)

    async def _change(
        self,
        ops: Sequence[Set],
        partitions: Sequence[TopicPartition],
        changes: Mapping[TopicPartition, PartitionLeadership],
    ) -> set[TopicPartition]:
        """Writes the states of these partitions. Returns those that have the new leadership."""
        written: set[TopicPartition] = set()
        while ops:
            try:
                versions = await self._multi(ops)
            except (BadVersion, NoNode) as error:
                log.info("another writer changed %s", error.path)
                ops, partitions, found = await self._without_stale(ops, partitions, changes)
                written |= found
                continue
            mzxid = self._newest_registration()
            for partition, version in zip(partitions, versions, strict=True):
                assert isinstance(version, int)
                leader, leader_epoch, isr, controller_epoch, _, _, is_recovering, eligible = changes[partition]
                self.state.leadership[partition] = PartitionLeadership(
                    leader, leader_epoch, isr, controller_epoch, version, mzxid, is_recovering, eligible
                )
            written.update(partitions)
            return written
        return written

    async def _without_stale(
        self,
        ops: Sequence[Set],
        partitions: Sequence[TopicPartition],
        changes: Mapping[TopicPartition, PartitionLeadership],
    ) -> tuple[list[Set], list[TopicPartition], set[TopicPartition]]:
        """(the ops whose version is still current, their partitions, the partitions that already have the new
        leadership). The latter happens when the answer to a write was lost."""
        fresh: list[Set] = []
        still: list[TopicPartition] = []
        found: set[TopicPartition] = set()
        nodes = await self.store.get_many([op.path for op in ops])
        for op, partition, node in zip(ops, partitions, nodes, strict=True):
            wanted = changes[partition]
            if node is None:
                self.state.leadership.pop(partition, None)
            elif node.version == wanted.partition_epoch:
                fresh.append(op)
                still.append(partition)
            else:
                now = znodes.decode_leadership(node.data, node.version, node.mzxid)
                self.state.leadership[partition] = now
                if now._replace(partition_epoch=0, mzxid=0) == wanted._replace(partition_epoch=0, mzxid=0):
                    found.add(partition)
        return fresh, still, found

    async def reload(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads leaderships again that another writer may have changed."""
        wanted = list(partitions)
        nodes = await self.store.get_many([znodes.partition_state(*each) for each in wanted])
        for partition, node in zip(wanted, nodes, strict=True):
            if node is None:
                self.state.leadership.pop(partition, None)
            else:
                self.state.leadership[partition] = znodes.decode_leadership(node.data, node.version, node.mzxid)

    async def create_states(self, elected: Mapping[TopicPartition, PartitionLeadership]) -> None:
        """Writes the first states of partitions, and their parent nodes where missing: a crash may have left a topic
        half written, and tools write the topic's node only."""
        if not elected:
            return
        wanted = dict.fromkeys(znodes.partitions(each.topic) for each in elected)
        wanted |= dict.fromkeys(znodes.partition(*each) for each in elected)
        nodes = await self.store.get_many(list(wanted))
        ops: list[Op] = [Create(path) for path, node in zip(wanted, nodes, strict=True) if node is None]
        ops += [Create(znodes.partition_state(*each), znodes.encode_leadership(new)) for each, new in elected.items()]
        await self.write(ops)
        self.remember(elected)

    def remember(self, written: Mapping[TopicPartition, PartitionLeadership]) -> None:
        """Updates `state` with leaderships that were written. Every known broker registered before the write, so
        `mzxid` is set to the newest registration's epoch."""
        mzxid = self._newest_registration()
        for partition, leadership in written.items():
            self.state.leadership[partition] = leadership._replace(mzxid=mzxid)

    def _newest_registration(self) -> int:
        return max((broker.epoch for broker in self.state.brokers.values()), default=0)

    # Sending

    def open_channels(self) -> list[Broker]:
        """Opens channels to live brokers and closes the others. Returns the brokers that are new or registered anew.

        Call it after the elections that a broker's registration causes are written: a broker that receives a control
        request concludes that its unclean shutdown was handled.
        """
        brokers = self.state.brokers
        for number, channel in list(self._channels.items()):
            if number not in brokers or brokers[number].epoch != channel.broker.epoch:
                self._channels.pop(number).close()
        came = [broker for number, broker in brokers.items() if number not in self._channels]
        for broker in came:
            self._channels[broker.id] = Channel(
                self.sender, broker, self._send, lambda: self.state.brokers, self._on_answer, self._listener
            )
        return came

    def send(
        self,
        partitions: Iterable[TopicPartition],
        *,
        new: frozenset[TopicPartition] = frozenset(),
        to: Iterable[Broker] | None = None,
        leaders: bool = True,
    ) -> dict[BrokerId, "asyncio.Future[None]"]:
        """Sends leaders and metadata of these partitions, and the live brokers, to `to` (every live broker when None).

        Returns a future for each broker, done once the broker has answered or is gone. Without `leaders` only metadata
        is sent.
        """
        channels = self._to(to)
        if not channels:
            return {}
        for channel in channels:
            channel.batch().has_brokers = True
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
        for topic, numbers in by_topic.items():
            self._send_topic(topic, numbers, channels, new=new, leaders=leaders)
        return {channel.broker.id: channel.batch().answered for channel in channels}

    def _send_topic(
        self,
        name: str,
        numbers: Iterable[int],
        channels: Collection[Channel],
        *,
        new: frozenset[TopicPartition] = frozenset(),
        leaders: bool = True,
    ) -> None:
        """Sends partitions of one topic, without those that have never had a leader."""
        state = self.state
        topic = state.topics.get(name)
        if topic is None:
            return
        is_deleting = name in state.deleting
        metadata: dict[int, MetadataState] = {}
        lead: dict[BrokerId, dict[int, LeaderState]] = {channel.broker.id: {} for channel in channels}
        for number in numbers:
            partition = TopicPartition(name, number)
            leadership = state.leadership.get(partition)
            if leadership is None:
                continue
            replicas = topic.partitions[number]
            order, online = replicas.replicas, state.online(partition)
            offline = tuple([each for each in order if each not in online])
            metadata[number] = metadata_state(number, leadership, order, offline, is_deleting=is_deleting)
            if leaders and not is_deleting:
                row = leader_state(number, leadership, replicas, is_new=partition in new)
                for broker in order:
                    if broker in lead:
                        lead[broker][number] = row
        for channel in channels:
            own = lead[channel.broker.id]
            batch = channel.batch_after(name, own)  # the metadata too: it follows the leaders
            batch.add_leaders(name, topic.id, own)
            batch.add_metadata(name, topic.id, metadata)

    async def send_all(self, to: Collection[Broker] | None = None) -> None:
        """Sends the whole cluster state to these brokers (all when None). They drop topics that it does not name:
        a topic may have been deleted while they could not be reached."""
        channels = self._to(to)
        for channel in channels:
            channel.hold()
            channel.batch().has_brokers = True
        try:
            if self.state.is_complete:
                topic_ids = {topic.name: topic.id for topic in self.state.topics.values()}
                for channel in channels:
                    batch = channel.batch()
                    batch.is_full = True
                    batch.topic_ids.update(topic_ids)
            async for topic in in_slices(list(self.state.topics.values()), TOPICS_PER_SLICE):
                self._send_topic(topic.name, topic.partitions, self._to(to))
        finally:
            for channel in channels:
                channel.release()

    def send_new(self, partition: TopicPartition, brokers: Iterable[BrokerId]) -> None:
        """Sends a partition's leader to brokers that must create their replica."""
        topic = self.state.topics[partition.topic]
        number = partition.partition
        replicas = topic.partitions[number]
        row = leader_state(number, self.state.leadership[partition], replicas, is_new=True)
        for broker in brokers:
            channel = self._channels.get(broker)
            if channel is not None and broker in replicas.replicas:
                channel.batch_after(topic.name, (number,)).add_leaders(topic.name, topic.id, {number: row})

    def stop(self, partition: TopicPartition, brokers: Iterable[BrokerId], *, delete: bool) -> None:
        """Sends StopReplica of a partition to these brokers. The responses come to `on_answer`."""
        state = stop_state(self.state, partition, delete=delete)
        for broker in brokers:
            channel = self._channels.get(broker)
            if channel is not None:
                channel.batch().add_stop(partition, state)

    def answered(self, brokers: Collection[BrokerId] | None = None) -> list["asyncio.Future[None]"]:
        """Futures that are done once these live brokers (all when None) have answered everything sent so far."""
        return [
            answered
            for number, channel in self._channels.items()
            if (brokers is None or number in brokers) and (answered := channel.last_answered) is not None
        ]

    def _to(self, brokers: Iterable[Broker] | None) -> list[Channel]:
        if brokers is None:
            return list(self._channels.values())
        return [self._channels[broker.id] for broker in brokers if broker.id in self._channels]


OpT = TypeVar("OpT", bound=Op)


def chunked(ops: Sequence[OpT]) -> Iterator[Sequence[OpT]]:
    """Splits ops into parts that each fit into one multi, in order."""
    start = size = 0
    for index, op in enumerate(ops):
        weight = len(op.path) + (len(op.data) if isinstance(op, _WITH_DATA) else 0) + _OP_OVERHEAD_BYTES
        if index > start and (index - start >= OPS_PER_MULTI_MAX or size + weight > BYTES_PER_MULTI_MAX):
            yield ops[start:index]
            start, size = index, 0
        size += weight
    if start < len(ops):
        yield ops[start:]
