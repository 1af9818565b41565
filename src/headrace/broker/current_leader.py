"""Who leads a partition that this broker does not, as an answer tells it (KIP-951), so that the client need not ask.

An answer with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH says per partition who leads it in which epoch, and once
per leader where it is reached: Produce from version 10, Fetch from 16. Source: Kafka's KafkaApis.getCurrentLeader.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.broker.context import RequestContext
from headrace.types import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, TopicPartition


class CurrentLeader(NamedTuple):
    """A partition's leader, as far as this broker knows."""

    id: BrokerId
    epoch: LeaderEpoch


class Node(NamedTuple):
    """Where a broker is reached through the asker's listener."""

    id: BrokerId
    host: str
    port: int
    rack: str | None


def current_leader(ctx: RequestContext, key: TopicPartition) -> CurrentLeader:
    """From the replica that is here, or else from what the controller told everybody; -1, -1 when nobody knows."""
    replica = ctx.broker.replicas.find(key)
    if replica is not None:
        return CurrentLeader(replica.state.leader, replica.leader_epoch)
    known = ctx.broker.metadata.partition(*key)
    return CurrentLeader(NO_LEADER, NO_EPOCH) if known is None else CurrentLeader(known.leader, known.leader_epoch)


def nodes(ctx: RequestContext, brokers: Iterable[BrokerId]) -> list[Node]:
    """Each of these brokers once; those that are not alive, or not on the asker's listener, are left out."""
    metadata = ctx.broker.metadata
    found = []
    for broker_id in dict.fromkeys(brokers):
        endpoint = metadata.endpoint(broker_id, ctx.listener)
        if endpoint is not None:
            found.append(Node(broker_id, endpoint.host, endpoint.port, metadata.brokers[broker_id].rack))
    return found
