"""StreamsGroupDescribe: a group, its topology, and its members with their tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.coordinators.groups.streams.tasks import sorted_tasks
from headrace.errors import ErrorCode
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.streams.configured_topology import ConfiguredTopology, TopologyInternalTopic
    from headrace.coordinators.groups.streams.group import StreamsGroup
    from headrace.coordinators.groups.streams.member import StreamsMember
    from headrace.coordinators.groups.streams.tasks import AssignedTasks, Tasks
    from headrace.coordinators.groups.streams.topology import Topology, TopologyTopic

Response = m.StreamsGroupDescribeResponse


def describe(group: StreamsGroup) -> Response.DescribedGroup:
    """The group with its members. While topics are missing, the topology is as the application gave it."""
    is_ready = group.configured is not None and group.configured.is_ready
    described = _configured(group.configured) if is_ready and group.configured else _topology(group.topology)
    return Response.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=described,
        members=[_member(each, group.targets.get(each.member_id)) for each in group.members.values()],
    )


def not_found(group_id: str, detail: str) -> Response.DescribedGroup:
    """The answer for a group that is no streams group."""
    return Response.DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=detail)


def _configured(configured: ConfiguredTopology) -> Response.Topology:
    return Response.Topology(
        epoch=configured.epoch,
        subtopologies=[
            Response.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                repartition_sink_topics=list(each.repartition_sinks),
                repartition_source_topics=[_internal(topic) for topic in each.repartition_sources],
                state_changelog_topics=[_internal(topic) for topic in each.changelogs],
            )
            for each in configured.subtopologies.values()
        ],
    )


def _topology(topology: Topology | None) -> Response.Topology | None:
    if topology is None:
        return None
    return Response.Topology(
        epoch=topology.epoch,
        subtopologies=[
            Response.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sinks),
                repartition_source_topics=[_info(topic) for topic in sorted(each.repartition_sources)],
                state_changelog_topics=[_info(topic) for topic in sorted(each.changelogs)],
            )
            for each in topology.subtopologies
        ],
    )


def _internal(topic: TopologyInternalTopic) -> Response.TopicInfo:
    return Response.TopicInfo(
        name=topic.name,
        partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        topic_configs=[Response.KeyValue(key=key, value=value) for key, value in topic.configs],
    )


def _info(topic: TopologyTopic) -> Response.TopicInfo:
    return Response.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[Response.KeyValue(key=key, value=value) for key, value in topic.configs],
    )


def _member(member: StreamsMember, target: Tasks | None) -> Response.Member:
    endpoint = member.user_endpoint
    return Response.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Response.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[Response.KeyValue(key=key, value=value) for key, value in member.client_tags],
        assignment=_assignment(member.assigned),
        target_assignment=Response.Assignment() if target is None else _assignment(target),
    )


def _assignment(tasks: AssignedTasks | Tasks) -> Response.Assignment:
    return Response.Assignment(
        active_tasks=_ids(tasks.active), standby_tasks=_ids(tasks.standby), warmup_tasks=_ids(tasks.warmup)
    )


def _ids(tasks: Mapping[str, Iterable[int]]) -> list[Response.TaskIds]:
    return [Response.TaskIds(subtopology_id=name, partitions=each) for name, each in sorted_tasks(tasks)]
