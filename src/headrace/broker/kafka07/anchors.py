"""Anchors: for each partition an offset and its position, in the metadata store, from which replicas derive the rest.

    /headrace/kafka07/TOPIC/PARTITION    {"version":1,"topic_id":HEX,"generation":G,"offset":O,"position":P,
                                          "leader_epoch":E,"first_offset":O,"first_position":P}

The leader moves the anchor on before retention deletes what is before it. An unclean election may take the anchored
record away and put another there: the leader epoch of the record before the anchor tells. A log that has the first
anchor of the generation can do without. The generation grows when positions begin anew: nobody knew any more what the
deleted records had. An anchor of a topic that was deleted, whose name another has now, is ignored.
"""

from contextlib import suppress
from typing import NamedTuple

from headrace.metadata.deltas import TopicIdentity
from headrace.metadata.znodes import as_number, as_text, dump_json, load_object
from headrace.metastore.store import BadVersion, MetadataStore, NoNode, NotEmpty, ensure_path, parent_of
from headrace.types import NO_EPOCH, TopicPartition

ROOT = "/headrace/kafka07"


class Anchor(NamedTuple):
    """An offset, its position, and the generation of all positions with its first anchor."""

    generation: int
    offset: int
    position: int
    leader_epoch: int
    first_offset: int
    first_position: int

    @classmethod
    def beginning(cls, generation: int, offset: int, position: int) -> "Anchor":
        """The first anchor of a generation."""
        return cls(generation, offset, position, NO_EPOCH, offset, position)

    def moved(self, offset: int, position: int, leader_epoch: int) -> "Anchor":
        """The anchor at another offset; `leader_epoch` is that of the record before."""
        return self._replace(offset=offset, position=position, leader_epoch=leader_epoch)


class StoredAnchor(NamedTuple):
    """An anchor with the version of its node; None: the node is of another topic."""

    anchor: Anchor | None
    version: int


def path_of(partition: TopicPartition) -> str:
    """The node of a partition."""
    return f"{ROOT}/{partition.topic}/{partition.partition}"


async def read_anchor(store: MetadataStore, partition: TopicPartition, topic_id: bytes) -> StoredAnchor | None:
    """The stored anchor; None without a node. Raises StoreError, CorruptNode."""
    try:
        node = await store.get(path_of(partition))
    except NoNode:
        return None
    value = load_object(node.data)
    if as_text(value.get("topic_id")) != topic_id.hex():
        return StoredAnchor(None, node.version)
    numbers = (as_number(value.get(name)) for name in Anchor._fields)
    return StoredAnchor(Anchor(*numbers), node.version)


async def write_anchor(
    store: MetadataStore, partition: TopicPartition, topic_id: bytes, anchor: Anchor, version: int | None
) -> int:
    """Store an anchor over the one with this version, None for a node that there is not; returns the new version.

    Raises StoreError: NodeExists and BadVersion when another broker was faster.
    """
    data = dump_json({"version": 1, "topic_id": topic_id.hex(), **anchor._asdict()})
    if version is not None:
        return await store.set(path_of(partition), data, version)
    await ensure_path(store, parent_of(path_of(partition)))
    await store.create(path_of(partition), data)
    return 0


async def forget_anchors(store: MetadataStore, topic: TopicIdentity) -> None:
    """Remove the anchors of a deleted topic, and none of a new topic of its name. Raises StoreError, CorruptNode."""
    parent = f"{ROOT}/{topic.name}"
    with suppress(NoNode, NotEmpty, BadVersion):  # another broker does the same
        for name in await store.children(parent):
            node = await store.get(f"{parent}/{name}")
            if as_text(load_object(node.data).get("topic_id")) == topic.id.hex():
                await store.delete(f"{parent}/{name}", node.version)
        await store.delete(parent)
