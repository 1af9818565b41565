"""Metadata of a broker that was fenced, or whose session ended, from the metadata store until a controller reaches it.

    fenced        the partitions that this broker led have no leader; Metadata answers LEADER_NOT_AVAILABLE. Made in
                  slices, and only then are the requests answered that wait for these partitions: the answers must not
                  name this broker as the leader
    registered    after its session ended: reads the states of the partitions that this broker leads, since others may
                  lead them by now; it steps down where they do
    at once       reads the states of the partitions without a leader, until each has one
    at times      reads the states of all partitions
    reached       a controller has sent a request to the current registration; the reads end

The controller tells a broker that registers again in a moment, but not while it waits for the metadata store or stands
for election. Until then a leader of the past would answer its clients with offsets of the past.
A controller cannot send UpdateMetadata to a broker whose port refuses it, but clients may reach the broker at another
listener. librdkafka opens only the connections that it needs: a producer whose one connection is that to the old leader
asks this broker for metadata, and no other. If the answer named the old leader, or none, the producer would stay where
it is. Apache Kafka's brokers keep the metadata that they received last.
Left out: topics that are created or deleted meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice

from headrace.broker.cluster.control_plane import ControlPlane
from headrace.controller.decisions.control_requests import ControllerIdentity, update_metadata
from headrace.controller.decisions.partition_states import MetadataState, metadata_state
from headrace.controller.loading import load_brokers
from headrace.in_slices import Turns, in_slices, in_turns
from headrace.metadata import znodes
from headrace.metadata.image import PartitionMetadata, Snapshot, TopicMetadata
from headrace.metadata.left_out_nodes import decode_or_leave_out
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import Broker, PartitionLeadership
from headrace.metastore.store import MetadataStore, Node, StoreError
from headrace.protocol import messages as m
from headrace.types import NO_LEADER, BrokerId, TopicPartition

log = logging.getLogger(__name__)

PAUSE_MIN_S, PAUSE_MAX_S = 0.01, 1.0
"""The pause between reads of partitions without a leader: it doubles from the first to the second."""
ALL_EVERY_S = 5.0
"""The time between reads of all partitions."""
PARTITIONS_PER_READ = 200


class FencedMetadata:
    """Keeps the metadata cache up to date while no controller reaches this broker, which was fenced or forgotten."""

    def __init__(
        self,
        own_id: BrokerId,
        store: MetadataStore,
        metadata: MetadataCache,
        control: ControlPlane,
        create_task: "Callable[[Coroutine[object, object, None]], asyncio.Task[None]]",
        announce: Callable[[], Awaitable[None]],
    ) -> None:
        """`announce` tells of the partitions that this broker has stopped leading when it was fenced."""
        self._own_id, self._store, self._metadata, self._control = own_id, store, metadata, control
        self._create_task, self._announce = create_task, announce
        self._task: asyncio.Task[None] | None = None
        self._fencings = self._handled = 0

    def begin(self) -> None:
        """Removes this broker as leader from the metadata, and reads the next leaders until a controller reaches it."""
        self._fencings += 1
        if self._fencings == self._handled + 1:  # otherwise the task goes on with this one
            self.close()
            self._task = self._create_task(self._fenced())

    def look(self) -> None:
        """Reads who leads the partitions that this broker led in its last session, which has ended, and those without a
        leader, until a controller reaches it."""
        if self._fencings == self._handled:  # otherwise the task reads them next
            self.close()
            self._task = self._create_task(self._run())

    def close(self) -> None:
        """Stops reading."""
        if self._task is not None:
            self._task.cancel()

    def _partitions(self) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
        for topic in self._metadata.topics.values():
            for number, each in topic.partitions.items():
                yield TopicPartition(topic.name, number), each

    async def _fenced(self) -> None:
        while self._handled < self._fencings:
            now = self._fencings
            await self._remove_own()
            await self._announce()
            self._handled = now
        await self._run()

    async def _remove_own(self) -> None:
        """Removes this broker as leader from the metadata. A controller that reaches it meanwhile knows better."""
        while not self._control.is_reached:
            known, turns = self._metadata.snapshot, Turns()
            states: dict[str, dict[int, MetadataState]] = {}
            for topic in known.topics.values():
                for number, each in topic.partitions.items():
                    if each.leader == self._own_id:
                        states.setdefault(topic.name, {})[number] = _state(each._replace(leader=NO_LEADER))
                    await turns.count()
            request = self._update(known.topics, states, known.brokers, known.controller_id)
            if await in_turns(self._metadata.applying(request, partial(self._is_newest, known))) is not None:
                return

    def _is_newest(self, snapshot: Snapshot) -> bool:
        return self._metadata.snapshot is snapshot

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s, all_at = PAUSE_MIN_S, loop.time() + ALL_EVERY_S
        uncertain = {NO_LEADER, self._own_id}
        while not self._control.is_reached:
            is_for_all = loop.time() >= all_at
            wanted = [
                key async for key, each in in_slices(self._partitions()) if is_for_all or each.leader in uncertain
            ]
            uncertain = {NO_LEADER}
            try:
                await self._read(wanted)
            except StoreError as error:
                uncertain = {NO_LEADER, self._own_id}
                log.info("the leaders of %d partitions could not be read; trying again: %r", len(wanted), error)
            if is_for_all:
                all_at = loop.time() + ALL_EVERY_S
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)

    async def _read(self, wanted: Iterable[TopicPartition]) -> None:
        """Reads the live brokers, the controller, and the leaders of these partitions; applies later leader epochs."""
        remaining = iter(wanted)
        brokers = await load_brokers(self._store)
        while keys := list(islice(remaining, PARTITIONS_PER_READ)):
            paths = [znodes.partition_state(*key) for key in keys]
            controller, *nodes = await self._store.get_many([znodes.CONTROLLER, *paths])
            if self._control.is_reached:
                return
            found = {
                key: newer
                for key, node in zip(keys, nodes, strict=True)
                if node is not None and (newer := self._newer(key, node, brokers)) is not None
            }
            self._apply(found, brokers, self._controller(controller))

    def _newer(self, key: TopicPartition, node: Node, brokers: Mapping[BrokerId, Broker]) -> PartitionMetadata | None:
        """A partition with the leader of its state; None if the leader epoch is known, or the topic was deleted."""
        known = self._metadata.partition(*key)
        read = decode_or_leave_out(
            znodes.partition_state(*key), partial(znodes.decode_leadership, node.data, node.version, node.mzxid)
        )
        if known is None or read is None or read.leader_epoch <= known.leader_epoch:
            return None
        offline = tuple(each for each in known.replicas if each not in brokers)
        return known._replace(
            leader=read.leader, leader_epoch=read.leader_epoch, isr=read.isr, offline_replicas=offline
        )

    def _controller(self, node: Node | None) -> BrokerId:
        found = node and decode_or_leave_out(znodes.CONTROLLER, partial(znodes.decode_controller, node.data))
        return self._metadata.controller_id if found is None else found

    def _apply(
        self,
        partitions: Mapping[TopicPartition, PartitionMetadata],
        brokers: Mapping[BrokerId, Broker],
        controller: BrokerId,
    ) -> None:
        """Applies them as an UpdateMetadata, so that listeners get a delta."""
        states: dict[str, dict[int, MetadataState]] = {}
        for key, each in partitions.items():
            states.setdefault(key.topic, {})[key.partition] = _state(each)
        self._metadata.apply(self._update(self._metadata.topics, states, brokers, controller))

    def _update(
        self,
        topics: Mapping[str, TopicMetadata],
        states: Mapping[str, Mapping[int, MetadataState]],
        brokers: Mapping[BrokerId, Broker],
        controller: BrokerId,
    ) -> m.UpdateMetadataRequest:
        """An UpdateMetadata of these partitions."""
        topic_ids = {name: topics[name].id for name in states}
        own = Broker(self._own_id, ())
        return update_metadata(ControllerIdentity(controller, 0), own, states, topic_ids, brokers.values())


def _state(partition: PartitionMetadata) -> MetadataState:
    leadership = PartitionLeadership(partition.leader, partition.leader_epoch, partition.isr, 0)
    return metadata_state(
        partition.partition, leadership, partition.replicas, partition.offline_replicas, is_deleting=False
    )
