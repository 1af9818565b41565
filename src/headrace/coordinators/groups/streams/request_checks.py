"""The checks of a StreamsGroupHeartbeat that need no group. Source: Kafka's `GroupCoordinatorService`."""

from __future__ import annotations

from headrace.coordinators.groups.streams.topology import Request
from headrace.errors import ErrorCode, KafkaError

_LEAVE_STATIC_EPOCH = -2


def check_heartbeat(request: Request) -> None:
    """Raises INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY for a request that no group could serve."""
    _check_supported(request)
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        _refuse(value is not None and not value.strip(), f"{name} can't be empty.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.member_epoch == 0:
        _refuse(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
        for name, listed in zip(("ActiveTasks", "StandbyTasks", "WarmupTasks"), tasks, strict=True):
            _refuse(bool(listed), f"{name} must be empty when (re-)joining.")
        if request.topology is None:
            raise KafkaError("Topology must be non-null when (re-)joining.", ErrorCode.INVALID_REQUEST)
        _check_changelogs(request.topology)
    elif request.member_epoch == _LEAVE_STATIC_EPOCH:
        _refuse(request.instance_id is None, "InstanceId can't be null.")
    else:
        _refuse(
            request.member_epoch < _LEAVE_STATIC_EPOCH,
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.",
        )
    has_some = any(each is not None for each in tasks)
    _refuse(has_some and None in tasks, "If one task-type is non-null, all must be non-null.")
    _refuse(
        request.member_epoch != 0 and request.topology is not None,
        "Topology can only be provided when (re-)joining.",
    )


def _check_supported(request: Request) -> None:
    """What is in the schema, but not in Kafka 4.3."""
    _refuse(request.instance_id is not None, "Static membership is not yet supported.")
    _refuse(request.task_offsets is not None, "TaskOffsets are not supported yet.")
    _refuse(request.task_end_offsets is not None, "TaskEndOffsets are not supported yet.")
    _refuse(bool(request.warmup_tasks), "WarmupTasks are not supported yet.")
    for each in [] if request.topology is None else request.topology.subtopologies:
        _refuse(bool(each.source_topic_regex), "Regular expressions for source topics are not supported yet.")


def _check_changelogs(topology: Request.Topology) -> None:
    for subtopology in topology.subtopologies:
        for each in subtopology.state_changelog_topics:
            if each.partitions != 0:
                raise KafkaError(
                    f"Changelog topic {each.name} must have an undefined partition count, but it is set to "
                    f"{each.partitions}.",
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                )


def _refuse(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise KafkaError(message, ErrorCode.INVALID_REQUEST)
