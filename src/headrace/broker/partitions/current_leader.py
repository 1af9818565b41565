"""The current leader of a partition in a response (KIP-951), which spares the client a Metadata request.

A response with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH names the leader and its epoch per partition, and the
address of each leader once: Produce from version 10, Fetch from 16. Source: Kafka's KafkaApis.getCurrentLeader.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.broker.request.context import RequestContext
from headrace.types import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, TopicPartition


class CurrentLeader(NamedTuple):
    """A partition's leader, as far as this broker knows."""

    id: BrokerId
    epoch: LeaderEpoch


class LeaderEndpoint(NamedTuple):
    """A broker's address on the client's listener."""

    id: BrokerId
    host: str
    port: int
    rack: str | None


def current_leader(ctx: RequestContext, key: TopicPartition) -> CurrentLeader:
    """Returns the leader of the local replica or of the metadata, whichever has the later leader epoch; (-1, -1) if it
    is unknown. The metadata is ahead of the replica while this broker is fenced."""
    replica, known = ctx.services.replicas.find(key), ctx.services.metadata.partition(*key)
    if replica is not None and (known is None or known.leader_epoch <= replica.leader_epoch):
        return CurrentLeader(replica.state.leader, replica.leader_epoch)
    return CurrentLeader(NO_LEADER, NO_EPOCH) if known is None else CurrentLeader(known.leader, known.leader_epoch)


def nodes(ctx: RequestContext, brokers: Iterable[BrokerId]) -> list[LeaderEndpoint]:
    """Returns each of these brokers once; omits brokers that are not alive or not on the client's listener."""
    metadata = ctx.services.metadata
    found = []
    for broker_id in dict.fromkeys(brokers):
        endpoint = metadata.endpoint(broker_id, ctx.listener)
        if endpoint is not None:
            found.append(LeaderEndpoint(broker_id, endpoint.host, endpoint.port, metadata.brokers[broker_id].rack))
    return found
