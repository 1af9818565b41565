"""What one instance is at the moment: its definition, its names, and the metadata that its clients see.

The metadata has the instance's topics, under their qualified names, and the brokers that have a listener for it, with
the addresses of these. It follows the broker's metadata: what an UpdateMetadata changed of other instances costs
nothing here, and what it changed of this one is applied when the metadata is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.instances.names import InstanceNames
from headrace.instances.names import Namespace
from headrace.metadata.image import PartitionMetadata, Snapshot, TopicMetadata
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import Broker, Endpoint
from headrace.topics import INTERNAL_TOPICS
from headrace.types import NO_LEADER, BrokerId

if TYPE_CHECKING:
    from headrace.broker.instances.member_bytes import MemberBytes
    from headrace.instances.definition import Instance

Addresses = Mapping[BrokerId, tuple[str, int]]
"""Host and port of an instance's listener, by broker."""


class InstanceMetadata(MetadataCache):
    """The metadata of one instance. Topics have their qualified names."""

    def __init__(
        self, of_broker: MetadataCache, names: InstanceNames, topics: Iterable[str], addresses: Addresses
    ) -> None:
        """`topics`: the qualified names of the instance's topics."""
        self._of_broker, self._names, self._addresses = of_broker, names, addresses
        self.suspected_brokers = of_broker.suspected_brokers
        self._changed = dict.fromkeys(topics)
        self._seen: Snapshot | None = None
        self._found = Snapshot()
        for name in self._changed:
            topic = of_broker.topic(name)
            if topic is not None:
                names.has_id(topic.id, name)

    @property
    def snapshot(self) -> Snapshot:  # type: ignore[override]  # an attribute of the broker's own
        """The instance's metadata at this moment; immutable."""
        now = self._of_broker.snapshot
        if now is not self._seen:
            self._found, self._seen = self._next(now), now
        return self._found

    def partition(self, topic: str, number: int) -> PartitionMetadata | None:
        """One partition, also of an internal topic, for its coordinator. Clients cannot name one: names are
        qualified."""
        if topic in INTERNAL_TOPICS:
            return self._of_broker.partition(topic, number)
        return super().partition(topic, number)

    def topic_changed(self, name: str) -> None:
        """A topic of the instance was created, changed or deleted."""
        self._changed[name] = None

    def addresses_changed(self, addresses: Addresses) -> None:
        """The instance has other listeners."""
        self._addresses, self._seen = addresses, None

    def _next(self, now: Snapshot) -> Snapshot:
        topics, by_id = self._found.topics, self._found.names_by_id
        if self._changed:
            topics, by_id = self._changed_topics(now)
            self._changed = {}
        brokers = {
            broker_id: _at(now.brokers[broker_id], self._names.namespace.instance, address)
            for broker_id, address in sorted(self._addresses.items())
            if broker_id in now.brokers
        }
        controller = now.controller_id if now.controller_id in brokers else next(iter(brokers), NO_LEADER)
        return Snapshot(topics, by_id, brokers, controller)

    def _changed_topics(self, now: Snapshot) -> tuple[Mapping[str, TopicMetadata], Mapping[bytes, str]]:
        topics, by_id = dict(self._found.topics), dict(self._found.names_by_id)
        for name in self._changed:
            before, topic = topics.pop(name, None), now.topics.get(name)
            if before is not None:
                by_id.pop(before.id, None)
            if topic is not None:
                topics[name] = topic
                by_id[topic.id] = name
        return topics, by_id


def _at(broker: Broker, listener: str, address: tuple[str, int]) -> Broker:
    return broker._replace(endpoints=(Endpoint(listener, *address),))


class View:
    """One instance, as this broker serves it."""

    __slots__ = ("admins", "instance", "is_closed", "member_bytes", "metadata", "names")

    def __init__(
        self,
        instance: Instance,
        of_broker: MetadataCache,
        topics: Iterable[str],
        addresses: Addresses,
        directories: Sequence[str] = (),
    ) -> None:
        """`directories`: the broker's data directories."""
        self.names = InstanceNames(Namespace(instance.name), directories)
        self.metadata = InstanceMetadata(of_broker, self.names, topics, addresses)
        self.member_bytes: MemberBytes
        self.is_closed = False
        """Whether it serves nobody any more."""
        self.change(instance)

    def change(self, instance: Instance) -> None:
        """Applies another definition."""
        self.instance = instance
        qualified = self.names.namespace.qualified_principal
        self.admins = frozenset(qualified(each if ":" in each else f"User:{each}") for each in instance.admins)
        """The principals that may do everything in the instance."""
