"""Registers this broker and its topics in ZooKeeper as Kafka 0.7 did, so that clients with `zk.connect` find them.

    metadata, topic configs ──▶ topics to look at ──▶ one task ──▶ nodes below `headrace.kafka07.zookeeper.chroot`
                                                           └────▶ numbers, by which requests of 0.7 name partitions

A topic with `headrace.kafka07.enable` is registered while this broker leads all partitions that have a number here
(`discovery_nodes`). Clients have no other way to learn that a partition has another leader for the moment: in Kafka
0.7 it had none but its own broker. They wait for the broker, or go to others.

    session lost         all registrations are gone; the next session registers anew
    killed, started      the registrations of the last process, whose session lives on, are replaced
    another partition    its count is deleted and created in one write, which fires the watch on the topic's children

The connection is one of its own, whose root is the chroot: no node of the cluster can be touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from headrace.broker.kafka07 import discovery_nodes as nodes
from headrace.in_slices import Turns
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.image import TopicMetadata
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionLost,
    SessionState,
    StoreError,
    ensure_path,
    parent_of,
)
from headrace.protocol.wire_07 import ANY_PARTITION
from headrace.types import BrokerId

log = logging.getLogger(__name__)

RETRY_S = 1.0
NO_PARTITION = -2
"""A number that no partition has: the request for it is answered with WrongPartition."""


class Discovery:
    """The registrations of this broker for clients of Kafka 0.7."""

    def __init__(
        self,
        store: MetadataStore,
        broker: BrokerId,
        address: tuple[str, int],
        metadata: MetadataCache,
        configs: TopicConfigs,
        now_ms: Callable[[], int],
    ) -> None:
        """`store`: its root is the chroot. `address`: the host and port that clients are told."""
        self._store, self._broker, self._address = store, broker, address
        self._metadata, self._configs, self._now_ms = metadata, configs, now_ms
        self._is_registered = False
        self._numbers: dict[str, tuple[bytes, nodes.Numbers]] = {}  # with the topic's id
        self._counts: dict[str, tuple[bytes, int]] = {}  # registered in this session
        self._left: dict[str, None] = dict.fromkeys(metadata.topics)  # topics to look at
        self._told: dict[str, str] = {}
        self._woken = asyncio.Event()
        self._woken.set()
        metadata.on_change(self._metadata_changed)
        configs.on_change(lambda topic, _: self._look_at(topic))
        configs.on_defaults_change(self._defaults_changed)
        store.on_session(self._session_changed)

    # Requests

    def number_of(self, topic: str, number: int) -> int:
        """The number in the topic of a partition that a client of 0.7 names; NO_PARTITION if this broker has none."""
        found, known = self._numbers.get(topic), self._metadata.topic(topic)
        if found is None or known is None or known.id != found[0]:
            return NO_PARTITION
        return found[1][number] if 0 <= number < len(found[1]) else NO_PARTITION

    def number_to_produce_to(self, topic: str, number: int) -> int:
        """As `number_of`. A producer takes for granted that each broker has a partition 0 of a topic that is new."""
        if number == ANY_PARTITION or (number == 0 and topic not in self._numbers):
            return ANY_PARTITION
        return self.number_of(topic, number)

    # What happens

    def _metadata_changed(self, delta: MetadataDelta) -> None:
        self._look_at(
            *(each.name for each in (*delta.topics_created, *delta.topics_deleted)), *delta.partitions_changed
        )

    async def _defaults_changed(self) -> None:
        self._look_at(*self._metadata.topics)

    def _look_at(self, *topics: str) -> None:
        self._left.update(dict.fromkeys(topics))
        self._woken.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._is_registered = False
            self._counts.clear()
        elif state is SessionState.CONNECTED and not self._is_registered:
            self._look_at(*self._metadata.topics)

    # The task

    async def run(self) -> None:
        """Keeps the registrations up with the metadata until it is cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._step()
            except SessionLost:
                continue  # the next session wakes it
            except StoreError as error:
                self._tell("", f"clients of Kafka 0.7 may not find this broker: {type(error).__name__}: {error}")
            except Exception:  # a bug must not end the broker, whose task this is
                log.exception("the registration for clients of Kafka 0.7 failed")
            else:
                self._told.pop("", None)
                continue
            await asyncio.sleep(RETRY_S)
            self._woken.set()

    async def close(self) -> None:
        """Takes the broker off: the registrations are gone when this returns. `run` must not go on."""
        await self._store.close()

    async def _step(self) -> None:
        """Registers the broker, then what has changed of its topics."""
        if not self._is_registered:
            data = nodes.encode_broker(*self._address, self._now_ms())
            await self._replace(nodes.broker_path(self._broker), data)
            self._is_registered = True
        turns = Turns()
        while self._left:
            topic = next(iter(self._left))
            del self._left[topic]
            try:
                await self._update(topic)
            except CorruptNode as error:
                await self._withdraw(topic)
                self._tell(topic, f"clients of Kafka 0.7 do not find topic {topic} here: {error}")
            except BaseException:
                self._left[topic] = None
                raise
            await turns.count()

    async def _update(self, name: str) -> None:
        topic = self._metadata.topic(name)
        if topic is None or not self._configs.get(name).kafka07_enable:
            self._numbers.pop(name, None)
            await self._withdraw(name)
            if topic is None:
                await self._forget(name)
            return
        numbers = await self._numbered(topic)
        if away := nodes.not_led(numbers, topic, self._broker):
            await self._withdraw(name)
            self._tell(
                name,
                f"topic {name} is not registered for clients of Kafka 0.7: this broker does not lead partitions "
                f"{', '.join(map(str, away))}. If another broker is to keep them, stop the consumers, delete "
                f"{nodes.numbers_path(name, self._broker)} and the consumers' offsets of {self._broker}-* below the "
                "chroot, and restart this broker",
            )
        elif not numbers:
            await self._withdraw(name)
        elif self._counts.get(name) != (topic.id, len(numbers)):
            await self._replace(nodes.count_path(name, self._broker), b"%d" % len(numbers))
            self._counts[name] = topic.id, len(numbers)
            self._told.pop(name, None)

    async def _numbered(self, topic: TopicMetadata) -> nodes.Numbers:
        """The numbers of the topic's partitions here, stored before anybody is told of them. Raises `CorruptNode`."""
        path = nodes.numbers_path(topic.name, self._broker)
        node = await self._store.exists(path)
        stored = nodes.decode_numbers(node.data, topic.id) if node is not None else ()
        numbers = nodes.grown(stored, topic, self._broker)
        if numbers != stored:
            data = nodes.encode_numbers(topic.id, numbers)
            if node is None:
                await ensure_path(self._store, parent_of(path))
                await self._store.create(path, data)
            else:
                await self._store.set(path, data, node.version)
        self._numbers[topic.name] = topic.id, numbers
        return numbers

    async def _replace(self, path: str, data: bytes) -> None:
        """Creates an ephemeral node; one of an earlier process, or with an earlier count, goes in the same write."""
        while True:
            node = await self._store.exists(path)
            ops: list[Op] = [] if node is None else [Delete(path, node.version)]
            try:
                await self._store.multi([*ops, Create(path, data, ephemeral=True)])
                return
            except NoNode:
                await ensure_path(self._store, parent_of(path))
            except (NodeExists, BadVersion):
                continue  # the session of the earlier process has ended meanwhile

    async def _withdraw(self, topic: str) -> None:
        """Deletes the count of a topic that this session has registered."""
        if topic in self._counts:
            with suppress(NoNode):
                await self._store.delete(nodes.count_path(topic, self._broker))
            self._counts.pop(topic, None)

    async def _forget(self, topic: str) -> None:
        """Deletes what is left of a topic that was deleted. The last broker that does so deletes the parents."""
        for path in (nodes.numbers_path(topic, self._broker), nodes.numbers_parent(topic), nodes.topic_path(topic)):
            with suppress(NoNode, NotEmpty):
                await self._store.delete(path)
        self._told.pop(topic, None)

    def _tell(self, topic: str, said: str) -> None:
        if self._told.get(topic) != said:
            self._told[topic] = said
            log.warning("%s", said)
