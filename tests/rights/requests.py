"""One request of each API at each version that names a topic, a group and a transactional id, and changes little.

    about(key, version, MINE)        names what `MINE` holds
    joined(one, other)               both at once: the entries of one come after those of the other

What is permitted must not disturb the next request: topics are validated and not made, or are named that do not exist.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple

from headrace.broker.handlers import all_modules
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message, Struct
from tests.broker.test_every_version import TOPIC, requests

MISSING_ID = b"nobody has this."


class Names(NamedTuple):
    """What a request names."""

    topic: str
    topic_id: bytes
    group: str
    transactional_id: str
    missing_topic: str
    """One that does not exist."""


def names(of: str, topic_id: bytes = MISSING_ID) -> Names:
    """Names that begin alike."""
    return Names(f"{of}-topic", topic_id, f"{of}-group", f"{of}-transaction", f"{of}-nothing")


def about(key: ApiKey, version: int, named: Names) -> Message:
    """The request of an API at a version."""
    topic, group, transaction = named.topic, named.group, named.transactional_id
    match key:
        case ApiKey.JOIN_GROUP:
            protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
            return m.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=6000,
                rebalance_timeout_ms=6000,
                member_id="nobody",
                protocol_type="consumer",
                protocols=[protocol],
            )
        case ApiKey.SYNC_GROUP:
            return m.SyncGroupRequest(
                group_id=group,
                generation_id=1,
                member_id="nobody",
                protocol_type="consumer" if version >= 5 else None,
                protocol_name="range" if version >= 5 else None,
            )
        case ApiKey.HEARTBEAT:
            return m.HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
        case ApiKey.LEAVE_GROUP:
            member = m.LeaveGroupRequest.MemberIdentity(member_id="nobody")
            return m.LeaveGroupRequest(
                group_id=group, member_id="nobody" if version < 3 else "", members=[member] if version >= 3 else []
            )
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            return m.ConsumerGroupHeartbeatRequest(
                group_id=group, member_id="nobody", member_epoch=7, subscribed_topic_names=[topic], topic_partitions=[]
            )
        case ApiKey.SHARE_GROUP_HEARTBEAT:
            return m.ShareGroupHeartbeatRequest(
                group_id=group, member_id="nobody", member_epoch=7, subscribed_topic_names=[topic]
            )
        case ApiKey.STREAMS_GROUP_HEARTBEAT:
            subtopology = m.StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="0", source_topics=[topic])
            return m.StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id="nobody",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                process_id="p",
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                topology=m.StreamsGroupHeartbeatRequest.Topology(subtopologies=[subtopology]),
            )
        case ApiKey.INIT_PRODUCER_ID:
            return m.InitProducerIdRequest(
                transactional_id=transaction, transaction_timeout_ms=1000, enable2_pc=version >= 6
            )
        case ApiKey.WRITE_TXN_MARKERS:
            ends = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])
            number = 1 + topic.startswith("mine")  # one marker for each producer
            marker = m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=number, topics=[ends])
            return m.WriteTxnMarkersRequest(markers=[marker])
        case ApiKey.ADD_OFFSETS_TO_TXN:
            return m.AddOffsetsToTxnRequest(transactional_id=transaction, group_id=group, producer_id=1)
        case ApiKey.TXN_OFFSET_COMMIT:
            partition = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            written = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])
            return m.TxnOffsetCommitRequest(
                transactional_id=transaction, group_id=group, producer_id=1, producer_epoch=0, topics=[written]
            )
        case ApiKey.CREATE_TOPICS:
            wish = m.CreateTopicsRequest.CreatableTopic(
                name=named.missing_topic, num_partitions=1, replication_factor=1
            )
            return m.CreateTopicsRequest(topics=[wish], timeout_ms=1000, validate_only=version > 0)
        case ApiKey.DELETE_TOPICS if version < 6:
            return m.DeleteTopicsRequest(topic_names=[named.missing_topic], timeout_ms=1000)
        case ApiKey.DELETE_TOPICS:
            state = m.DeleteTopicsRequest.DeleteTopicState(name=named.missing_topic)
            return m.DeleteTopicsRequest(topics=[state], timeout_ms=1000)
        case ApiKey.CREATE_PARTITIONS:
            more = m.CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=9, assignments=None)
            return m.CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=True)
        case ApiKey.METADATA:
            return m.MetadataRequest(
                topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)],
                allow_auto_topic_creation=version < 4,
                include_cluster_authorized_operations=8 <= version <= 10,
                include_topic_authorized_operations=version >= 8,
            )
        case ApiKey.DELETE_RECORDS:
            until = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
            trimmed = m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[until])
            return m.DeleteRecordsRequest(topics=[trimmed], timeout_ms=1000)
        case ApiKey.FIND_COORDINATOR:
            kind = version % 2 if version else 0
            key_ = transaction if kind else group
            return m.FindCoordinatorRequest(
                key=key_ if version < 4 else "", key_type=kind, coordinator_keys=[key_] if version >= 4 else []
            )
        case ApiKey.DESCRIBE_CONFIGS | ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return _settings(key, ((2, topic), (4, "1"), *([(32, group)] if version else [])))
        case ApiKey.DESCRIBE_PRODUCERS:
            told = m.DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
            return m.DescribeProducersRequest(topics=[told])
        case ApiKey.ELECT_LEADERS:
            led = m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])
            return m.ElectLeadersRequest(topic_partitions=[led], timeout_ms=1000)
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            part = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=None)
            moved = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[part])
            return m.AlterPartitionReassignmentsRequest(topics=[moved])
        case ApiKey.LIST_PARTITION_REASSIGNMENTS:
            return m.ListPartitionReassignmentsRequest(topics=None)
        case ApiKey.ALTER_REPLICA_LOG_DIRS:
            there = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])
            to = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/elsewhere", topics=[there])
            return m.AlterReplicaLogDirsRequest(dirs=[to])
        case ApiKey.DESCRIBE_LOG_DIRS:
            located = m.DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[0])
            return m.DescribeLogDirsRequest(topics=[located])
        case ApiKey.ALTER_CLIENT_QUOTAS:
            part_ = m.AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="u")
            op = m.AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1.0)
            entry = m.AlterClientQuotasRequest.EntryData(entity=[part_], ops=[op])
            return m.AlterClientQuotasRequest(entries=[entry], validate_only=True)
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="u", mechanism=1)
            return m.AlterUserScramCredentialsRequest(deletions=[deletion])
        case ApiKey.UNREGISTER_BROKER:
            return m.UnregisterBrokerRequest(broker_id=77)
    base = next(requests(key, version, {TOPIC: named.topic_id}))
    replaced = {TOPIC: topic, "g": group, "s": group, "a": group, "streams": group, "x": transaction}
    renamed_one: Message = renamed(base, replaced)
    return renamed_one


def _settings(key: ApiKey, resources: tuple[tuple[int, str], ...]) -> Message:
    if key is ApiKey.DESCRIBE_CONFIGS:
        asked = m.DescribeConfigsRequest.DescribeConfigsResource
        return m.DescribeConfigsRequest(
            resources=[
                asked(resource_type=kind, resource_name=name, configuration_keys=["x"]) for kind, name in resources
            ]
        )
    if key is ApiKey.ALTER_CONFIGS:
        whose = m.AlterConfigsRequest.AlterConfigsResource
        return m.AlterConfigsRequest(
            resources=[whose(resource_type=kind, resource_name=name) for kind, name in resources], validate_only=True
        )
    target = m.IncrementalAlterConfigsRequest.AlterConfigsResource
    return m.IncrementalAlterConfigsRequest(
        resources=[target(resource_type=kind, resource_name=name) for kind, name in resources], validate_only=True
    )


def renamed(value: Any, replaced: Mapping[Any, Any]) -> Any:
    """A copy with other names, and other ids."""
    if isinstance(value, str | bytes):
        return replaced.get(value, value)
    if isinstance(value, list):
        return [renamed(each, replaced) for each in value]
    if isinstance(value, Struct):
        changed = copy(value)
        for name in value.FIELDS:
            before = getattr(value, name)
            if before and isinstance(before, str | bytes | list):
                setattr(changed, name, renamed(before, replaced))
        return changed
    return value


def joined(one: Message, other: Message) -> Message:
    """A request with the entries of both."""
    both = copy(one)
    for name in both.FIELDS:
        mine, others = getattr(both, name), getattr(other, name)
        if isinstance(mine, list) and mine and mine != others:
            setattr(both, name, [*mine, *(each for each in others if each not in mine)])
    return both


def every_version() -> list[tuple[ApiKey, int]]:
    """Each version of each API that is served."""
    return [(module.API_KEY, version) for module in all_modules() for version in module.VERSIONS]
