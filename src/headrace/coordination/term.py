"""One term of one controller: what it knows, how it writes, and its voice.

write     multi[ /controller_epoch is still mine ; ... ]     a controller that was replaced writes nothing
change    leaderships, each with a version check; several multis at once; those that somebody else changed in the
          meantime are read again and left to the caller
tell      leaders to replicas and metadata to everybody, through one channel per live broker; waits for nobody
over      the session was lost or another controller elected: nothing is written, told or answered any more
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from headrace.coordination import paths
from headrace.coordination.channels import Channel, OnAnswer, Send
from headrace.coordination.cluster import ClusterState
from headrace.coordination.model import Broker, PartitionLeadership
from headrace.coordination.requests import Sender, leader_told, metadata_told, stop_told
from headrace.coordination.tree import BadVersion, Check, Create, NoNode, Op, OpResult, SessionLost, Set, Tree
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

OPS_PER_MULTI_MAX = 1000
BYTES_PER_MULTI_MAX = 512 * 1024
"""Keep a multi below ZooKeeper's limit on a request, 1 MiB."""

_OP_OVERHEAD_BYTES = 64


class NotController(KafkaError):
    """This broker does not decide; another one does, or none yet."""

    code = ErrorCode.NOT_CONTROLLER


class Term:
    """From an election to the next."""

    def __init__(
        self,
        tree: Tree,
        sender: Sender,
        epoch_version: int,
        *,
        send: Send,
        on_answer: OnAnswer,
        on_over: Callable[[], None],
        listener: str | None = None,
    ) -> None:
        """`epoch_version` is that of /controller_epoch; `on_over` is called when a write finds another controller."""
        self.state = ClusterState()
        self.tree = tree
        self.sender = sender
        self.is_over = False
        self.guard = Check(paths.CONTROLLER_EPOCH, epoch_version)
        self._send, self._on_answer, self._on_over, self._listener = send, on_answer, on_over, listener
        self._channels: dict[BrokerId, Channel] = {}

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.sender.controller_epoch

    def end(self) -> None:
        """It is over: drops what is not yet sent."""
        self.is_over = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # Writing

    async def write(self, ops: Sequence[Op]) -> list[OpResult]:
        """Writes one after the other, in more than one multi when there are many. Raises `NotController`, and what
        the tree raises."""
        results: list[OpResult] = []
        for chunk in chunked(ops):
            results += await self._multi(chunk)
        return results

    async def _multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if self.is_over:
            raise NotController("this controller's term is over")
        try:
            return (await self.tree.multi([self.guard, *ops]))[1:]
        except BadVersion as error:
            if error.index:
                error.index -= 1
                raise
            self._on_over()
            raise NotController("another controller was elected") from None
        except SessionLost:
            raise NotController("the session is over; what became of the write is not known") from None

    async def change(self, changes: Mapping[TopicPartition, PartitionLeadership]) -> set[TopicPartition]:
        """Writes leaderships over those of the same `partition_epoch`; which of them were written and are now known.

        The others were changed by somebody else, and are known as they are in the tree.
        """
        ops: list[Op] = [
            Set(paths.partition_state(*each), paths.encode_leadership(new), new.partition_epoch)
            for each, new in changes.items()
        ]
        by_path = {op.path: each for op, each in zip(ops, changes, strict=True)}
        written: set[TopicPartition] = set()
        for done in await asyncio.gather(*(self._change(chunk, by_path, changes) for chunk in chunked(ops))):
            written |= done
        return written

    async def _change(
        self,
        ops: Sequence[Op],
        by_path: Mapping[str, TopicPartition],
        changes: Mapping[TopicPartition, PartitionLeadership],
    ) -> set[TopicPartition]:
        written: set[TopicPartition] = set()
        while ops:
            try:
                versions = await self._multi(ops)
            except (BadVersion, NoNode) as error:
                log.info("%s was changed by somebody else", error.path)
                ops, found = await self._without_stale(ops, by_path, changes)
                written |= found
                continue
            known = {}
            for op, version in zip(ops, versions, strict=True):
                assert isinstance(version, int)
                known[by_path[op.path]] = changes[by_path[op.path]]._replace(partition_epoch=version)
            self.know(known)
            return written | known.keys()
        return written

    async def _without_stale(
        self,
        ops: Sequence[Op],
        by_path: Mapping[str, TopicPartition],
        changes: Mapping[TopicPartition, PartitionLeadership],
    ) -> tuple[list[Op], set[TopicPartition]]:
        """The ops that may still be done, and the partitions that are as wished already: a write whose answer was
        lost is found done."""
        fresh: list[Op] = []
        found: set[TopicPartition] = set()
        for op, node in zip(ops, await self.tree.get_many([op.path for op in ops]), strict=True):
            partition = by_path[op.path]
            wished = changes[partition]
            if node is None:
                self.state.leadership.pop(partition, None)
            elif node.version == wished.partition_epoch:
                fresh.append(op)
            else:
                now = paths.decode_leadership(node.data, node.version, node.mzxid)
                self.state.leadership[partition] = now
                if now._replace(partition_epoch=0, mzxid=0) == wished._replace(partition_epoch=0, mzxid=0):
                    found.add(partition)
        return fresh, found

    async def reload(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads leaderships again that somebody else may have changed."""
        wanted = list(partitions)
        nodes = await self.tree.get_many([paths.partition_state(*each) for each in wanted])
        for partition, node in zip(wanted, nodes, strict=True):
            if node is None:
                self.state.leadership.pop(partition, None)
            else:
                self.state.leadership[partition] = paths.decode_leadership(node.data, node.version, node.mzxid)

    async def create_states(self, elected: Mapping[TopicPartition, PartitionLeadership]) -> None:
        """Writes first states whose parent nodes may be missing: of a topic that was written only in part, or by a
        tool, which leaves it to the controller."""
        if not elected:
            return
        wanted = dict.fromkeys(paths.partitions(each.topic) for each in elected)
        wanted |= dict.fromkeys(paths.partition(*each) for each in elected)
        nodes = await self.tree.get_many(list(wanted))
        ops: list[Op] = [Create(path) for path, node in zip(wanted, nodes, strict=True) if node is None]
        ops += [Create(paths.partition_state(*each), paths.encode_leadership(new)) for each, new in elected.items()]
        await self.write(ops)
        self.know(elected)

    def know(self, written: Mapping[TopicPartition, PartitionLeadership]) -> None:
        """Takes over what was written: after the registration of every broker that is known."""
        mzxid = max((broker.epoch for broker in self.state.brokers.values()), default=0)
        for partition, leadership in written.items():
            self.state.leadership[partition] = leadership._replace(mzxid=mzxid)

    # Telling

    def meet(self, brokers: Mapping[BrokerId, Broker]) -> list[Broker]:
        """These are the live brokers now; which of them are new, or registered anew."""
        known, self.state.brokers = self.state.brokers, dict(brokers)
        for number in [each for each, broker in known.items() if brokers.get(each) != broker]:
            self._forget_broker(number)
        came = [broker for number, broker in brokers.items() if number not in self._channels]
        for broker in came:
            self._channels[broker.id] = Channel(
                self.sender, broker, self._send, lambda: self.state.brokers, self._on_answer, self._listener
            )
        return came

    def _forget_broker(self, number: BrokerId) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()
        self.state.shutting_down.discard(number)
        self.state.offline_replicas.pop(number, None)

    def tell(
        self,
        partitions: Iterable[TopicPartition],
        *,
        new: frozenset[TopicPartition] = frozenset(),
        to: Iterable[Broker] | None = None,
        leaders: bool = True,
    ) -> dict[BrokerId, "asyncio.Future[None]"]:
        """Leaders and metadata of these partitions, and the live brokers, to every live broker or to some.

        By broker: done once it has answered, or is gone. `leaders` false: metadata alone.
        """
        channels = self._to(to)
        if not channels:
            return {}
        for channel in channels:
            channel.batch().tells_brokers = True
        by_id = {channel.broker.id: channel for channel in channels}
        for partition in partitions:
            metadata = metadata_told(self.state, partition)
            if metadata is None:
                continue
            topic_id = self.state.topics[partition.topic].id
            for channel in channels:
                batch = channel.batch()
                batch.metadata[partition] = metadata
                batch.topic_ids[partition.topic] = topic_id
            if leaders and partition.topic not in self.state.deleting:
                self._tell_leader(partition, by_id, is_new=partition in new)
        return {channel.broker.id: channel.batch().answered for channel in channels}

    def tell_new(self, partition: TopicPartition, brokers: Iterable[BrokerId]) -> None:
        """The leader of a partition to brokers that have no replica of it yet."""
        self._tell_leader(partition, {each: self._channels[each] for each in brokers if each in self._channels}, True)

    def _tell_leader(self, partition: TopicPartition, channels: Mapping[BrokerId, Channel], is_new: bool) -> None:
        replicas = self.state.topics[partition.topic].partitions[partition.partition]
        told = leader_told(partition.partition, self.state.leadership[partition], replicas, is_new=is_new)
        for broker in replicas.replicas:
            channel = channels.get(broker)
            if channel is not None:
                batch = channel.batch_after(partition)
                before = batch.lead.get(partition)
                if before is not None and before.is_new and not is_new:
                    told = leader_told(partition.partition, self.state.leadership[partition], replicas, is_new=True)
                batch.lead[partition] = told
                batch.topic_ids[partition.topic] = self.state.topics[partition.topic].id

    def stop(self, partition: TopicPartition, brokers: Iterable[BrokerId], *, delete: bool) -> None:
        """Has brokers let go of their replica of a partition; the answers come to `on_answer`."""
        told = stop_told(self.state, partition, delete=delete)
        for broker in brokers:
            channel = self._channels.get(broker)
            if channel is not None:
                batch = channel.batch()
                if delete:
                    batch.lead.pop(partition, None)
                batch.stop[partition] = told

    def answered(self, brokers: Collection[BrokerId] | None = None) -> list["asyncio.Future[None]"]:
        """Of every live broker, or of some: done once what has been said so far has been answered."""
        return [
            answered
            for number, channel in self._channels.items()
            if (brokers is None or number in brokers) and (answered := channel.last_answered) is not None
        ]

    def _to(self, brokers: Iterable[Broker] | None) -> list[Channel]:
        if brokers is None:
            return list(self._channels.values())
        return [self._channels[broker.id] for broker in brokers if broker.id in self._channels]


def chunked(ops: Sequence[Op]) -> Iterator[Sequence[Op]]:
    """Parts that each fit into one multi, in order."""
    start = size = 0
    for index, op in enumerate(ops):
        weight = len(op.path) + (0 if not isinstance(op, Create | Set) else len(op.data)) + _OP_OVERHEAD_BYTES
        if index > start and (index - start >= OPS_PER_MULTI_MAX or size + weight > BYTES_PER_MULTI_MAX):
            yield ops[start:index]
            start, size = index, 0
        size += weight
    if start < len(ops):
        yield ops[start:]
