"""A group's registries in ZooKeeper, at the paths and with the contents of Kafka 0.8.

    /consumers/[group]/ids/[consumer_id]             what a consumer reads; ephemeral
    /consumers/[group]/owners/[topic]/[partition]    the owner's thread id; ephemeral
    /consumers/[group]/offsets/[topic]/[partition]   the offset of the next record; persistent
    /brokers/ids/[broker]                            a broker's addresses; ephemeral
    /brokers/topics/[topic]                          its partitions

The path of an owner or offset in Kafka 0.7 ends in [broker]-[partition]; its partitions belonged to brokers.
Every removal and every commit checks that this consumer is registered. A consumer whose session has ended, and which
has not noticed, changes nothing of its successors.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headrace.client.core.settings import Address, ClientSettings
from headrace.client.zookeeper_consumer.rebalance import Owners, Registries
from headrace.client.zookeeper_consumer.subscription import StreamSubscription, decode_subscription, has_filters
from headrace.client.zookeeper_consumer.zookeeper_session import NoNode, ZooKeeperSession
from headrace.errors import KafkaError
from headrace.types import Offset, TopicPartition

BROKER_IDS, TOPICS = "/brokers/ids", "/brokers/topics"


def registration_of(group: str, consumer_id: str) -> str:
    """The node of a consumer, which guards its commits and removals."""
    return f"/consumers/{group}/ids/{consumer_id}"


def live_brokers(session: ZooKeeperSession, protocol: str) -> list[Address]:
    """The addresses of the live brokers for clients that use a security protocol, under a watch."""
    names = sorted(session.children(BROKER_IDS, watch=True))
    nodes = session.read([f"{BROKER_IDS}/{name}" for name in names])
    found = [_address_of(name, data, protocol) for name, data in zip(names, nodes, strict=True) if data is not None]
    return [address for address in found if address is not None]


def security_protocol(client: ClientSettings) -> str:
    """Kafka's name of what a client uses."""
    if client.sasl is not None:
        return "SASL_SSL" if client.tls is not None else "SASL_PLAINTEXT"
    return "SSL" if client.tls is not None else "PLAINTEXT"


class GroupRegistry:
    """One consumer's view of its group. Each call raises ZooKeeperUnavailable."""

    def __init__(self, session: ZooKeeperSession, group: str, consumer_id: str) -> None:
        self.consumer_id = consumer_id
        self._session = session
        self._group = f"/consumers/{group}"
        self._ids = f"{self._group}/ids"
        self._me = registration_of(group, consumer_id)

    # -- consumers

    def register(self, subscription: StreamSubscription, now_ms: int) -> None:
        """Register this consumer for the session; a node of an earlier session of its own goes first."""
        self._session.ensure_path(self._ids)
        while self._session.create_ephemeral({self._me: subscription.encode(now_ms)}):
            (found,) = self._session.read_owned([self._me])
            if found is not None and found[1] == self._session.session_id:
                return
            self._session.delete(self._me)

    def check_registered(self) -> None:
        """Raises NoNode if this consumer's session has ended."""
        if not self._session.exists(self._me):
            raise NoNode(f"{self._me} is gone: the session ended, and others may have the partitions")

    def read(self, *, exclude_internal: bool) -> Registries | None:
        """What a rebalance decides from, under watches; None if this consumer is not registered."""
        names = self._session.children(self._ids, watch=True)
        nodes = self._session.read([f"{self._ids}/{name}" for name in names])
        members = {
            name: decode_subscription(name, data) for name, data in zip(names, nodes, strict=True) if data is not None
        }
        if self.consumer_id not in members:
            return None
        topics = self._session.children(TOPICS, watch=True) if has_filters(members.values()) else []
        streams = {name: each.streams(topics, has_internal=not exclude_internal) for name, each in members.items()}
        mine = list(streams[self.consumer_id])
        nodes = self._session.read([f"{TOPICS}/{topic}" for topic in mine], watch=True)
        partitions = {topic: partitions_of(topic, data) for topic, data in zip(mine, nodes, strict=True)}
        return Registries(streams, partitions)

    # -- owners

    def claim(self, wanted: Owners) -> Owners:
        """Add entries. Returns those that are now this consumer's; another consumer still has the others, whose going
        fires a watch."""
        for topic in {partition.topic for partition in wanted}:
            self._session.ensure_path(f"{self._group}/owners/{topic}")
        by_path = {self._owner(partition): (partition, thread) for partition, thread in wanted.items()}
        taken = self._session.create_ephemeral({path: str(thread).encode() for path, (_, thread) in by_path.items()})
        kept = [path for path in by_path if path in taken]
        for path, found in zip(kept, self._session.read_owned(kept, watch=True), strict=True):
            if found is None or found[1] != self._session.session_id:
                continue
            partition, thread = by_path[path]
            if found[0] == str(thread).encode():
                taken.discard(path)  # an earlier attempt, whose answer was lost
            else:
                self.release([partition])
        return {partition: thread for path, (partition, thread) in by_path.items() if path not in taken}

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove entries of this consumer."""
        self._session.delete_guarded([self._owner(partition) for partition in partitions])

    def _owner(self, partition: TopicPartition) -> str:
        return f"{self._group}/owners/{partition.topic}/{partition.partition}"

    # -- offsets

    def read_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The committed offsets, without partitions that have none."""
        nodes = self._session.read([self._offset(partition) for partition in partitions])
        found = {}
        for partition, data in zip(partitions, nodes, strict=True):
            if data is not None:
                try:
                    found[partition] = Offset(int(data))
                except ValueError:
                    raise KafkaError(f"{self._offset(partition)} has {data[:200]!r}, which is no offset") from None
        return found

    def write_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit offsets. Raises NoNode if this consumer's session has ended."""
        self._session.write_guarded(
            {self._offset(partition): str(offset).encode() for partition, offset in offsets.items()}
        )

    def _offset(self, partition: TopicPartition) -> str:
        return f"{self._group}/offsets/{partition.topic}/{partition.partition}"


def _object(path: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise KafkaError(f"{path} has {data[:200]!r}, which is no JSON object")
    return value


def partitions_of(topic: str, data: bytes | None) -> list[int]:
    """The partitions of a topic; none if there is no topic (yet)."""
    return [] if data is None else sorted(map(int, _object(f"{TOPICS}/{topic}", data).get("partitions", {})))


def _address_of(broker: str, data: bytes, security_protocol: str) -> Address | None:
    """Where a broker listens for a security protocol. Version 1 has one address, for plain text; later versions list
    endpoints, and since version 4 their listeners have names."""
    value = _object(f"{BROKER_IDS}/{broker}", data)
    protocols = value.get("listener_security_protocol_map") or {}
    for url in value.get("endpoints") or ():
        listener, _, address = url.partition("://")
        if protocols.get(listener, listener) == security_protocol:
            host, _, port = address.rpartition(":")
            return Address(host.strip("[]"), int(port))
    if security_protocol == "PLAINTEXT" and value.get("host") and "endpoints" not in value:
        return Address(value["host"], value["port"])
    return None
