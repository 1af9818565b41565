"""Requests in few words, for scenarios of several APIs."""

from collections.abc import Mapping
from typing import Any

from headrace.protocol import messages as m

READ_COMMITTED = 1
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def fetch_request(
    topic: str, offset: int = 0, *, isolation_level: int = READ_COMMITTED, partition: int = 0
) -> m.FetchRequest:
    """Fetch of one partition by name (versions 4 to 12), outside a session."""
    wanted = m.FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return m.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation_level,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetch_by_id_request(topic_id: bytes, offset: int = 0, *, isolation_level: int = READ_COMMITTED) -> m.FetchRequest:
    """Fetch of one partition by its topic's id (versions 13 and above), outside a session."""
    request = fetch_request("", offset, isolation_level=isolation_level)
    request.topics[0].topic_id = topic_id
    return request


def offset_request(topic: str, timestamp: int = -1, *, isolation_level: int = READ_COMMITTED) -> m.ListOffsetsRequest:
    """ListOffsets of partition 0."""
    wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return m.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])],
    )


def committed_request(group: str, topic: str, *, require_stable: bool) -> m.OffsetFetchRequest:
    """OffsetFetch of partition 0, versions 0 to 7."""
    wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    return m.OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=require_stable)


def create_request(
    *names: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Mapping[int, list[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
    timeout_ms: int = 10_000,
) -> m.CreateTopicsRequest:
    """CreateTopics of topics that are alike."""
    Topic = m.CreateTopicsRequest.CreatableTopic
    Assignment = m.CreateTopicsRequest.CreatableReplicaAssignment
    Config = m.CreateTopicsRequest.CreatableTopicConfig
    topics = [
        Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[
                Assignment(partition_index=number, broker_ids=ids) for number, ids in (assignments or {}).items()
            ],
            configs=[Config(name=key, value=value) for key, value in (configs or {}).items()],
        )
        for name in names
    ]
    return m.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


def describe_configs_request(kind: int, name: str, keys: list[str] | None, **more: bool) -> m.DescribeConfigsRequest:
    """DescribeConfigs of one resource."""
    wanted = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return m.DescribeConfigsRequest(resources=[wanted], **more)


def incremental_request(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> m.IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigs of one resource: (name, operation, value)."""
    Config = m.IncrementalAlterConfigsRequest.AlterableConfig
    configs = [Config(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    wanted = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    return m.IncrementalAlterConfigsRequest(resources=[wanted], validate_only=validate_only)


def commit_request(
    group: str,
    topic: str | bytes,
    *partitions: tuple[int, int],
    member: str = "",
    generation: int = -1,
    metadata: str | None = "",
    instance: str | None = None,
) -> m.OffsetCommitRequest:
    """OffsetCommit of (partition, offset) of a topic by name, or by id (version 10)."""
    Topic = m.OffsetCommitRequest.OffsetCommitRequestTopic
    Partition = m.OffsetCommitRequest.OffsetCommitRequestPartition
    parts = [
        Partition(partition_index=number, committed_offset=offset, committed_metadata=metadata)
        for number, offset in partitions
    ]
    wanted = Topic(name=topic, partitions=parts) if isinstance(topic, str) else Topic(topic_id=topic, partitions=parts)
    return m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[wanted],
    )


def fetch_offsets_request(
    version: int,
    group: str,
    topics: Mapping[Any, list[int]] | None,
    *,
    member: str | None = None,
    epoch: int = -1,
) -> m.OffsetFetchRequest:
    """OffsetFetch at any version; topics by id from version 10 on; None asks for all (version 2 and above)."""
    if version < 8:
        One = m.OffsetFetchRequest.OffsetFetchRequestTopic
        old = None if topics is None else [One(name=str(key), partition_indexes=parts) for key, parts in topics.items()]
        return m.OffsetFetchRequest(group_id=group, topics=old)
    Many = m.OffsetFetchRequest.OffsetFetchRequestTopics
    new: list[m.OffsetFetchRequest.OffsetFetchRequestTopics] | None = [] if topics is not None else None
    for key, parts in (topics or {}).items():
        assert new is not None
        new.append(
            Many(topic_id=key, partition_indexes=parts)
            if isinstance(key, bytes)
            else Many(name=key, partition_indexes=parts)
        )
    wanted = m.OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group, topics=new, member_id=member, member_epoch=epoch
    )
    return m.OffsetFetchRequest(groups=[wanted])


def join_request(group: str, member: str = "", **more: object) -> m.JoinGroupRequest:
    """JoinGroup of a consumer; keywords replace fields."""
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    for name, value in more.items():
        setattr(request, name, value)
    return request


def sync_request(group: str, member: str, generation: int, **more: object) -> m.SyncGroupRequest:
    """SyncGroup of a leader that gives itself an assignment; keywords replace fields."""
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"a")
    request = m.SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=[assignment])
    for name, value in more.items():
        setattr(request, name, value)
    return request
