"""The finalized features of the cluster (KIP-584): the levels on which all live brokers agree.

    transaction.version     2    every live broker is headrace
    group.version           1
    share.version           1
    streams.version         1
    each of them            0    an Apache Kafka broker is alive, or is away and has replicas, or the registrations are
                                 not known yet

Apache Kafka in ZooKeeper mode knows none of them. At level 2 of `transaction.version` clients leave it to the partition
leaders to add partitions to a transaction, which an Apache Kafka leader does not do. The other features are groups
whose records an Apache Kafka coordinator skips, so that it would drop their members. Brokers therefore look at the
registrations whenever a broker comes or goes: headrace's have a field of their own.

An Apache Kafka broker that restarts may lead again in a moment, and a client that was told level 2 meanwhile keeps it.
So the level stays at 0 while the broker is away, until headrace runs in its place or its replicas are on other brokers.

The epoch of the features is the newest broker epoch, which grows with every registration; clients ignore features of an
older epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine

from headrace.metadata import znodes
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import Broker
from headrace.metastore.store import MetadataStore, NoNode, SessionLost
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION = "group.version", "share.version", "streams.version"
SUPPORTED = {
    GROUP_VERSION: range(2),
    SHARE_VERSION: range(2),
    STREAMS_VERSION: range(2),
    TRANSACTION_VERSION: range(3),
}
"""The levels of each feature that this broker supports."""


class Features:
    """The finalized features, as this broker sees the cluster."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: MetadataCache,
        spawn: Callable[[Coroutine[object, object, None]], object],
        *,
        is_alone: bool,
    ) -> None:
        """`is_alone`: no other broker can join."""
        self._store, self._metadata, self._spawn = store, metadata, spawn
        self._is_looking, self._is_outdated = False, False
        self._apache_kafka: set[BrokerId] = set()
        """Apache Kafka brokers that are alive, or away with replicas."""
        self._witness: TopicPartition | None = None
        """A partition with a replica on one that is away."""
        self._is_finalized = is_alone
        """Whether every feature is at its highest level; else every one is at 0."""
        self.epoch = 0
        if not is_alone:
            metadata.on_change(self._on_metadata)

    @property
    def finalized(self) -> dict[str, int]:
        """The level of each feature above level 0; a feature at level 0 is not finalized."""
        return {name: levels[-1] for name, levels in SUPPORTED.items()} if self._is_finalized else {}

    def level(self, feature: str) -> int:
        """The level of a feature."""
        return SUPPORTED[feature][-1] if self._is_finalized else 0

    @property
    def transaction_version(self) -> int:
        """The level of `transaction.version`."""
        return self.level(TRANSACTION_VERSION)

    def _on_metadata(self, delta: MetadataDelta) -> None:
        is_moved = bool(delta.partitions_changed or delta.topics_deleted) and self._has_lost_witness()
        if delta.brokers_added or delta.brokers_removed or delta.brokers_changed or is_moved:
            self._is_outdated = True
            if not self._is_looking:
                self._is_looking = True
                self._spawn(self._look())

    async def _look(self) -> None:
        try:
            while self._is_outdated:
                self._is_outdated = False
                self._set(await self._registrations())
        except SessionLost:
            self._is_outdated = True  # the brokers register anew, which is a change
        finally:
            self._is_looking = False

    async def _registrations(self) -> list[Broker]:
        found = []
        for broker_id in list(self._metadata.brokers):
            try:
                node = await self._store.get(znodes.broker(broker_id))
                found.append(znodes.decode_broker(broker_id, node.data, node.czxid))
            except NoNode:
                continue  # the broker has gone, and UpdateMetadata will say so
            except znodes.CorruptNode as error:
                log.warning(
                    "every feature is taken as 0: the registration of broker %d cannot be read: %s",
                    broker_id,
                    error,
                )
                return []
        return found

    def _set(self, brokers: list[Broker]) -> None:
        self._apache_kafka -= {each.id for each in brokers}
        away = self._apache_kafka
        self._witness = self._replica_on(away)
        if self._witness is None:
            away = set()
        self._apache_kafka = away | {each.id for each in brokers if each.directory is None}
        is_finalized = bool(brokers) and not self._apache_kafka
        if is_finalized != self._is_finalized:
            log.info(
                "features are at %s levels%s",
                "their highest" if is_finalized else "no",
                f", because of the Apache Kafka brokers {sorted(self._apache_kafka)}" if self._apache_kafka else "",
            )
        self._is_finalized = is_finalized
        self.epoch = max(self.epoch, *(each.epoch for each in brokers), 0)  # the newest broker may be the one that left

    def _replica_on(self, brokers: set[BrokerId]) -> TopicPartition | None:
        """A partition with a replica on one of these brokers."""
        if not brokers:
            return None
        return next(
            (
                TopicPartition(topic.name, each.partition)
                for topic in self._metadata.topics.values()
                for each in topic.partitions.values()
                if not brokers.isdisjoint(each.replicas)
            ),
            None,
        )

    def _has_lost_witness(self) -> bool:
        if self._witness is None:
            return False
        found = self._metadata.partition(*self._witness)
        return found is None or self._apache_kafka.isdisjoint(found.replicas)
